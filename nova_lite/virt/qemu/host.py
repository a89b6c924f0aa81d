"""Parts that most abilities need, and guests as they run: their state, their start and their end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import QemuTiming
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.libvirt.disks import disk_locks
from nova_lite.virt.libvirt.disks.disks import Disk
from nova_lite.virt.libvirt.records import Records, file_errors
from nova_lite.virt.qemu import command_line, console_logs
from nova_lite.virt.qemu.command_line import Setting
from nova_lite.virt.qemu.guest import Definitions, Guest
from nova_lite.virt.qemu.networks import Bridges
from nova_lite.virt.qemu.processes import Processes
from nova_lite.virt.qemu.qmp import Monitor, MonitorGone

#: Memory of a suspended guest, and the mark of a guest that has to run: the boot of the machine when it was started.
MEMORY, RUNS = "memory", "runs"
BOOT_ID = "/proc/sys/kernel/random/boot_id"

#: States of qemu in which the guest is off, or has crashed. All others but running are pauses.
_OFF, _CRASHED = ("shutdown",), ("internal-error", "guest-panicked")


@dataclasses.dataclass(eq=False)
class Host:
    """A host with qemu. ``setting`` is that of guests that start from now on."""

    conf: cfg.ConfigOpts
    timing: QemuTiming
    records: Records
    definitions: Definitions
    processes: Processes
    bridges: Bridges
    setting: Setting

    # --- state

    def info(self, guest: Guest) -> DomainInfo:
        """Describe a guest."""
        status = self.status(guest)
        state = PowerState.RUNNING if status == "running" else PowerState.PAUSED
        crashed = status in _CRASHED
        if status in _OFF or crashed or not status:
            state = PowerState.SHUTDOWN
            crashed = crashed or (not status and self._should_run(guest))
        return DomainInfo(
            uuid=guest.uuid,
            generation=guest.generation,
            power_state=state,
            crashed=crashed,
            halted=status == "watchdog",
        )

    def status(self, guest: Guest) -> str:
        """Return qemu's word for the state of a guest, "" without a process. A silent qemu counts as running.

        A guest that has turned itself off needs no process any more, unless its disks are being copied.
        """
        with file_errors():
            if not self.is_running(guest):
                return ""
        try:
            with self.monitor(guest) as monitor:
                status = str(monitor.execute("query-status")["status"])
                if status in _OFF and not monitor.execute("query-jobs"):
                    files.remove(self.definitions.path(guest.uuid, RUNS))
                    monitor.execute("quit")
                return status
        except MonitorGone as error:
            # A process whose monitor has ended is ending, too.
            is_there = error.silent or not self.processes.has_ended(self.records.directory(guest.uuid))
            return "running" if is_there else ""

    def is_running(self, guest: Guest) -> bool:
        """Check whether a guest has a process. A guest that has just turned itself off still has it."""
        return self.processes.is_running(self.records.directory(guest.uuid))

    def is_on(self, guest: Guest) -> bool:
        return self.status(guest) not in ("", *_OFF, *_CRASHED)

    def _should_run(self, guest: Guest) -> bool:
        """Check whether nothing but an end of its process has stopped a guest since the machine has started."""
        with contextlib.suppress(FileNotFoundError), open(self.definitions.path(guest.uuid, RUNS)) as file:
            return file.read() == _boot_id()
        return False

    @contextlib.contextmanager
    def monitor(self, guest: Guest) -> Iterator[Monitor]:
        """Yield a connection to the monitor of a guest. Raises `MonitorGone`."""
        with self.processes.monitor(self.records.directory(guest.uuid)) as monitor:
            yield monitor

    # --- start and end

    def start(self, guest: Guest, paused: bool = False) -> None:
        """Start a guest, unless it runs. Restores its memory if it was suspended. Raises `InstancePowerOnFailure`."""
        if not self.is_on(guest):
            self.stop(guest)
            self._launch(guest)
        if not paused:
            with self.monitor(guest) as monitor:
                monitor.execute("cont")
            if self.status(guest) != "running":
                raise exceptions.InstancePowerOnFailure(instance_uuid=guest.uuid, reason="it does not run")

    @file_errors()
    def _launch(self, guest: Guest) -> None:
        directory = self.records.directory(guest.uuid)
        disk_locks.require_free(guest.uuid, directory)
        for vif in guest.vifs:
            self.bridges.plug(vif)
        for disk in guest.disks:
            self.give(disk)
        for path in (guest.direct_boot.kernel, guest.direct_boot.ramdisk) if guest.direct_boot else ():
            if path:
                self.processes.give(path, shared=True)
        log = console_logs.prepare(directory)
        self.processes.give(log)
        arguments = command_line.arguments(guest, self.setting, log)
        memory = self.definitions.path(guest.uuid, MEMORY)
        with contextlib.ExitStack() as opened:
            descriptors = []
            if os.path.exists(memory):
                descriptors = [opened.enter_context(open(memory, "rb")).fileno()]
                arguments += ["-incoming", f"fd:{descriptors[0]}"]
            self.processes.start(directory, guest.uuid, arguments, descriptors)
        self._mark(guest)
        if descriptors:
            self._await_memory(guest)
            files.remove(memory)

    def _await_memory(self, guest: Guest) -> None:
        deadline = time.monotonic() + self.timing.memory
        while (status := self.status(guest)) == "inmigrate":
            if time.monotonic() >= deadline:
                break
            time.sleep(self.timing.poll)
        if status not in ("paused", "prelaunch", "postmigrate", "running"):
            self.stop(guest)
            raise exceptions.InstancePowerOnFailure(
                instance_uuid=guest.uuid, reason=f"its memory cannot be restored: {status or 'its qemu has ended'}"
            )

    def _mark(self, guest: Guest) -> None:
        files.write_atomically(self.definitions.path(guest.uuid, RUNS), _boot_id().encode(), durable=False)

    def give(self, disk: Disk) -> None:
        """Let qemu open a disk, and read the files below it."""
        self.processes.give(disk.path)
        for file in disk.below or ():
            self.processes.give(file.path, shared=True)

    @file_errors()
    def stop(self, guest: Guest) -> None:
        """Cut the power of a guest."""
        files.remove(self.definitions.path(guest.uuid, RUNS))
        self.processes.stop(self.records.directory(guest.uuid), guest.uuid)

    def shut_down(self, guest: Guest, timeout: float) -> None:
        """Press the guest's power button until it is off. After ``timeout`` seconds, cut its power."""
        deadline, press_at = time.monotonic() + timeout, 0.0
        while timeout and self.is_on(guest) and time.monotonic() < deadline:
            if time.monotonic() >= press_at:
                press_at = time.monotonic() + self.timing.press_again
                with contextlib.suppress(MonitorGone), self.monitor(guest) as monitor:
                    monitor.execute("system_powerdown")
            time.sleep(self.timing.poll)
        self.stop(guest)


@dataclasses.dataclass(eq=False)
class Part:
    """An ability of the driver."""

    _host: Host


def _boot_id() -> str:
    with open(BOOT_ID) as file:
        return file.read()
