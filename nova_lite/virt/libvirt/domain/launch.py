"""Definitions of guests, and their starts."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from nova_lite import hardware
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disk_locks, rbd_watchers, transfer
from nova_lite.virt.libvirt.disks.disks import DiskSet
from nova_lite.virt.libvirt.disks.secrets import OwnKeys, VolumeSecrets
from nova_lite.virt.libvirt.disks.volumes import disks_of, encrypted_in, encrypted_roles_in
from nova_lite.virt.libvirt.domain import guest_xml, pci_xml, shares_xml
from nova_lite.virt.libvirt.domain.consoles import Consoles
from nova_lite.virt.libvirt.host.machine import HostMachine


@dataclasses.dataclass(eq=False)
class Launcher(HostPart):
    """Describes guests, starts and removes them, and drops the memory of suspended ones."""

    _machine: HostMachine
    _consoles: Consoles
    _secrets: VolumeSecrets

    def xml(self, spec: SpawnSpec, directory: str, disks: DiskSet) -> str:
        """Return the definition of a guest."""
        self._machine.follow_baseline()
        cache = self._conf.libvirt.tb_cache_mb
        listeners = self._consoles.listeners()
        return guest_xml.guest_xml(
            spec,
            self._host,
            directory,
            disks,
            self._machine.virt_type,
            cache,
            listeners,
            hardware=hardware_of(spec),
            given=self._machine.properties,
        )

    def start(
        self,
        domain: Any,
        instance_uuid: str,
        paused: bool = False,
        check: Callable[[], None] = lambda: None,
        memory: str | None = None,
    ) -> None:
        """Start a domain once its disks are free. ``check`` is called while it waits, and raises to end that.

        ``memory``: a file from which the guest continues.
        """
        encrypted: list[str] = []
        own = OwnKeys(instance_uuid)
        if not self._connection.call(domain.isActive):
            # Its disks change from now on, so no other host may fetch them any more.
            directory = self._records.directory(instance_uuid)
            transfer.withdraw(directory)
            disk_locks.require_free(instance_uuid, directory)
            xml = self._domains.description(domain)
            shares_xml.require(ET.fromstring(xml), self._host)  # noqa: S314 libvirt's own
            rbd_watchers.wait_until_free(instance_uuid, disks_of(xml), check, self._context.timing)
            self._consoles.ensure_free_port(domain, xml)
            self._machine.vgpus.make(pci_xml.vgpus_in(xml))
            encrypted = encrypted_in(xml)
            own = OwnKeys(instance_uuid, guest_xml.has_tpm(xml), encrypted_roles_in(xml))
        saved = None
        if memory is not None:
            saved = (memory, self._consoles.saved_xml(memory, self._domains.description(domain)))
        with self._secrets.loaded(encrypted, own):
            self._domains.start(domain, instance_uuid, self._context.timing.start_wait, paused, saved)

    def remove(self, instance_uuid: str) -> None:
        """Cut a guest's power, and remove its domain and its vGPUs. Do nothing if it is missing or not ours."""
        if xml := self._domains.remove(instance_uuid):
            self._machine.vgpus.remove(pci_xml.vgpus_in(xml))

    def drop_memory(self, domain: Any) -> None:
        """Drop the saved memory of a suspended guest."""
        call = self._connection.call
        if call(domain.hasManagedSaveImage, 0):
            self._connection.call_checked(lambda: not call(domain.hasManagedSaveImage, 0), domain.managedSaveRemove, 0)


def hardware_of(spec: SpawnSpec) -> hardware.Hardware:
    """Return the hardware of a guest. Unsupported requests of a server that was accepted by an older version are
    ignored."""
    return hardware.resolve(spec.instance.flavor, spec.image, strict=False)
