"""Live migration: what the source and the destination do.

The source's hypervisor alone knows where the guest is until it has handed it over. Whatever is repeated begins with
asking it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import interfaces, moves
from nova_lite.objects import ActionCommand, LiveDestination, LiveSource, MigrationProgress, Wish
from nova_lite.operations import HostRole, states
from nova_lite.virt.driver import LiveMigrating


def check_can_live_migrate_source(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the source: answers what the destination has to make ready."""
    driver = _driver(host)
    host.require_domain(ticket)
    source = driver.check_can_live_migrate_source(ticket.instance.uuid)
    if ticket.payload.get("block") is False and source.disks:
        raise exceptions.MigrationPreCheckError(
            reason=f"Instance {ticket.instance.uuid} is not on shared storage: block_migration is needed."
        )
    return {"live": msgspec.to_builtins(source)}


def pre_live_migration(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the destination: room, interfaces and files; answers where they are."""
    uuid, generation, payload = ticket.instance.uuid, ticket.generation, ticket.payload
    driver = _driver(host)
    host.fences.check(uuid, generation)
    moves.require_wanted(host, ticket)
    found = host.domain(uuid)
    if found is not None and found.generation < generation:
        host.clear(uuid)
    instance = msgspec.structs.replace(ticket.instance, numa=moves.numa_at(ticket, HostRole.DESTINATION))
    host.claims.instance_claim(uuid, Resources.of(instance.flavor, instance.numa), payload.get("limits", {}))
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    spec = moves.spawn_spec(host, ticket, instance)
    source = msgspec.convert(payload["answers"]["check"]["live"], LiveSource)
    return {"live": msgspec.to_builtins(driver.pre_live_migration(spec, source))}


def live_migration(host: LocalHost, ticket: ActionCommand) -> None:
    """At the source: hand the guest over. One that a killed daemon has left going on is ended first."""
    uuid = ticket.instance.uuid
    driver, destination = _driver(host), _destination(ticket)
    if driver.settle_live_migration(uuid, destination):
        return
    host.require_domain(ticket)
    driver.live_migration(uuid, destination, lambda progress: _wish(host, ticket, progress))


def _wish(host: LocalHost, ticket: ActionCommand, progress: MigrationProgress) -> Wish:
    """What is to become of it. While nobody answers it goes on; a later order ends it."""
    if host.fences.get(ticket.instance.uuid).last_order != (ticket.action_id, ticket.sequence):
        return Wish.ABORT
    try:
        return host.conductor.live_migration_progress(
            get_admin_context(), host.name, ticket.action_id, ticket.sequence, progress
        )
    except exceptions.ServiceUnavailable:
        return Wish.GO_ON


def rollback_live_migration(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the source, which has not said how it ended: answers whether the guest has moved."""
    return {"done": _driver(host).settle_live_migration(ticket.instance.uuid, _destination(ticket))}


def find_live_migrated_instance(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the destination, when the source is lost: answers whether the guest has arrived. The source runs no more, so
    none is on its way."""
    found = host.domain(ticket.instance.uuid)
    is_it = found is not None and found.generation == ticket.generation
    return {"done": is_it and _driver(host).has_arrived(ticket.instance.uuid)}


def rollback_live_migration_at_destination(host: LocalHost, ticket: ActionCommand) -> None:
    """Nothing of this generation is left, which is fenced by now; the guest is at the source."""
    moves.remove_end(host, ticket)


def post_live_migration_at_destination(host: LocalHost, ticket: ActionCommand) -> None:
    """The guest is this host's from now on."""
    uuid = ticket.instance.uuid
    moves.require_generation(host, ticket)
    resources = Resources.of(ticket.instance.flavor, moves.numa_at(ticket, HostRole.DESTINATION))
    host.fences.built(uuid, ticket.generation, resources)
    interfaces.arrive(host, ticket.instance)
    if ticket.instance.vm_state == states.PAUSED:
        _driver(host).take_over_paused(uuid)


def post_live_migration(host: LocalHost, ticket: ActionCommand) -> None:
    """At the source, which the guest has left: its disks and interfaces go."""
    moves.remove_end(host, ticket)


def _destination(ticket: ActionCommand) -> LiveDestination:
    return msgspec.convert(ticket.payload["answers"]["prepare"]["live"], LiveDestination)


def _driver(host: LocalHost) -> LiveMigrating:
    if not isinstance(host.driver, LiveMigrating):
        raise exceptions.NotImplementedByDriver(operation="live migration")
    return host.driver
