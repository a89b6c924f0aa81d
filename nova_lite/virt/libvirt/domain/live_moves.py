"""Moves of running guests, at the source and at the destination."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import LiveDestination, LiveSource, MigrationControl, MigrationProgress, is_encrypted
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import layers, transfer
from nova_lite.virt.libvirt.disks.disks import ROLES, ROOT, encrypts
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.secrets import OwnKeys, VolumeSecrets
from nova_lite.virt.libvirt.domain import live_migration
from nova_lite.virt.libvirt.domain.consoles import Consoles
from nova_lite.virt.libvirt.domain.guests import HostGuests, undoing
from nova_lite.virt.libvirt.domain.launch import hardware_of
from nova_lite.virt.libvirt.host.machine import HostMachine
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers, own_address
from nova_lite.virt.libvirt.records import file_errors


@dataclasses.dataclass(eq=False)
class LiveMoves(HostPart, abilities.LiveMoves):
    _machine: HostMachine
    _guests: HostGuests
    _consoles: Consoles
    _moved: MovedDisks
    _backups: DiskBackups
    _peers: MigrationPeers
    _secrets: VolumeSecrets
    _pool: PoolDisks

    def check_source(self, instance_uuid: str) -> LiveSource:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state not in (PowerState.RUNNING, PowerState.PAUSED):
            raise exceptions.MigrationPreCheckError(reason="the guest does not run")
        xml = self._connection.call(domain.XMLDesc, 0)
        with file_errors():
            directory = self._records.directory(instance_uuid)
            found = live_migration.describe_source(self._conf, xml, directory)
            has_layers = bool(layers.names_below(os.path.join(directory, ROOT)))
        sizes = {name: self._capacity(domain, instance_uuid, name) for name in found.disks}
        cpu, cpu_xml = self._machine.cpus.guest(xml)
        key = records.pooled_in(self._records.directory(instance_uuid))
        return msgspec.structs.replace(
            found,
            disks=sizes,
            has_layers=has_layers,
            address=own_address(self._conf),
            host=self._host,
            encrypts=self._conf.libvirt.live_migration_tls,
            guest_cpu=cpu,
            cpu_xml=cpu_xml,
            pooled=None if key is None else self._pool.offer(key),
        )

    def _capacity(self, domain: Any, instance_uuid: str, name: str) -> int:
        """Return the capacity of one disk in bytes, as the guest sees it."""
        path = os.path.join(self._records.directory(instance_uuid), name)
        return int(self._connection.call(domain.blockInfo, path, 0)[0])

    def check_destination(self, source: LiveSource) -> None:
        self._machine.cpus.check(source)

    def prepare(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        instance_uuid = spec.instance.uuid
        if source.driver != transfer.DRIVER:
            raise exceptions.MigrationPreCheckError(reason=f"the guest is one of driver {source.driver}")
        live_migration.check_encryption(self._conf, source, self._host)
        if self._guests.is_running(spec):
            raise exceptions.MigrationPreCheckError(reason="it runs at the destination already")
        with undoing(instance_uuid) as undo:
            undo("its files", self._records.remove)
            directory = self._create(spec, source)
            paths, whole = self._moved.make_ready(directory, spec, source)
            below = self._moved.below(paths[ROOT]) if ROOT in paths else ()
            if source.pooled is not None:
                key = records.key_of(instance_uuid, spec.generation)
                paths |= {disk: self._pool.spec(key, disk) for disk in source.pooled.images}
            undo("its access", self._peers.close)
            self._peers.open(instance_uuid, source.address)
            undo("its secrets", self._secrets.forget_incoming)
            encrypted = [volume_id for volume_id, item in spec.volumes.items() if is_encrypted(item)]
            roles = [ROLES[name] for name in source.disks] if encrypts(spec) else []
            own = OwnKeys(instance_uuid, hardware_of(spec).tpm is not None, roles)
            self._secrets.load_for_incoming(encrypted, own)
            spec.fence()
        listeners = self._consoles.listeners()
        return LiveDestination(
            driver=transfer.DRIVER,
            host=self._host,
            generation=spec.generation,
            address=own_address(self._conf),
            paths=paths,
            whole=whole,
            vnc_listen=listeners.vnc or "",
            spice_listen=listeners.spice.address if listeners.spice else "",
            serial_listen=listeners.serial.host if listeners.serial else "",
            serial_port=listeners.serial.port if listeners.serial else None,
            serial_tls=listeners.serial is not None and listeners.serial.tls,
            numa=spec.instance.numa,
            pci=spec.instance.pci or [],
            shared_cpus=self._machine.properties.shared_cpus,
            below=[(file.path, file.format) for file in below],
        )

    def _create(self, spec: SpawnSpec, source: LiveSource) -> str:
        """Create the guest's directory. Its disks in a pool stay the source's until `finish`."""
        instance_uuid, pooled = spec.instance.uuid, source.pooled
        taken = None
        if pooled is not None:
            self._pool.require_same(pooled, instance_uuid)
            taken = records.TakenFrom(source.host, records.parts_of(pooled.key)[1], "")
        return self._records.create(
            instance_uuid,
            spec.generation,
            list(spec.images),
            beside=True,
            pooled=pooled is not None,
            taken=taken,
        )

    def migrate(
        self, instance_uuid: str, destination: LiveDestination, watch: Callable[[MigrationProgress], MigrationControl]
    ) -> None:
        domain, _ = self._domains.get(instance_uuid)
        # The destination has no checkpoints, and records no changes for them.
        self._backups.forget(domain)
        migrator = live_migration.LiveMigrator(self._conf, self._connection, instance_uuid, destination)
        key, there = self._keys(instance_uuid, destination)
        if key is not None:
            self._pool.rename(key, there)
        try:
            migrator.run(domain, watch)
        except (exceptions.MigrationFailed, exceptions.MigrationAborted, exceptions.MigrationPreCheckError):
            if key is not None:
                self._pool.rename(there, key)
            raise

    def _keys(self, instance_uuid: str, destination: LiveDestination) -> tuple[str | None, str]:
        """Return the keys of the disks in a pool, here and at the destination."""
        here = records.pooled_in(self._records.directory(instance_uuid))
        return here, records.key_of(instance_uuid, destination.generation)

    def settle(self, instance_uuid: str, destination: LiveDestination) -> bool:
        has_moved = live_migration.LiveMigrator(self._conf, self._connection, instance_uuid, destination).settle()
        if not has_moved:
            transfer.withdraw(self._records.directory(instance_uuid))
            key, there = self._keys(instance_uuid, destination)
            if key is not None:
                self._pool.rename(there, key)
        return has_moved

    def has_arrived(self, instance_uuid: str) -> bool:
        domain, _ = self._domains.get(instance_uuid)
        return live_migration.has_arrived(self._connection.call, domain)

    def finish(self, instance_uuid: str) -> None:
        with file_errors():
            self._records.own(instance_uuid)
        self._peers.close(instance_uuid)
        self._secrets.forget_incoming(instance_uuid)

    def take_over_paused(self, instance_uuid: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        live_migration.run_briefly(self._connection, domain)
