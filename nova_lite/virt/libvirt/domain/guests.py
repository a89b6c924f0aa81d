"""Guests of this host: they are created, found and destroyed."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import GuestReport
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.abilities import DomainInfo, SpawnSpec
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disk_locks
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE, DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.left_disks import LeftDisksFinder
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.disks.tpm_states import TPMStates
from nova_lite.virt.libvirt.domain import guest_devices
from nova_lite.virt.libvirt.domain.launch import Launcher, hardware_of
from nova_lite.virt.libvirt.domain.rescue import RescueBoot
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.libvirt.host.machine import HostMachine
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers
from nova_lite.virt.libvirt.records import file_errors, key_of, pooled_in

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class HostGuests(HostPart, abilities.Guests):
    """The guests. A guest is its domain and its directory."""

    _machine: HostMachine
    _launcher: Launcher
    _disks: DiskMaker
    _left: LeftDisksFinder
    _moved: MovedDisks
    _peers: MigrationPeers
    _secrets: VolumeSecrets
    _tpms: TPMStates
    _pool: PoolDisks

    def all(self) -> list[DomainInfo]:
        return self._domains.all()

    def get(self, instance_uuid: str) -> DomainInfo:
        return self._domains.get(instance_uuid)[1]

    def leftovers(self) -> set[str]:
        traces = self._records.uuids()
        return traces - {info.uuid for info in self._domains.all()}

    def devices(self, instance_uuid: str) -> GuestReport:
        domain, info = self._domains.get(instance_uuid)
        xml = self._connection.call(domain.XMLDesc, 0)
        cpu, _ = (None, "") if info.power_state == PowerState.SHUTDOWN else self._machine.cpus.guest(xml)
        return guest_devices.describe(xml, cpu)

    def spawn(self, spec: SpawnSpec) -> None:
        if self.is_running(spec):
            return
        instance_uuid = spec.instance.uuid
        self._machine.check_traits(hardware_of(spec))
        with undoing(instance_uuid) as undo:
            undo("its files", self._records.remove)
            xml = self._launcher.xml(spec, *self._make_or_take(spec))
            spec.fence()
            undo("its domain", self._launcher.remove)
            started = time.monotonic()
            domain = self._domains.define(xml)
            self._name_devices(spec)
            self._launcher.start(domain, instance_uuid, spec.plugged is not None, spec.still_wanted)
            if spec.plugged is not None:
                spec.plugged()
                self._domains.resume(domain)
        kvm.explain_slow_start(instance_uuid, time.monotonic() - started, self._machine.capabilities())

    def _name_devices(self, spec: SpawnSpec) -> None:
        """Report the addresses of devices that metadata name, and make the config drive again with them.

        The domain has them now, and the guest has not read its metadata yet.
        """
        directory = self._records.directory(spec.instance.uuid)
        path, key = os.path.join(directory, CONFIG_DRIVE), pooled_in(directory)
        is_named = any(vif.tag or vif.vif_details.get("vlan") for vif in spec.vifs)
        if not is_named and not any(device.tag for device in spec.instance.block_devices):
            return
        devices = self.devices(spec.instance.uuid)
        instance = msgspec.structs.replace(spec.instance, guest_devices=devices)
        renewed = msgspec.structs.replace(spec, instance=instance)
        if spec.disks is None and os.path.exists(path):
            self._disks.config_drives.make(path, renewed)
        elif spec.disks is None and key is not None and self._disks.config_drives.is_wanted(spec):
            self._pool.make_config_drive(key, directory, renewed)
        spec.placed(devices)

    def _make_or_take(self, spec: SpawnSpec) -> tuple[str, DiskSet]:
        """Return the directory and the disks of a new guest: disks that another host has left, or new disks."""
        uuid = spec.instance.uuid
        if spec.disks is not None:
            directory = self._left.take(uuid, spec.generation, list(spec.images), spec.disks)
            if directory is not None:
                disk_locks.wait_until_free(uuid, directory, spec.still_wanted, self._context.timing)
                return directory, self._moved.adopt(directory, spec, None, is_taken=True)
        pooled, beside = self._pool.is_used, spec.disks is not None
        directory = self._records.create(uuid, spec.generation, list(spec.images), beside=beside, pooled=pooled)
        if pooled:
            return directory, self._pool.make(key_of(uuid, spec.generation), directory, spec)
        return directory, self._disks.make(directory, spec)

    def is_running(self, spec: SpawnSpec) -> bool:
        """Check whether the domain already runs at this generation. Remove an older or incomplete domain."""
        instance_uuid = spec.instance.uuid
        try:
            info = self.get(instance_uuid)
        except exceptions.DomainNotFound:
            if self._domains.is_foreign(instance_uuid):
                raise exceptions.VirtDriverError(
                    reason=f"a domain with uuid {instance_uuid} exists that is not host {self._host}'s"
                ) from None
        else:
            if info.generation > spec.generation:
                raise exceptions.Fenced(instance_uuid=instance_uuid, generation=info.generation)
            if info.generation == spec.generation and info.power_state == PowerState.RUNNING:
                return True
        self.destroy(instance_uuid)
        return False

    def destroy(self, instance_uuid: str) -> None:
        self._launcher.remove(instance_uuid)
        with file_errors():
            if self._tpms.has(instance_uuid) and not self._domains.has(instance_uuid):
                self._tpms.remove(instance_uuid)
            self._records.remove(instance_uuid)
        self._peers.close(instance_uuid)
        self._secrets.forget_incoming(instance_uuid)


@dataclasses.dataclass(eq=False)
class GuestDefinitions(HostPart, abilities.Definitions):
    """Domains that are defined again."""

    _launcher: Launcher
    _moved: MovedDisks
    _rescue: RescueBoot

    @file_errors()
    def recreate(self, spec: SpawnSpec) -> None:
        instance_uuid = spec.instance.uuid
        if self._records.generation(instance_uuid) != spec.generation:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        if self._domains.has(instance_uuid):
            raise exceptions.VirtDriverError(reason=f"a domain {instance_uuid} exists that is not host {self._host}'s")
        self._rescue.forget(instance_uuid)
        xml = self._xml(spec)
        spec.fence()
        self._domains.define(xml)

    @file_errors()
    def renew(self, spec: SpawnSpec) -> None:
        """Replace the domain's definition, which libvirt does in one step. Firmware variables stay."""
        instance_uuid = spec.instance.uuid
        domain, info = self._domains.get(instance_uuid)
        if info.generation != spec.generation or self._records.generation(instance_uuid) != spec.generation:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        self._launcher.drop_memory(domain)
        self._domains.cut_power(domain)
        self._domains.define(self._xml(spec))
        self._rescue.forget(instance_uuid)

    def _xml(self, spec: SpawnSpec) -> str:
        directory = self._records.directory(spec.instance.uuid)
        return self._launcher.xml(spec, directory, self._moved.adopt(directory, spec, None))


@contextlib.contextmanager
def undoing(instance_uuid: str) -> Iterator[Callable[[str, Callable[[str], None]], None]]:
    """Yield a function that notes how to remove something of a new guest. After a failure all of it is removed.

    A failing removal is left to `HostGuests.leftovers`, so that the first error is reported.
    """

    def remove(what: str, function: Callable[[str], None]) -> None:
        try:
            function(instance_uuid)
        except (exceptions.VirtDriverError, OSError) as error:
            LOG.error("After the failed spawn of %s %s could not be removed: %s", instance_uuid, what, error)

    with contextlib.ExitStack() as undo, file_errors():

        def note(what: str, function: Callable[[str], None]) -> None:
            undo.callback(remove, what, function)

        yield note
        undo.pop_all()
