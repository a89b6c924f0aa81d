"""Power states of guests."""

from __future__ import annotations

import dataclasses

from nova_lite.base import exceptions
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.domain.events import EventRelay
from nova_lite.virt.libvirt.domain.launch import Launcher
from nova_lite.virt.libvirt.domain.rescue import RescueBoot
from nova_lite.virt.libvirt.records import file_errors

SOFT = "SOFT"


@dataclasses.dataclass(eq=False)
class GuestPower(HostPart, abilities.Power):
    _launcher: Launcher
    _rescue: RescueBoot
    _events: EventRelay

    def on(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if self._rescue.is_rescued(instance_uuid) and info.power_state != PowerState.RUNNING:
            with file_errors():
                self._rescue.restore(instance_uuid)
        self._launcher.start(domain, instance_uuid)

    def off(self, instance_uuid: str, timeout: int) -> None:
        domain, _ = self._domains.get(instance_uuid)
        with self._events.watch(instance_uuid) as changed:
            is_off = self._domains.shut_down(domain, instance_uuid, timeout, changed)
        if not is_off:
            self._domains.cut_power(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Turn the guest off and on. libvirt's own reboot does not show the result. A suspended guest starts afresh."""
        domain, _ = self._domains.get(instance_uuid)
        self._launcher.drop_memory(domain)
        self.off(instance_uuid, timeout if reboot_type == SOFT else 0)
        self.on(instance_uuid)


@dataclasses.dataclass(eq=False)
class GuestStandby(HostPart, abilities.Standby):
    _power: GuestPower

    def pause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state != PowerState.PAUSED:
            self._connection.call(domain.suspend)

    def unpause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.PAUSED:
            self._domains.resume(domain)

    def suspend(self, instance_uuid: str) -> None:
        """Save the guest's memory to libvirt's own file. The next start restores it."""
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.RUNNING or not self._connection.call(domain.hasManagedSaveImage, 0):
            self._domains.save_memory(domain)

    def resume(self, instance_uuid: str) -> None:
        self._power.on(instance_uuid)


@dataclasses.dataclass(eq=False)
class GuestRescue(HostPart, abilities.Rescue):
    _launcher: Launcher
    _power: GuestPower
    _boot: RescueBoot

    @file_errors()
    def start(self, spec: abilities.SpawnSpec, timeout: int) -> None:
        instance_uuid = spec.instance.uuid
        domain, _ = self._domains.get(instance_uuid)
        self._launcher.drop_memory(domain)
        self._power.off(instance_uuid, timeout)
        self._boot.define(spec)
        try:
            self._launcher.start(domain, instance_uuid)
        except exceptions.NovaLiteException:
            self._domains.cut_power(domain)
            self._boot.restore(instance_uuid)
            raise

    def end(self, instance_uuid: str) -> None:
        self._power.off(instance_uuid, 0)
        self._power.on(instance_uuid)
