"""Processes of guests. They outlive the daemon: each has a scope of systemd of its own, or a session without systemd.

A process holds a lock on the file ``lock`` of its instance's directory as long as it lives. So no guest ever has two,
whatever a daemon that was killed has left. It runs as a user without privileges from its first instruction on. The
daemon makes the socket of its monitor, so the process needs no right in the directory.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

from nova_lite.base import exceptions, files, ofd_locks
from nova_lite.base.timing import TIMING, QemuTiming
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.qemu.qmp import Monitor, MonitorGone, QMPError

LOG = logging.getLogger(__name__)

LOCK, MONITOR, LOG_FILE = "lock", "qmp.sock", "qemu.log"
#: Exists while systemd is the init of this machine.
SYSTEMD = "/run/systemd/system"
#: Bytes of a socket's path that Linux accepts.
MAX_PATH = 107

_LOCKS = 64


class Processes:
    """Starts, finds and ends qemu. ``user``: name of its user. A daemon without root's rights runs it as its own."""

    def __init__(self, user: str, timing: QemuTiming = TIMING.qemu, emulator: str = kvm.EMULATOR) -> None:
        self._user = user
        self._timing = timing
        self._emulator = emulator
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        #: Processes that this daemon has started, so that their ends are collected.
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, instances_path: str) -> None:
        """Check that guests can be started. Raises `ConfigurationError`."""
        reason = None
        if shutil.which(self._emulator) is None:
            reason = f"{self._emulator} is missing on this host: install qemu-system-x86."
        elif len(os.path.join(instances_path, "0" * 36, MONITOR)) > MAX_PATH:
            reason = f"[DEFAULT] instances_path = {instances_path}: the path is too long for sockets below it."
        elif os.geteuid() == 0:
            try:
                pwd.getpwnam(self._user)
            except KeyError:
                reason = f"[qemu] user = {self._user}: there is no such user. useradd --system {self._user} makes it."
        if reason is not None:
            raise exceptions.ConfigurationError(reason=reason)

    @property
    def owner(self) -> tuple[int, int]:
        """User and group of the processes."""
        if os.geteuid() != 0:
            return os.geteuid(), os.getegid()
        found = pwd.getpwnam(self._user)
        return found.pw_uid, found.pw_gid

    def give(self, path: str, shared: bool = False) -> None:
        """Let the processes open a file. They only read a ``shared`` file."""
        if os.geteuid() == 0:
            if shared:
                os.chown(path, -1, self.owner[1])
                os.chmod(path, os.stat(path).st_mode | 0o040)
            else:
                os.chown(path, self.owner[0], -1)

    @staticmethod
    def take_back(path: str) -> None:
        """Take a file from the processes. Do nothing if it is gone."""
        if os.geteuid() == 0:
            with contextlib.suppress(FileNotFoundError):
                os.chown(path, 0, -1)

    # --- one process

    @staticmethod
    def is_running(directory: str) -> bool:
        """Check whether an instance has a process. Raises OSError."""
        try:
            descriptor = os.open(os.path.join(directory, LOCK), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return ofd_locks.is_locked(descriptor)
        finally:
            os.close(descriptor)

    def start(self, directory: str, instance_uuid: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """Start a process and wait until its monitor answers. Raises `InstancePowerOnFailure`."""
        with contextlib.ExitStack() as opened:
            lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            opened.callback(os.close, lock)
            try:
                ofd_locks.lock(lock)
            except OSError as error:
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason="another qemu of it still runs"
                ) from error
            monitor = opened.enter_context(_listen(os.path.join(directory, MONITOR)))
            log = opened.enter_context(open(os.path.join(directory, LOG_FILE), "wb", opener=files.private_opener))
            chardev = f"socket,id=monitor,fd={monitor.fileno()},server=on,wait=off"
            command = [*self._prefix(instance_uuid), self._emulator, *arguments, "-chardev", chardev]
            self._children[instance_uuid] = subprocess.Popen(
                [*command, "-mon", "chardev=monitor,mode=control"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                pass_fds=[lock, monitor.fileno(), *pass_fds],
                start_new_session=True,
            )
        try:
            with self.monitor(directory, self._timing.start):
                pass
        except MonitorGone as error:
            self.kill(directory, instance_uuid)
            reason = _last_line(os.path.join(directory, LOG_FILE)) or error.kwargs["reason"]
            raise exceptions.InstancePowerOnFailure(instance_uuid=instance_uuid, reason=reason) from error

    def _prefix(self, instance_uuid: str) -> list[str]:
        found = []
        if os.path.isdir(SYSTEMD) and os.geteuid() == 0:
            # A name of its own for each start: systemd may still have the scope of a process that has just ended.
            unit = f"--unit=nova-lite-guest-{instance_uuid}-{secrets.token_hex(4)}"
            found = ["systemd-run", "--quiet", "--scope", "--collect", unit, "--"]
        user = ["--reuid", self._user, "--regid", str(self.owner[1]), "--init-groups"] if os.geteuid() == 0 else []
        return [*found, "setpriv", "--no-new-privs", *user, "--"]

    @contextlib.contextmanager
    def monitor(self, directory: str, timeout: float | None = None) -> Iterator[Monitor]:
        """Yield a connection to the monitor. Raises `MonitorGone`."""
        with self._locks[hash(directory) % _LOCKS]:
            monitor = Monitor(os.path.join(directory, MONITOR), timeout or self._timing.reply)
            try:
                yield monitor
            finally:
                monitor.close()

    def stop(self, directory: str, instance_uuid: str) -> None:
        """End the process, if any, so that it writes what it has cached. Kill it if it does not end."""
        if self.is_running(directory):
            with contextlib.suppress(MonitorGone, QMPError), self.monitor(directory) as monitor:
                monitor.execute("quit")
            if not self.has_ended(directory):
                LOG.warning("The qemu of instance %s does not end, and is killed", instance_uuid)
                self.kill(directory, instance_uuid)
        self._collect(instance_uuid)

    def kill(self, directory: str, instance_uuid: str) -> None:
        """Kill the process. Raises `VirtDriverError` if it still does not end."""
        pid = pids().get(instance_uuid)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    # The number may be another process's by now, but not any more while this one is open.
                    if pids().get(instance_uuid) == pid:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)
        if not self.has_ended(directory):
            raise exceptions.VirtDriverError(reason=f"the qemu of instance {instance_uuid} cannot be ended")
        self._collect(instance_uuid)

    def has_ended(self, directory: str) -> bool:
        """Wait for the end of a process that is ending. Return whether it has ended."""
        deadline = time.monotonic() + self._timing.end
        while self.is_running(directory):
            if time.monotonic() >= deadline:
                return False
            time.sleep(self._timing.poll)
        return True

    def _collect(self, instance_uuid: str) -> None:
        child = self._children.pop(instance_uuid, None)
        if child is not None:
            child.wait()


def pids(processes: str = "/proc") -> dict[str, int]:
    """Return the processes of qemu on this machine by the uuid of their guest, as the host's guard finds them."""
    found = {}
    for path in glob.glob(os.path.join(processes, "[0-9]*", "cmdline")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
            words = file.read().split(b"\0")
            if b"-uuid" in words[:-1]:
                uuid = words[words.index(b"-uuid") + 1].decode("ascii", "replace")
                found[uuid] = int(path.split(os.sep)[-2])
    return found


@contextlib.contextmanager
def _listen(path: str) -> Iterator[socket.socket]:
    """Yield a socket that listens at ``path``, for this user alone."""
    files.remove(path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)
        os.chmod(path, 0o600)
        made.listen(4)
        yield made


def _last_line(path: str) -> str:
    with open(path, errors="replace") as file:
        lines = file.read().strip().splitlines()
    return lines[-1] if lines else ""
