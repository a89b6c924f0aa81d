"""Live migration: its checks, and the row that shows its progress.

The guest runs all the time, and two hosts hold a claim. Until the source has reported, only its hypervisor knows where
the guest is. If no report comes, an undo queries the source, or the destination if the source is lost. A guest that
was handed over stays at the destination. A delete supersedes the migration, and both hosts destroy the guest. Lost at
most: the work of an aborted migration; the guest continues at the source.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts
from nova_lite.db.network import port_devices
from nova_lite.db.servers import claims, server_migrations
from nova_lite.hardware import pci
from nova_lite.objects import Flavor, Image
from nova_lite.operations import Step, migration_states, states

#: Status of the migration's row after a step.
_STATUS = {
    operations.CHECK: migration_states.PREPARING,
    operations.PREPARE: migration_states.RUNNING,
    operations.HAND_OVER: migration_states.POST_MIGRATING,
    operations.CLEAR: migration_states.COMPLETED,
}


class LiveMigrateHandler(OperationHandler):
    """Keeps the migration's row.

    ``payload``: the target ``host`` (None: the scheduler chooses), ``forced`` to bypass the filters, and whether to
    copy disks (``block``; None: if they are not shared).
    """

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        source = claims.place_of(instance)
        assert source is not None
        target = payload.get("host")
        if target is not None and not hosts.exists(uow, target):
            raise exceptions.ComputeHostUnknown(host=target)
        if target == source.host:
            raise exceptions.UnableToMigrateToSelf(instance_id=instance.uuid, host=target)
        if len(claims.held_hosts(uow, instance)) > 1:
            raise exceptions.InstanceInvalidState(
                method="os-migrateLive", instance_id=instance.uuid, attr="migration", state="unfinished"
            )
        flavor = msgspec.convert(instance.flavor, Flavor)
        image = msgspec.convert(instance.image, Image | None)
        wanted = pci.requests(uow.conf, flavor, image)
        pci.check_live_migration([*wanted, *port_devices.requests(uow, instance)])
        instance.request = {}
        if target is not None:
            forced = payload.get("forced")
            instance.request = {"forced_host": target} if forced else {"requested_destination": {"host": target}}
        kind = migration_states.LIVE_MIGRATION
        row = server_migrations.begin(uow, context, instance, kind, source, flavor)
        server_migrations.set_status(uow, row, migration_states.QUEUED)
        return {
            "source": source.described(),
            "flavor": instance.flavor,
            "image": instance.image,
            "boot_images": instance.boot_images,
            "block": payload.get("block"),
            "excluded": [source.host],
        }

    def on_claimed(self, uow: UnitOfWork, instance: Instance, place: claims.Place) -> None:
        row = server_migrations.current(uow, instance.uuid)
        assert row is not None, f"no migration of {instance.uuid} is open"
        server_migrations.set_destination(uow, row, place)

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        row = server_migrations.current(uow, instance.uuid)
        if row is not None and step.name == operations.HAND_OVER and instance.vm_state == states.ERROR:
            instance.vm_state, instance.fault = row.vm_state, None  # it counted as lost with its source
        if row is not None and step.name in _STATUS:
            server_migrations.set_status(uow, row, _STATUS[step.name])

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        row = server_migrations.current(uow, instance.uuid)
        if row is not None:
            aborted = (row.progress or {}).get("aborted")
            server_migrations.set_status(uow, row, migration_states.CANCELLED if aborted else migration_states.ERROR)
