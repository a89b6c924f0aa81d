"""Live migration, at the source and at the destination.

Until the handover only the source's hypervisor knows where the guest is. So every repetition starts with querying it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import interfaces, moves
from nova_lite.objects import ActionCommand, LiveDestination, LiveSource, MigrationControl, MigrationProgress
from nova_lite.operations import HostRole, states

LOG = logging.getLogger(__name__)


def check_can_live_migrate_source(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Return what the destination has to prepare. Runs at the source."""
    check = host.driver.live_moves.check_source
    host.require_domain(command)
    source = check(command.instance.uuid)
    if command.payload.get("block") is False and source.disks:
        raise exceptions.MigrationPreCheckError(
            reason=f"Instance {command.instance.uuid} is not on shared storage: block_migration is needed."
        )
    return {"live": msgspec.to_builtins(source)}


def pre_live_migration(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Check the processor, claim resources, prepare interfaces and files, and return their locations. Runs at the
    destination."""
    uuid, generation, payload = command.instance.uuid, command.generation, command.payload
    live_moves, source = host.driver.live_moves, msgspec.convert(payload["answers"]["check"]["live"], LiveSource)
    live_moves.check_destination(source)
    host.fencing.check(uuid, generation)
    moves.require_current(host, command)
    found = host.domain(uuid)
    if found is not None and found.generation < generation:
        host.remove_with_retries(uuid)
    instance = moves.instance_at(command, HostRole.DESTINATION)
    host.claims.instance_claim(uuid, Resources.of(instance), payload.get("limits", {}))
    host.driver.networks.plug(command.instance, command.instance.vifs)
    spec = moves.spawn_spec(host, command, instance)
    return {"live": msgspec.to_builtins(live_moves.prepare(spec, source))}


def live_migration(host: LocalHost, command: ActionCommand) -> None:
    """Migrate the guest. A migration that a killed daemon has left running is ended first. Runs at the source."""
    uuid = command.instance.uuid
    live_moves, destination = host.driver.live_moves, _destination(command)
    if live_moves.settle(uuid, destination):
        return
    host.require_domain(command)
    with _slot(host, command):
        live_moves.migrate(uuid, destination, lambda progress: _wish(host, command, progress))


@contextlib.contextmanager
def _slot(host: LocalHost, command: ActionCommand) -> Iterator[None]:
    """Wait until less than ``max_concurrent_live_migrations`` guests leave this host. Raises `MigrationAborted`."""
    slots = host.live_migration_slots
    if slots is None:
        yield
        return
    while not slots.acquire(timeout=host.timing.live_migration_slot_poll):
        if _wish(host, command, MigrationProgress(queued=True)) is MigrationControl.ABORT:
            raise exceptions.MigrationAborted(instance_uuid=command.instance.uuid, reason="as requested")
    try:
        yield
    finally:
        slots.release()


def _wish(host: LocalHost, command: ActionCommand, progress: MigrationProgress) -> MigrationControl:
    """Query the conductor how to proceed. Without a reply the migration continues. A later command aborts it."""
    if host.fencing.get(command.instance.uuid).last_command != (command.action_id, command.sequence):
        return MigrationControl.ABORT
    try:
        return host.conductor.live_migration_progress(
            get_admin_context(), host.name, command.action_id, command.sequence, progress
        )
    except exceptions.ServiceUnavailable:
        return MigrationControl.CONTINUE


def rollback_live_migration(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Return whether the guest has moved. Runs at the source after an unknown result."""
    return {"done": host.driver.live_moves.settle(command.instance.uuid, _destination(command))}


def find_live_migrated_instance(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Return whether the guest has arrived. Runs at the destination when the source is lost.

    The source does not run any more, so no guest is under way.
    """
    found = host.domain(command.instance.uuid)
    is_it = found is not None and found.generation == command.generation
    return {"done": is_it and host.driver.live_moves.has_arrived(command.instance.uuid)}


def rollback_live_migration_at_destination(host: LocalHost, command: ActionCommand) -> None:
    """Remove everything of this generation, which is revoked. The guest is at the source. Runs at the destination."""
    moves.remove_generation(host, command)


def post_live_migration_at_destination(host: LocalHost, command: ActionCommand) -> None:
    """Make the guest belong to this host. Runs at the destination.

    The move ends also if the guest is missing by now. The next comparison reports it as lost.
    """
    uuid = command.instance.uuid
    is_there = host.domain(uuid) is not None
    if is_there:
        moves.require_generation(host, command)
    else:
        LOG.warning("Instance %s: its domain of generation %d is missing", uuid, command.generation)
    resources = Resources.of(moves.instance_at(command, HostRole.DESTINATION))
    host.fencing.mark_built(uuid, command.generation, resources)
    join = interfaces.bind_and_plug if is_there else interfaces.bind
    join(host, command.instance)
    host.driver.live_moves.finish(uuid)
    if is_there and command.instance.vm_state == states.PAUSED:
        host.driver.live_moves.take_over_paused(uuid)


def post_live_migration(host: LocalHost, command: ActionCommand) -> None:
    """Remove its disks and interfaces. Runs at the source after the migration."""
    moves.remove_generation(host, command)


def _destination(command: ActionCommand) -> LiveDestination:
    return msgspec.convert(command.payload["answers"]["prepare"]["live"], LiveDestination)
