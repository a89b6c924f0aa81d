"""State that the jobs of one compute host share, and the removal of a domain."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ComputeTiming
from nova_lite.compute.claims import Claims
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.jobs import Jobs
from nova_lite.compute.reports import Retrier
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import (
    ActionCommand,
    BlockDevice,
    EncryptedDisk,
    GuestReport,
    Instance,
    VolumeKey,
    VolumeSource,
    block_device,
)
from nova_lite.operations.states import PowerState
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.driver import ComputeDriver
from nova_lite.volume.driver import VolumeBackend

LOG = logging.getLogger(__name__)

_NO_KEY_IN_TIME = "no conductor has sent it in time"


@dataclasses.dataclass(frozen=True)
class LocalHost:
    """A host: its name, driver, fencing token store (on disk), jobs and claims (in memory)."""

    conf: cfg.ConfigOpts
    name: str
    driver: ComputeDriver
    conductor: ConductorRPC
    fencing: FencingTokenStore
    claims: Claims
    jobs: Jobs
    retrier: Retrier
    images: ImageBackend
    snapshot_slots: threading.BoundedSemaphore
    volumes: VolumeBackend
    is_hypervisor_up: Callable[[], bool] = lambda: True
    timing: ComputeTiming = TIMING.compute
    #: None: any number of guests may leave at the same time.
    live_migration_slots: threading.BoundedSemaphore | None = None

    def domain(self, instance_uuid: str) -> DomainInfo | None:
        """Return the instance's domain, or None if it has none here."""
        try:
            return self.driver.guests.get(instance_uuid)
        except exceptions.DomainNotFound:
            return None

    def require_hypervisor(self) -> None:
        """Raise `HypervisorUnavailable` if a call of the driver would only hang."""
        if not self.is_hypervisor_up():
            raise exceptions.HypervisorUnavailable(host=self.name, reason="it does not answer")

    def volume_paths(
        self, instance: Instance, still_wanted: Callable[[], None] = lambda: None
    ) -> dict[str, VolumeSource]:
        """Return the sources of the instance's volumes, by volume id.

        For volumes of another service this waits for the connections while ``still_wanted`` does not raise. Then it
        stores their ids and sizes in the block devices.
        """
        sources: dict[str, VolumeSource] = {}
        for device in block_device.volumes(instance.block_devices):
            source = self.volume_source(instance, device, still_wanted)
            sources[str(device.volume_id)] = source
        return sources

    def volume_source(
        self, instance: Instance, device: BlockDevice, still_wanted: Callable[[], None] = lambda: None
    ) -> VolumeSource:
        if not self.volumes.remote:
            return self.local_source(self.volumes.path(str(device.volume_id)))
        connector = self.volumes.connector()
        uuid = instance.uuid
        connection = self.retrier.call(
            f"Instance {uuid}: connection of volume {device.volume_id or device.uuid}",
            lambda: self.conductor.volume_connect(get_admin_context(), self.name, uuid, device.uuid, connector),
            still_wanted,
        )
        device.volume_id, device.volume_size = connection.volume_id, connection.size
        device.multiattach, device.read_only = connection.multiattach, connection.read_only
        return self.volumes.connect(uuid, connection)

    def local_source(self, path: VolumeSource) -> VolumeSource:
        return EncryptedDisk(path=path) if isinstance(path, str) and self.volumes.is_encrypted(path) else path

    def volume_file(self, volume_id: str) -> str:
        """Return the path of a volume's file or device. Raises `NotImplementedByDriver` if it has none."""
        path = self.volumes.require(volume_id)
        if not isinstance(path, str):
            raise exceptions.NotImplementedByDriver(operation="copying a volume that is no file of its host")
        return path

    def volume_key(self, volume_id: str) -> VolumeKey:
        """Return the key of an encrypted volume, which only this process can open. Callers do not store it.

        Raises `VolumeKeyUnavailable`, also if no conductor replies in time.
        """
        late = exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason=_NO_KEY_IN_TIME)
        return self._key(f"Volume {volume_id}: query for its key", self.conductor.volume_key_get, volume_id, late)

    def tpm_key(self, instance_uuid: str) -> VolumeKey:
        """Return the key of the TPM of an instance here, as `volume_key` does. Raises `TPMKeyUnavailable`."""
        late = exceptions.TPMKeyUnavailable(instance_uuid=instance_uuid, reason=_NO_KEY_IN_TIME)
        what = f"Instance {instance_uuid}: query for the key of its TPM"
        return self._key(what, self.conductor.tpm_key_get, instance_uuid, late)

    def disk_key(self, instance_uuid: str, role: str) -> VolumeKey:
        """Return the key of an encrypted disk of an instance here, as `volume_key` does.

        Raises `DiskKeyUnavailable`.
        """
        late = exceptions.DiskKeyUnavailable(instance_uuid=instance_uuid, role=role, reason=_NO_KEY_IN_TIME)
        what = f"Instance {instance_uuid}: query for the key of its disk {role}"

        def get(context: RequestContext, host: str, owner: str, public_key: str) -> str:
            return self.conductor.disk_key_get(context, host, owner, role, public_key)

        return self._key(what, get, instance_uuid, late)

    def _key(
        self, what: str, get: Callable[[RequestContext, str, str, str], str], owner: str, late: Exception
    ) -> VolumeKey:
        """Return the key of a volume or an instance. ``late``: raised if no conductor replies in time."""
        private_key = sealing.new_private_key()
        deadline = time.monotonic() + self.timing.volume_key_wait

        def check() -> None:
            if time.monotonic() >= deadline:
                raise late

        box = self.retrier.call(
            what, lambda: get(get_admin_context(), self.name, owner, sealing.public_key(private_key)), check
        )
        return msgspec.json.decode(sealing.unseal(private_key, box), type=VolumeKey)

    def power_state(self, instance_uuid: str) -> int | None:
        info = self.domain(instance_uuid)
        return None if info is None else int(info.power_state)

    def guest_devices(self, instance: Instance) -> GuestReport | None:
        """Return the places of its interfaces and of its disks with a tag, and its processor; None: unknown."""
        try:
            found = self.driver.guests.devices(instance.uuid)
        except exceptions.VirtDriverError as error:
            LOG.warning("Instance %s: the places of its devices are unknown: %s", instance.uuid, error)
            return None
        return None if found is None else block_device.without_untagged(found, instance.flavor, instance.block_devices)

    def is_complete(self, info: DomainInfo) -> bool:
        """Check whether this domain is a complete build. The caller holds the instance's lock.

        It is complete if the store says so, or if it runs: the daemon may have been killed between creating the domain
        and recording it. A domain of a revoked generation is never complete.
        """
        record = self.fencing.get(info.uuid)
        if record.built_generation == info.generation:
            return True
        if info.power_state != PowerState.RUNNING or record.is_revoked(info.generation):
            return False
        try:
            self.fencing.mark_built(info.uuid, info.generation)
        except exceptions.Fenced:
            return False
        return True

    def is_command_open(self, instance_uuid: str, action_id: int, sequence: int | None, request_id: str) -> bool:
        """Query the conductor, for as long as necessary, whether it waits for a command that seems to be late.

        A database that lost its last commits may assign an id again. See ``docs/explanation/delivery-guarantees.md``.
        """

        def ask() -> bool:
            return self.conductor.is_command_open(get_admin_context(), self.name, action_id, sequence, request_id)

        return self.retrier.call(f"Instance {instance_uuid}: query for a late command", ask, lambda: None)

    def require_domain(self, command: ActionCommand) -> None:
        """Raise `DomainNotFound` unless the domain exists at exactly the command's generation, and `DomainHeld` while
        it is held.

        The conductor sends a command only after the build has ended, so the build is recorded as complete.
        """
        found = self.driver.guests.get(command.instance.uuid)
        if found.generation != command.generation:
            raise exceptions.DomainNotFound(instance_uuid=found.uuid)
        self.fencing.check_not_held(found.uuid, found.generation)
        if not self.fencing.get(found.uuid).is_revoked(found.generation):
            self.fencing.mark_built(found.uuid, found.generation)

    def remove(self, instance_uuid: str) -> None:
        """Destroy the domain and everything that belongs to it. The caller holds the instance's lock.

        A missing domain is no error. If a late message could build the instance again, revoke its generation
        beforehand.
        """
        self.driver.guests.destroy(instance_uuid)
        self.driver.networks.unplug(instance_uuid)
        self.volumes.disconnect(instance_uuid)
        self.fencing.mark_removed(instance_uuid)
        self.claims.release(instance_uuid)

    def own_disks(self, instance_uuid: str) -> None:
        """Make disks that another host has left this host's permanently. Call it when the conductor counts the instance
        as built here, or as deleted. A failure is harmless: the domain reconciliation repeats it.
        """
        if self.driver.shared_disks:
            try:
                self.driver.shared_disks.own(instance_uuid)
            except exceptions.VirtDriverError as error:
                LOG.warning("Instance %s: its disks are not this host's yet: %s", instance_uuid, error.message)

    def remove_all(self, instance_uuid: str) -> None:
        """`remove`, and also the old disks that a resize on this host has kept."""
        self.remove(instance_uuid)
        if self.driver.moves:
            self.driver.moves.discard(instance_uuid)

    def remove_with_retries(self, instance_uuid: str) -> None:
        """`remove` the remains of a build, and repeat until it succeeds: on return no domain is here. Raises
        `Stopping`.

        If no domain was ever created, one attempt is enough. The domain reconciliation finds a disk or interface that a
        broken hypervisor does not release now. Meanwhile another host can build the instance.
        """
        if self.fencing.get(instance_uuid).may_have_domain:
            self.retrier.call_until_done(f"Instance {instance_uuid}: removal", lambda: self.remove(instance_uuid))
            return
        try:
            self.remove(instance_uuid)
        except Exception as error:
            LOG.warning("Instance %s: removal failed, domain reconciliation repeats it: %s", instance_uuid, error)
            self.claims.release(instance_uuid)
