"""Resize and cold migration, and their confirmation or revert.

The guest is off while its disks move, and two hosts hold a claim until the owner confirms or reverts. If the
destination fails, the source starts the guest again, with its old disks. A delete supersedes the move, and both hosts
destroy guest and disks. An evacuation takes a moved server from a lost destination. Lost at most: by a revert, what was
written at the destination.

Until a move is confirmed or reverted, quota counts the larger of both flavors. The instance's own flavor counts as
usual. The fields ``extra_*`` of the instance hold the excess of the other flavor.

A running guest is resized in place if it can be, and if its host has room. Then source and destination are one place,
and its one claim has the larger of both flavors until the owner decides.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import hardware, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations import checks
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, Migration
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims, disk_keys, flavors, server_migrations
from nova_lite.db.volume import block_devices
from nova_lite.hardware import hotplug, pci
from nova_lite.objects import Flavor, Image
from nova_lite.objects.block_device import root_volume
from nova_lite.operations import Step, migration_states, states
from nova_lite.operations.states import PowerState

#: Key in the payload: the guest stays where it is.
IN_PLACE = "in_place"


class ResizeHandler(OperationHandler):
    """Gives a server another flavor, usually on another host.

    ``payload``: ``flavor_id``, and ``auto_disk_config`` to change it.
    """

    kind = migration_states.RESIZE

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        source = claims.place_of(instance)
        assert source is not None
        _check_one_allocation(uow, instance, payload)
        _end_reset_move(uow, instance)
        flavor = self._flavor(uow, context, instance, payload)
        _take_extra(uow, instance, flavor)
        if payload.get("auto_disk_config") is not None:
            instance.auto_disk_config = payload["auto_disk_config"]
        target = payload.get("host")
        instance.request = {} if target is None else {"requested_destination": {"host": target}}
        row = server_migrations.begin(uow, context, instance, self.kind, source, flavor)
        if _claim_in_place(uow, instance, source.host, flavor):
            # A delete looks for a migration only if the server has had a second generation.
            claims.next_generation(instance)
            server_migrations.set_destination(uow, row, source)
            server_migrations.set_status(uow, row, migration_states.MIGRATING)
            return _in_place(instance, row.new_flavor)
        return {
            "source": source.described(),
            "flavor": msgspec.to_builtins(flavor),
            "image": instance.image,
            "boot_images": instance.boot_images,
            "running": instance.vm_state == states.ACTIVE,
            "excluded": [] if self._may_stay(uow) else [source.host],
        }

    def _may_stay(self, uow: UnitOfWork) -> bool:
        """Check whether the server's own host may be the destination."""
        return bool(uow.conf.allow_resize_to_same_host)

    def _flavor(self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]) -> Flavor:
        """Return the new flavor. Raises a 400 if the server cannot have it."""
        try:
            flavor = flavors.get(uow, context, payload["flavor_id"])
        except exceptions.FlavorNotFound as error:
            raise exceptions.FlavorUnavailable(flavor_id=payload["flavor_id"]) from error
        old = msgspec.convert(instance.flavor, Flavor)
        if flavor.flavorid == old.flavorid:
            raise exceptions.CannotResizeToSameFlavor()
        if flavor.disabled:
            raise exceptions.FlavorUnavailable(flavor_id=payload["flavor_id"])
        image = msgspec.convert(instance.image, Image | None)
        pci.requests(uow.conf, flavor, image, strict=True)
        disk_keys.require_same(instance, flavor, image)
        if root_volume(block_devices.of(instance)) is None:
            _check_root_disk(old, flavor)
            check_image = checks.check_flavor_fits
        else:
            check_image = checks.check_guest_fits
        if flavor.ephemeral_gb < old.ephemeral_gb:
            raise exceptions.CannotResizeDisk(reason="Unable to resize disk down.")
        if image is not None:
            check_image(image, flavor)
            hardware.check_disks(flavor, image, block_devices.of(instance))
        return flavor

    def on_claimed(self, uow: UnitOfWork, instance: Instance, place: claims.Place) -> None:
        row = _open_migration(uow, instance)
        server_migrations.set_destination(uow, row, place)
        server_migrations.set_status(uow, row, migration_states.MIGRATING)

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        row = _open_migration(uow, instance)
        if step.name == operations.LEAVE:
            server_migrations.set_status(uow, row, migration_states.POST_MIGRATING)
        elif step.name in (operations.ARRIVE, operations.PERFORM):
            _set_flavor(instance, row.new_flavor)
            _count_larger(instance, row)
            instance.progress = 100
            server_migrations.set_status(uow, row, migration_states.FINISHED)
        elif step.name == operations.RETURN:
            instance.vm_state, instance.fault = row.vm_state, None

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        row = server_migrations.current(uow, instance.uuid)
        if row is not None and is_in_place(row):
            end_in_place(uow, instance, row, migration_states.ERROR)
            return
        give_back_extra(uow, instance)
        if row is not None:
            server_migrations.set_status(uow, row, migration_states.ERROR)


class MigrateHandler(ResizeHandler):
    """Moves a server to another host while it is off. ``payload``: ``host``, or None to let the scheduler choose."""

    kind = migration_states.MIGRATION

    def _may_stay(self, uow: UnitOfWork) -> bool:
        return False

    def _flavor(self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]) -> Flavor:
        target = payload.get("host")
        if target is not None and not hosts.exists(uow, target):
            raise exceptions.ComputeHostUnknown(host=target)
        if target == instance.host:
            raise exceptions.CannotMigrateToSameHost()
        return msgspec.convert(instance.flavor, Flavor)


class ConfirmResizeHandler(OperationHandler):
    """Ends a move: the source is cleaned up."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        row = _finished(uow, instance)
        if is_in_place(row):
            end_in_place(uow, instance, row, migration_states.CONFIRMED)
            instance.vm_state = states.STOPPED if instance.power_state == PowerState.SHUTDOWN else states.ACTIVE
            return {IN_PLACE: True}
        server_migrations.set_status(uow, row, migration_states.CONFIRMING)
        return {**server_migrations.ends(row), "source": row.source if _has_source(uow, instance, row) else None}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if instance.power_state == PowerState.SHUTDOWN:
            instance.vm_state = states.STOPPED
        give_back_extra(uow, instance)
        server_migrations.set_status(uow, _open_migration(uow, instance), migration_states.CONFIRMED)


class RevertResizeHandler(OperationHandler):
    """Ends a move: the server goes back to the source."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        row = _finished(uow, instance)
        if not _has_source(uow, instance, row):
            raise exceptions.SourceRetired(instance_uuid=instance.uuid, host=row.source_host)
        if not hosts.is_up(uow, row.source_host):
            raise exceptions.SourceDown(instance_uuid=instance.uuid, host=row.source_host)
        server_migrations.set_status(uow, row, migration_states.REVERTING)
        if is_in_place(row):
            return _in_place(instance, row.old_flavor)
        return {**server_migrations.ends(row), "running": row.vm_state == states.ACTIVE}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        row = _open_migration(uow, instance)
        if step.name in (operations.DROP, operations.PERFORM):
            _set_flavor(instance, row.old_flavor)
            _count_larger(instance, row)
        if step.name == operations.PERFORM:
            end_in_place(uow, instance, row, migration_states.REVERTED)
            if instance.power_state == PowerState.SHUTDOWN:
                instance.vm_state = states.STOPPED
        elif step.name == operations.RETURN:
            instance.vm_state = row.vm_state
            give_back_extra(uow, instance)
            server_migrations.set_status(uow, row, migration_states.REVERTED)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Let the owner decide again: the guest has refused to return to its old size."""
        row = server_migrations.current(uow, instance.uuid)
        if row is not None and is_in_place(row):
            server_migrations.set_status(uow, row, migration_states.FINISHED)


def _in_place(instance: Instance, flavor: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a change to this flavor in place."""
    return {IN_PLACE: True, "flavor": flavor, "image": instance.image, "boot_images": instance.boot_images}


def _claim_in_place(uow: UnitOfWork, instance: Instance, host: str, flavor: Flavor) -> bool:
    """Claim the larger of both flavors if the running guest can get the new one on its host. Return whether that is
    so."""
    old = msgspec.convert(instance.flavor, Flavor)
    if instance.vm_state != states.ACTIVE or not hotplug.can_change(old, flavor):
        return False
    claims.lock_hosts(uow, [host])
    if claims.locked_host(uow, host) is None:
        return False
    needed = claims.needs(flavor)
    return claims.resize(uow, instance, {name: max(held, needed[name]) for name, held in claims.needs(old).items()})


def is_in_place(row: Migration) -> bool:
    """Check whether the server is resized where it is. Every move has a new generation at its destination."""
    return row.destination == row.source


def end_in_place(uow: UnitOfWork, instance: Instance, row: Migration, status: str) -> None:
    """Close the row of a resize in place, and keep no more claims and quota than the server's flavor needs."""
    give_back_extra(uow, instance)
    claims.resize(uow, instance, claims.needs(msgspec.convert(instance.flavor, Flavor)))
    server_migrations.set_status(uow, row, status)


def _end_reset_move(uow: UnitOfWork, instance: Instance) -> None:
    """Confirm a resize in place whose server an admin has reset."""
    row = server_migrations.current(uow, instance.uuid)
    if row is not None and is_in_place(row):
        end_in_place(uow, instance, row, migration_states.CONFIRMED)


def _check_root_disk(old: Flavor, new: Flavor) -> None:
    """Raise `CannotResizeDisk` if the local root disk would have to shrink. A volume is as large as it is."""
    if old.root_gb and not new.root_gb:
        raise exceptions.CannotResizeDisk(reason="Resize to zero disk flavor is not allowed.")
    if new.root_gb < old.root_gb:
        raise exceptions.CannotResizeDisk(reason="Unable to resize disk down.")


def _open_migration(uow: UnitOfWork, instance: Instance) -> Migration:
    row = server_migrations.current(uow, instance.uuid)
    assert row is not None, f"no migration of {instance.uuid} is open"
    return row


def _finished(uow: UnitOfWork, instance: Instance) -> Migration:
    """Return the migration that waits to be confirmed or reverted."""
    row = server_migrations.current(uow, instance.uuid)
    if row is None or row.status != migration_states.FINISHED:
        raise exceptions.NotResized()
    return row


def _has_source(uow: UnitOfWork, instance: Instance, row: Migration) -> bool:
    """Check whether the source still has the server. It does not if that host was retired."""
    return claims.HeldHost(row.source["host"], row.source["generation"]) in claims.held_hosts(uow, instance)


def _check_one_allocation(uow: UnitOfWork, instance: Instance, payload: dict[str, Any]) -> None:
    """Raise a 409 for a server with an allocation elsewhere, because an admin has reset its state during a move."""
    if len(claims.held_hosts(uow, instance)) > 1:
        raise exceptions.InstanceInvalidState(
            method="resize" if "flavor_id" in payload else "migrate",
            instance_id=instance.uuid,
            attr="migration",
            state="unfinished",
        )


def _set_flavor(instance: Instance, values: dict[str, Any]) -> None:
    flavor = msgspec.convert(values, Flavor)
    instance.flavorid, instance.flavor = flavor.flavorid, values
    instance.vcpus, instance.memory_mb, instance.disk_gb = flavor.vcpus, flavor.memory_mb, flavor.disk_gb


def _take_extra(uow: UnitOfWork, instance: Instance, flavor: Flavor) -> None:
    """Take the quota that the new flavor needs in excess. Raises `QuotaExceeded`."""
    cores, ram = max(0, flavor.vcpus - instance.vcpus), max(0, flavor.memory_mb - instance.memory_mb)
    quotas.take(uow, uow.conf, instance.project_id, {"cores": cores, "ram": ram}, instance.user_id)
    instance.extra_vcpus, instance.extra_memory_mb = cores, ram


def _count_larger(instance: Instance, row: Migration) -> None:
    """Let quota continue counting the larger of both flavors."""
    old, new = msgspec.convert(row.old_flavor, Flavor), msgspec.convert(row.new_flavor, Flavor)
    instance.extra_vcpus = max(old.vcpus, new.vcpus) - instance.vcpus
    instance.extra_memory_mb = max(old.memory_mb, new.memory_mb) - instance.memory_mb


def give_back_extra(uow: UnitOfWork, instance: Instance) -> None:
    """Release the quota of the other flavor, because the move is over."""
    amounts = {"cores": instance.extra_vcpus, "ram": instance.extra_memory_mb}
    instance.extra_vcpus = instance.extra_memory_mb = 0
    quotas.give_back(uow, instance.project_id, amounts)
