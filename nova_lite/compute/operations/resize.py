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


def resize_instance(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the source: the guest goes off and stays so; answers where its disks can be fetched."""
    uuid = command.instance.uuid
    driver = _driver(host)
    moves.require_generation(host, command)
    host.fencing.hold(uuid, command.generation)
    source = driver.migrate_disk_and_power_off(uuid, host.conf.compute.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def set_aside_instance(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the source, which is the destination too: the guest goes off, and makes room for what comes."""
    uuid, driver = command.instance.uuid, _driver(host)
    found = host.domain(uuid)
    if found is not None and found.generation != command.generation:
        raise exceptions.DomainNotFound(instance_uuid=uuid)
    host.fencing.hold(uuid, command.generation)
    source = driver.set_aside(uuid, host.conf.compute.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def finish_resize(host: LocalHost, command: ActionCommand) -> None:
    """At the destination: make the guest of the source's disks, and start it if it ran.

    The payload names the flavor, images, whether it ran, and the source's answer. A failure leaves the disks as far as
    they have come; the order to drop it that follows removes them.
    """
    uuid, generation, payload = command.instance.uuid, command.generation, command.payload
    found = host.domain(uuid)
    if found is not None and found.generation == generation and host.is_complete(found):
        return
    host.fencing.check(uuid, generation)
    moves.require_current(host, command)
    if found is not None:
        host.remove_with_retries(uuid)
    driver = _driver(host)
    flavor = msgspec.convert(payload["flavor"], Flavor)
    numa = moves.numa_at(command, HostRole.DESTINATION)
    resources = Resources.of(flavor, numa)
    host.claims.instance_claim(uuid, resources, payload.get("limits", {}))
    instance = msgspec.structs.replace(command.instance, flavor=flavor, numa=numa)
    instance.vifs = interfaces.bind_and_plug(host, instance)
    driver.finish_migration(
        moves.spawn_spec(host, command, instance),
        msgspec.convert(payload["answers"]["leave"]["disks"], DiskSource),
        bool(payload["running"]),
    )
    host.fencing.mark_built(uuid, generation, resources)


def drop_resize(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """At the destination, where the move was given up. If it was completed before the fence came, nobody had heard of
    that: it is left as it is, what its guest has written since included, and the answer says so."""
    found = host.domain(command.instance.uuid)
    record = host.fencing.get(command.instance.uuid)
    done = found is not None and found.generation == record.built_generation == command.generation
    if not done:
        moves.remove_generation(host, command)
    return {"done": done}


def confirm_resize(host: LocalHost, command: ActionCommand) -> None:
    """At the source, after the move."""
    moves.remove_generation(host, command)
    _driver(host).forget_aside(command.instance.uuid)


def revert_resize(host: LocalHost, command: ActionCommand) -> None:
    """At the destination, which is given up."""
    moves.remove_generation(host, command)


def finish_revert_resize(host: LocalHost, command: ActionCommand) -> None:
    """At the source: the guest is let go on, and runs if it ran before."""
    uuid = command.instance.uuid
    if _is_one_host(command):
        _take_back(host, command)
    moves.require_generation(host, command)
    host.fencing.release_hold(uuid)
    if command.payload["running"]:
        interfaces.bind_and_plug(host, command.instance)
        host.driver.power_on(uuid)
    else:
        interfaces.bind(host, command.instance)


def _is_one_host(command: ActionCommand) -> bool:
    source, destination = command.payload.get("source"), command.payload.get("destination")
    return bool(source and destination and source["host"] == destination["host"])


def _take_back(host: LocalHost, command: ActionCommand) -> None:
    """What was set aside is here again. While this host was forced down nobody told it to drop what took its place."""
    uuid = command.instance.uuid
    resources = Resources.of(command.instance.flavor, moves.numa_at(command, HostRole.SOURCE))
    found = host.domain(uuid)
    if found is not None and found.generation > command.generation:
        host.fencing.revoke(uuid, found.generation)
        host.remove(uuid)
    host.fencing.mark_restored(uuid, command.generation, resources)
    _driver(host).take_back(uuid)
    host.claims.restore({uuid: resources})
    host.driver.plug_vifs(command.instance, command.instance.vifs)


def _driver(host: LocalHost) -> Migrating:
    if not isinstance(host.driver, Migrating):
        raise exceptions.NotImplementedByDriver(operation="resize")
    return host.driver
