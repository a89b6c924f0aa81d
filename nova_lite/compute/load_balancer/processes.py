"""Processes of HAProxy, one for each load balancer. They outlive the daemon.

A changed configuration is loaded by a new process. It takes the listening sockets of the old one, so no connection is
refused, and the tables of sessions. The old process ends with its last connection.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import resource
import shutil
import signal
import socket

from nova_lite.base import exceptions, files
from nova_lite.compute.load_balancer import namespaces
from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.haproxy import Place, certificate_file
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import namespaces as net_namespaces

PROGRAM = "haproxy"
CONFIGURATION, PID, STATES, EMPTY, CERTIFICATES = "haproxy.cfg", "pid", "states", "empty", "certificates"
_NEW = f"{CONFIGURATION}.new"
#: The first line of a file of states without any.
_NO_STATES = b"1\n"
#: Largest number of connections of a process. Each needs two files, and the process some more.
MAX_CONNECTIONS, _MORE_FILES = 10000, 200
#: Largest number of bytes of memory.
_MEMORY = 2**30
_TIMEOUT = 2.0


class Process:
    """The process of a load balancer. Its files are in ``directory``, which only root reads."""

    def __init__(self, balancer_id: str, directory: str, user: str) -> None:
        self._id = balancer_id
        self._directory = directory
        # The path of a socket is short, so it is beside the hosts' directories, and named by a digest.
        digest = hashlib.sha256(os.fsencode(os.path.abspath(directory))).hexdigest()[:16]
        self.place = Place(
            os.path.join(os.path.dirname(os.path.dirname(directory)), digest),
            self._path(STATES),
            self._path(EMPTY),
            user,
            _connections(),
            self._path(CERTIFICATES),
        )

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def add_certificates(self, texts: list[str]) -> None:
        """Write certificates with their keys for `check`."""
        files.private_directory(self._directory)
        files.private_directory(self.place.certificates)
        for text in texts:
            path = certificate_file(self.place, certificates.digest(text))
            files.write_atomically(path, text.encode())

    def remove_certificates(self, needed: list[str]) -> None:
        """Remove all certificates but those of these digests."""
        names = {os.path.basename(certificate_file(self.place, digest)) for digest in needed}
        with contextlib.suppress(FileNotFoundError):
            for name in set(os.listdir(self.place.certificates)) - names:
                files.remove(os.path.join(self.place.certificates, name))

    def check(self, text: str) -> None:
        """Write a configuration for `start`. Raises `VirtDriverError` if HAProxy refuses it."""
        os.makedirs(self._path(EMPTY), mode=0o755, exist_ok=True)
        if not os.path.exists(self.place.states):
            files.write_atomically(self.place.states, _NO_STATES)
        new = self._path(_NEW)
        files.write_atomically(new, text.encode())
        images.run(PROGRAM, "-c", "-f", new)

    def start(self) -> None:
        """Start a process with the configuration of `check`, which replaces the present one.

        Raises `VirtDriverError`: then the present one continues.
        """
        pid, further = self.pid(), list[str]()
        if pid is not None:
            states = self.ask("show servers state").strip()
            files.write_atomically(self.place.states, f"{states}\n".encode())
            further = ["-x", self.place.socket, "-sf", str(pid)]
        os.replace(self._path(_NEW), self._path(CONFIGURATION))
        started = [PROGRAM, "-D", "-f", self._path(CONFIGURATION), "-p", self._path(PID), *further]
        try:
            images.run(*self._outside(), *started)
        except exceptions.VirtDriverError:
            files.remove(self._path(CONFIGURATION))  # so that it is needed again
            raise

    def needs(self, text: str) -> bool:
        """Check whether a process with this configuration has to be started."""
        with contextlib.suppress(FileNotFoundError), open(self._path(CONFIGURATION), "rb") as file:
            return file.read() != text.encode() or self.pid() is None
        return True

    def _outside(self) -> list[str]:
        """Return the beginning of the command that starts the process: with systemd, a service of its own."""
        if not net_namespaces.has_manager():
            limits = [f"--as={_MEMORY}", "--core=0"]
            return [*namespaces.inside(self._id), "prlimit", *limits]
        properties = (
            "Type=forking",
            f"PIDFile={self._path(PID)}",
            f"NetworkNamespacePath={net_namespaces.DIRECTORY}/{namespaces.name_of(self._id)}",
            f"MemoryMax={_MEMORY}",
            "LimitCORE=0",
            f"LimitNOFILE={2 * self.place.connections + _MORE_FILES}",
        )
        words = [f"--property={text}" for text in properties]
        return ["systemd-run", "--quiet", "--collect", "--slice=nova-lite-load-balancers", *words, "--"]

    def pid(self) -> int | None:
        """Return the number of the process, None if it does not run."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            with open(self._path(PID)) as file:
                pid = int(file.read().split()[0])
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if self._path(CONFIGURATION).encode() in file.read().split(b"\0"):
                    return pid
        return None

    def stop(self) -> None:
        """End the process with its connections, and former processes that still have some."""
        mine = self._path(CONFIGURATION).encode()
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
                if mine in file.read().split(b"\0"):
                    os.kill(int(path.split(os.sep)[2]), signal.SIGTERM)
        for path in (self._path(CONFIGURATION), self._path(PID), self.place.states, self.place.socket):
            files.remove(path)
        self.remove_certificates([])

    def ask(self, command: str) -> str:
        """Return the reply to a command. Raises `VirtDriverError`."""
        parts = []
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_TIMEOUT)
                connection.connect(self.place.socket)
                connection.sendall(f"{command}\n".encode("ascii"))
                while part := connection.recv(65536):
                    parts.append(part)
        except OSError as error:
            raise exceptions.VirtDriverError(reason=f"{PROGRAM} does not answer: {error}") from error
        return b"".join(parts).decode(errors="replace")


def _connections() -> int:
    """Return the number of connections that this machine's limit of open files allows."""
    _, files_allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_allowed == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, (files_allowed - _MORE_FILES) // 2))


def problem() -> str:
    """Return why this host cannot run such processes; "": it can."""
    for program in (PROGRAM, "ip", "nsenter", "prlimit"):
        if shutil.which(program) is None:
            return f"{program} is missing on this host"
    return "" if os.geteuid() == 0 else "the compute daemon does not run as root"
