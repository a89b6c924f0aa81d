"""Moves of guests that are off."""

from __future__ import annotations

import dataclasses
import os

import libvirt
import msgspec

from nova_lite.base import exceptions, files
from nova_lite.objects import DiskSource
from nova_lite.virt import abilities
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disks, layers, transfer
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.tpm_states import TPMStates
from nova_lite.virt.libvirt.domain.guests import HostGuests, undoing
from nova_lite.virt.libvirt.domain.launch import Launcher, hardware_of
from nova_lite.virt.libvirt.domain.power import GuestPower
from nova_lite.virt.libvirt.records import file_errors, key_of, pooled_in

#: File in the directory of a guest that is set aside: its domain.
DEFINITION = "domain.xml"


@dataclasses.dataclass(eq=False)
class ColdMoves(HostPart, abilities.Moves):
    _launcher: Launcher
    _guests: HostGuests
    _power: GuestPower
    _moved: MovedDisks
    _tpms: TPMStates
    _pool: PoolDisks

    def offer_disks(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Turn off the guest and offer the disks. Memory that was suspended to disk is lost, as with a power cut."""
        domain, _ = self._domains.get(instance_uuid)
        self._power.off(instance_uuid, timeout)
        self._launcher.drop_memory(domain)
        with file_errors():
            directory = self._records.directory(instance_uuid)
            self._tpms.save(instance_uuid, directory)
            return self._offer(directory)

    def _offer(self, directory: str) -> DiskSource:
        bases = [*self._records.images_in(directory), *layers.names_below(os.path.join(directory, disks.ROOT))]
        offered = transfer.offer(self._conf, directory, images=bases)
        key = pooled_in(directory)
        return offered if key is None else msgspec.structs.replace(offered, pooled=self._pool.offer(key))

    @file_errors()
    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Set the guest aside. Its definition is stored with its disks before it is removed from libvirt."""
        if self._records.aside(instance_uuid) is None:
            self._store_and_remove_domain(instance_uuid, timeout)
        return self._offer(self._records.set_aside(instance_uuid))

    def _store_and_remove_domain(self, instance_uuid: str, timeout: int) -> None:
        try:
            domain, _ = self._domains.get(instance_uuid)
        except exceptions.DomainNotFound:
            return
        self._power.off(instance_uuid, timeout)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        xml = self._connection.call(domain.XMLDesc, flags)
        self._tpms.save(instance_uuid, self._records.directory(instance_uuid))
        files.write_atomically(self._definition(instance_uuid), xml.encode())
        self._launcher.remove(instance_uuid)

    @file_errors()
    def restore(self, instance_uuid: str) -> None:
        self._records.restore_set_aside(instance_uuid)
        path = self._definition(instance_uuid)
        if os.path.exists(path) and not self._domains.has(instance_uuid):
            self._tpms.restore(instance_uuid, os.path.dirname(path))
            with open(path, encoding="utf-8") as file:
                self._domains.define(file.read())
        files.remove(path)

    @file_errors()
    def discard(self, instance_uuid: str) -> None:
        self._records.discard_set_aside(instance_uuid)
        self._records.discard_kept(instance_uuid)

    def _definition(self, instance_uuid: str) -> str:
        return os.path.join(self._records.directory(instance_uuid), DEFINITION)

    def finish(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Create the guest from the source's disks. A fetch that was killed is resumed."""
        instance_uuid = spec.instance.uuid
        resumed = self._records.generation(instance_uuid) == spec.generation and not self._domains.has(instance_uuid)
        if not resumed and self._guests.is_running(spec):
            return
        with undoing(instance_uuid) as undo:
            undo("its files", self._records.remove)
            if resumed:
                directory = self._records.directory(instance_uuid)
            else:
                directory = self._records.create(
                    instance_uuid,
                    spec.generation,
                    list(spec.images),
                    beside=True,
                    pooled=source.pooled is not None,
                )
            fetcher = transfer.Fetcher(self._conf, source, instance_uuid, directory, self._context.timing)
            fetcher.fetch()
            if source.pooled is not None:
                self._pool.require_same(source.pooled, instance_uuid)
                self._pool.clone(source.pooled.key, key_of(instance_uuid, spec.generation))
            xml = self._launcher.xml(spec, directory, self._moved.adopt(directory, spec, fetcher))
            spec.fence()
            tpm = hardware_of(spec).tpm
            self._tpms.restore(instance_uuid, directory, [tpm.version] if tpm else [])
            undo("its domain", self._launcher.remove)
            domain = self._domains.define(xml)
            if power_on:
                self._launcher.start(domain, instance_uuid)
