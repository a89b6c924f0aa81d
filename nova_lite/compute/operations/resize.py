"""Resize and cold migration: what the source and the destination do.

At the source the guest is off and held back, its disks untouched, until it is removed there (the move is confirmed) or
let go (it is taken back). At the destination it comes to be like a build: fenced, claimed, and nothing is left of a
failure. Where both are one host, the source's guest is set aside there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import interfaces, moves
from nova_lite.objects import ActionCommand, DiskSource, Flavor
from nova_lite.operations import HostRole
from nova_lite.virt.driver import Migrating


def resize_instance(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the source: the guest goes off and stays so; answers where its disks can be fetched."""
    uuid = ticket.instance.uuid
    driver = _driver(host)
    moves.require_generation(host, ticket)
    host.fences.hold(uuid, ticket.generation)
    source = driver.migrate_disk_and_power_off(uuid, host.conf.compute.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def set_aside_instance(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the source, which is the destination too: the guest goes off, and makes room for what comes."""
    uuid, driver = ticket.instance.uuid, _driver(host)
    found = host.domain(uuid)
    if found is not None and found.generation != ticket.generation:
        raise exceptions.DomainNotFound(instance_uuid=uuid)
    host.fences.hold(uuid, ticket.generation)
    source = driver.set_aside(uuid, host.conf.compute.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def finish_resize(host: LocalHost, ticket: ActionCommand) -> None:
    """At the destination: make the guest of the source's disks, and start it if it ran.

    The payload names the flavor, images, whether it ran, and the source's answer. A failure leaves the disks as far as
    they have come; the order to drop it that follows removes them.
    """
    uuid, generation, payload = ticket.instance.uuid, ticket.generation, ticket.payload
    found = host.domain(uuid)
    if found is not None and found.generation == generation and host.is_complete(found):
        return
    host.fences.check(uuid, generation)
    moves.require_wanted(host, ticket)
    if found is not None:
        host.clear(uuid)
    driver = _driver(host)
    flavor = msgspec.convert(payload["flavor"], Flavor)
    numa = moves.numa_at(ticket, HostRole.DESTINATION)
    resources = Resources.of(flavor, numa)
    host.claims.instance_claim(uuid, resources, payload.get("limits", {}))
    instance = msgspec.structs.replace(ticket.instance, flavor=flavor, numa=numa)
    instance.vifs = interfaces.arrive(host, instance)
    driver.finish_migration(
        moves.spawn_spec(host, ticket, instance),
        msgspec.convert(payload["answers"]["leave"]["disks"], DiskSource),
        bool(payload["running"]),
    )
    host.fences.built(uuid, generation, resources)


def drop_resize(host: LocalHost, ticket: ActionCommand) -> dict[str, Any]:
    """At the destination, where the move was given up. If it was completed before the fence came, nobody had heard of
    that: it is left as it is, what its guest has written since included, and the answer says so."""
    found = host.domain(ticket.instance.uuid)
    record = host.fences.get(ticket.instance.uuid)
    done = found is not None and found.generation == record.built_generation == ticket.generation
    if not done:
        moves.remove_end(host, ticket)
    return {"done": done}


def confirm_resize(host: LocalHost, ticket: ActionCommand) -> None:
    """At the source, after the move."""
    moves.remove_end(host, ticket)
    _driver(host).forget_aside(ticket.instance.uuid)


def revert_resize(host: LocalHost, ticket: ActionCommand) -> None:
    """At the destination, which is given up."""
    moves.remove_end(host, ticket)


def finish_revert_resize(host: LocalHost, ticket: ActionCommand) -> None:
    """At the source: the guest is let go on, and runs if it ran before."""
    uuid = ticket.instance.uuid
    if _is_one_host(ticket):
        _take_back(host, ticket)
    moves.require_generation(host, ticket)
    host.fences.let_go(uuid)
    if ticket.payload["running"]:
        interfaces.arrive(host, ticket.instance)
        host.driver.power_on(uuid)
    else:
        interfaces.bind(host, ticket.instance)


def _is_one_host(ticket: ActionCommand) -> bool:
    source, destination = ticket.payload.get("source"), ticket.payload.get("destination")
    return bool(source and destination and source["host"] == destination["host"])


def _take_back(host: LocalHost, ticket: ActionCommand) -> None:
    """What was set aside is here again. While this host was forced down nobody told it to drop what took its place."""
    uuid = ticket.instance.uuid
    resources = Resources.of(ticket.instance.flavor, moves.numa_at(ticket, HostRole.SOURCE))
    found = host.domain(uuid)
    if found is not None and found.generation > ticket.generation:
        host.fences.forbid(uuid, found.generation)
        host.remove(uuid)
    host.fences.restored(uuid, ticket.generation, resources)
    _driver(host).take_back(uuid)
    host.claims.restore({uuid: resources})
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)


def _driver(host: LocalHost) -> Migrating:
    if not isinstance(host.driver, Migrating):
        raise exceptions.NotImplementedByDriver(operation="resize")
    return host.driver
