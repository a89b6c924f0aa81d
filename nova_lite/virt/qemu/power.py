"""Power states of guests."""

from __future__ import annotations

import dataclasses
import os
import time

from nova_lite.base import exceptions, files
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.records import file_errors
from nova_lite.virt.qemu.guest import Guest
from nova_lite.virt.qemu.host import MEMORY, Part

SOFT = "SOFT"


@dataclasses.dataclass(eq=False)
class GuestPower(Part, abilities.Power):
    def on(self, instance_uuid: str) -> None:
        self._host.start(self._host.definitions.get(instance_uuid))

    def off(self, instance_uuid: str, timeout: int) -> None:
        self._host.shut_down(self._host.definitions.get(instance_uuid), timeout)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Turn the guest off and on. A suspended guest starts afresh."""
        with file_errors():
            files.remove(self._host.definitions.path(instance_uuid, MEMORY))
        self.off(instance_uuid, timeout if reboot_type == SOFT else 0)
        self.on(instance_uuid)


@dataclasses.dataclass(eq=False)
class GuestStandby(Part, abilities.Standby):
    def pause(self, instance_uuid: str) -> None:
        self._execute(instance_uuid, "stop")

    def unpause(self, instance_uuid: str) -> None:
        self._execute(instance_uuid, "cont")

    def _execute(self, instance_uuid: str, command: str) -> None:
        with self._host.monitor(self._host.definitions.get(instance_uuid)) as monitor:
            monitor.execute(command)

    @file_errors()
    def suspend(self, instance_uuid: str) -> None:
        """Write the guest's memory to a file. The next start restores it."""
        guest = self._host.definitions.get(instance_uuid)
        path = self._host.definitions.path(instance_uuid, MEMORY)
        if not self._host.is_on(guest):
            if os.path.exists(path):
                return
            raise exceptions.VirtDriverError(reason="the guest is off")
        unfinished = self._host.definitions.path(instance_uuid, f"{files.TEMPORARY}{MEMORY}")
        try:
            with open(unfinished, "wb", opener=files.private_opener) as file:
                self._save(guest, file.fileno())
                os.fsync(file.fileno())
            os.rename(unfinished, path)
        finally:
            files.remove(unfinished)
        self._host.stop(guest)

    def _save(self, guest: Guest, descriptor: int) -> None:
        """Save the memory of a guest that stands still meanwhile. After a failure it runs again."""
        with self._host.monitor(guest) as monitor:
            monitor.execute("stop")
            monitor.execute("getfd", {"fdname": MEMORY}, descriptor)
            monitor.execute("migrate", {"uri": f"fd:{MEMORY}"})
        while (status := self._progress(guest)) != "completed":
            if status in ("failed", "cancelled"):
                with self._host.monitor(guest) as monitor:
                    monitor.execute("cont")
                raise exceptions.VirtDriverError(reason="qemu cannot save the guest's memory")
            time.sleep(self._host.timing.poll)

    def _progress(self, guest: Guest) -> str:
        with self._host.monitor(guest) as monitor:
            return str(monitor.execute("query-migrate").get("status"))

    def resume(self, instance_uuid: str) -> None:
        self._host.start(self._host.definitions.get(instance_uuid))
