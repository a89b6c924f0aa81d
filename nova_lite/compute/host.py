"""What the jobs of one compute host share: its driver, fences, claims and locks, and how a domain is removed."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.base import exceptions, failpoints
from nova_lite.base.context import get_admin_context
from nova_lite.compute.claims import Claims
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.jobs import Jobs
from nova_lite.compute.reports import Retrier
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import ActionCommand, BlockDevice, Instance, VolumeSource, block_device
from nova_lite.operations.states import PowerState
from nova_lite.virt.driver import ComputeDriver, DomainInfo, Migrating
from nova_lite.volume.driver import VolumeBackend

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LocalHost:
    """This host: its name, driver, fences (on disk), jobs and claims (in memory)."""

    conf: cfg.ConfigOpts
    name: str
    driver: ComputeDriver
    conductor: ConductorRPC
    fences: FencingTokenStore
    claims: Claims
    jobs: Jobs
    retrier: Retrier
    images: ImageBackend
    snapshot_slots: threading.BoundedSemaphore
    volumes: VolumeBackend
    hypervisor_answers: Callable[[], bool] = lambda: True

    def domain(self, instance_uuid: str) -> DomainInfo | None:
        """The instance's domain, if it has one here."""
        try:
            return self.driver.get_info(instance_uuid)
        except exceptions.DomainNotFound:
            return None

    def require_answers(self) -> None:
        """Raises `HypervisorUnavailable` where a call of the driver would only hang."""
        if not self.hypervisor_answers():
            raise exceptions.HypervisorUnavailable(host=self.name, reason="it does not answer")

    def volume_paths(
        self, instance: Instance, still_wanted: Callable[[], None] = lambda: None
    ) -> dict[str, VolumeSource]:
        """Where the instance's volumes are, by id. Those of another service are waited for, as long as they are
        wanted, and their block devices say from then on which they are."""
        sources: dict[str, VolumeSource] = {}
        for device in block_device.volumes(instance.block_devices):
            source = self.volume_source(instance, device, still_wanted)
            sources[str(device.volume_id)] = source
        return sources

    def volume_source(
        self, instance: Instance, device: BlockDevice, still_wanted: Callable[[], None] = lambda: None
    ) -> VolumeSource:
        if not self.volumes.remote:
            return self.volumes.path(str(device.volume_id))
        connector = self.volumes.connector()
        uuid = instance.uuid
        connection = self.retrier.ask(
            f"Instance {uuid}: connection of volume {device.volume_id or device.uuid}",
            lambda: self.conductor.volume_connect(get_admin_context(), self.name, uuid, device.uuid, connector),
            still_wanted,
        )
        device.volume_id, device.volume_size = connection.volume_id, connection.size
        return self.volumes.connect(uuid, connection)

    def power_state(self, instance_uuid: str) -> int | None:
        info = self.domain(instance_uuid)
        return None if info is None else int(info.power_state)

    def is_complete(self, info: DomainInfo) -> bool:
        """Whether this domain is a finished build (call it with the instance's lock held).

        It is if that was noted, or if it runs: a daemon that was killed between making the domain and the note left
        it so. One that was given up on is not, whatever it does.
        """
        record = self.fences.get(info.uuid)
        if record.built_generation == info.generation:
            return True
        if info.power_state != PowerState.RUNNING or record.forbids(info.generation):
            return False
        try:
            self.fences.built(info.uuid, info.generation)
        except exceptions.Fenced:
            return False
        return True

    def is_open(self, instance_uuid: str, action_id: int, position: int | None, request_id: str) -> bool:
        """Ask, for as long as it takes, whether the conductor waits for an order that seems to be late: ids that were
        seen here come again from a database that lost its last commits."""

        def ask() -> bool:
            try:
                return self.conductor.order_is_open(get_admin_context(), self.name, action_id, position, request_id)
            except exceptions.ServiceTooOld:
                return False

        return self.retrier.ask(f"Instance {instance_uuid}: whether an order is late", ask, lambda: None)

    def require_domain(self, ticket: ActionCommand) -> None:
        """Raises `DomainNotFound` unless the domain is the one that the conductor means, at just that generation, and
        `DomainHeld` while that is held back.

        That the conductor sends an order for it proves that its build ended.
        """
        found = self.driver.get_info(ticket.instance.uuid)
        if found.generation != ticket.generation:
            raise exceptions.DomainNotFound(instance_uuid=found.uuid)
        self.fences.check_not_held(found.uuid, found.generation)
        if not self.fences.get(found.uuid).forbids(found.generation):
            self.fences.built(found.uuid, found.generation)

    def remove(self, instance_uuid: str) -> None:
        """Destroy the domain and all that belongs to it; the instance's lock is held. Nothing there is fine.

        Where a late message could build it again, the fence is written before this is called.
        """
        failpoints.reach("domain", "destroy", "before")
        self.driver.destroy(instance_uuid)
        failpoints.reach("domain", "destroy", "after")
        self.driver.unplug_vifs(instance_uuid)
        self.volumes.disconnect(instance_uuid)
        self.fences.removed(instance_uuid)
        self.claims.release(instance_uuid)

    def remove_all(self, instance_uuid: str) -> None:
        """`remove`, and what was set aside for a resize on this host."""
        self.remove(instance_uuid)
        if isinstance(self.driver, Migrating):
            self.driver.forget_aside(instance_uuid)

    def clear(self, instance_uuid: str) -> None:
        """`remove` what a build left, again until it worked: on return no domain is here. Raises `Stopping`.

        Where none was ever made, one try is enough: a disk or an interface that a broken hypervisor does not give back
        now is found by the domain reconciliation, and the build can go elsewhere meanwhile.
        """
        if self.fences.get(instance_uuid).is_here:
            self.retrier.insist(f"Instance {instance_uuid}: removal", lambda: self.remove(instance_uuid))
            return
        try:
            self.remove(instance_uuid)
        except Exception as error:
            LOG.warning("Instance %s: not all could be removed, it is tried again later: %s", instance_uuid, error)
            self.claims.release(instance_uuid)
