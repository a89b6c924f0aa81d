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


def check_can_live_migrate_source(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the source: answers what the destination has to make ready."""
    driver = _driver(host)
    host.require_domain(command)
    source = driver.check_can_live_migrate_source(command.instance.uuid)
    if command.payload.get("block") is False and source.disks:
        raise exceptions.MigrationPreCheckError(
            reason=f"Instance {command.instance.uuid} is not on shared storage: block_migration is needed."
        )
    return {"live": msgspec.to_builtins(source)}


def pre_live_migration(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the destination: room, interfaces and files; answers where they are."""
    uuid, generation, payload = command.instance.uuid, command.generation, command.payload
    driver = _driver(host)
    host.fencing.check(uuid, generation)
    moves.require_current(host, command)
    found = host.domain(uuid)
    if found is not None and found.generation < generation:
        host.remove_with_retries(uuid)
    instance = msgspec.structs.replace(command.instance, numa=moves.numa_at(command, HostRole.DESTINATION))
    host.claims.instance_claim(uuid, Resources.of(instance.flavor, instance.numa), payload.get("limits", {}))
    host.driver.plug_vifs(command.instance, command.instance.vifs)
    spec = moves.spawn_spec(host, command, instance)
    source = msgspec.convert(payload["answers"]["check"]["live"], LiveSource)
    return {"live": msgspec.to_builtins(driver.pre_live_migration(spec, source))}


def live_migration(host: LocalHost, command: ActionCommand) -> None:
    """At the source: hand the guest over. One that a killed daemon has left going on is ended first."""
    uuid = command.instance.uuid
    driver, destination = _driver(host), _destination(command)
    if driver.settle_live_migration(uuid, destination):
        return
    host.require_domain(command)
    driver.live_migration(uuid, destination, lambda progress: _wish(host, command, progress))


def _wish(host: LocalHost, command: ActionCommand, progress: MigrationProgress) -> Wish:
    """What is to become of it. While nobody answers it goes on; a later order ends it."""
    if host.fencing.get(command.instance.uuid).last_command != (command.action_id, command.sequence):
        return Wish.ABORT
    try:
        return host.conductor.live_migration_progress(
            get_admin_context(), host.name, command.action_id, command.sequence, progress
        )
    except exceptions.ServiceUnavailable:
        return Wish.GO_ON


def rollback_live_migration(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the source, which has not said how it ended: answers whether the guest has moved."""
    return {"done": _driver(host).settle_live_migration(command.instance.uuid, _destination(command))}


def find_live_migrated_instance(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the destination, when the source is lost: answers whether the guest has arrived. The source runs no more, so
    none is on its way."""
    found = host.domain(command.instance.uuid)
    is_it = found is not None and found.generation == command.generation
    return {"done": is_it and _driver(host).has_arrived(command.instance.uuid)}


def rollback_live_migration_at_destination(host: LocalHost, command: ActionCommand) -> None:
    """Nothing of this generation is left, which is fenced by now; the guest is at the source."""
    moves.remove_generation(host, command)


def post_live_migration_at_destination(host: LocalHost, command: ActionCommand) -> None:
    """The guest is this host's from now on."""
    uuid = command.instance.uuid
    moves.require_generation(host, command)
    resources = Resources.of(command.instance.flavor, moves.numa_at(command, HostRole.DESTINATION))
    host.fencing.mark_built(uuid, command.generation, resources)
    interfaces.bind_and_plug(host, command.instance)
    if command.instance.vm_state == states.PAUSED:
        _driver(host).take_over_paused(uuid)


def post_live_migration(host: LocalHost, command: ActionCommand) -> None:
    """At the source, which the guest has left: its disks and interfaces go."""
    moves.remove_generation(host, command)


def _destination(command: ActionCommand) -> LiveDestination:
    return msgspec.convert(command.payload["answers"]["prepare"]["live"], LiveDestination)


def _driver(host: LocalHost) -> LiveMigrating:
    if not isinstance(host.driver, LiveMigrating):
        raise exceptions.NotImplementedByDriver(operation="live migration")
    return host.driver
