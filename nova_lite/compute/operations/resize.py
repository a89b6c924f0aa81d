"""Resize and cold migration, at the source and at the destination.

At the source the guest is off and held, with its disks untouched. It is removed when the move is confirmed, or released
when the move is reverted. At the destination it is created like a build: checked against revocations, claimed, and
removed after a failure. If both are one host, the original guest is set aside there.

A guest that is resized in place keeps running, and its generation.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import interfaces, moves
from nova_lite.objects import ActionCommand, DiskSource, Flavor, Instance
from nova_lite.operations import HostRole

LOG = logging.getLogger(__name__)


def resize_instance(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Turn the guest off, hold it, and return where its disks can be fetched. Runs at the source."""
    uuid = command.instance.uuid
    offer = host.driver.moves.offer_disks
    moves.require_generation(host, command)
    host.fencing.hold(uuid, command.generation)
    source = offer(uuid, host.conf.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def resize_instance_same_host(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Turn the guest off and set it aside, to make room for the new one.

    Runs at the source, which is also the destination.
    """
    uuid, set_aside = command.instance.uuid, host.driver.moves.set_aside
    found = host.domain(uuid)
    if found is not None and found.generation != command.generation:
        raise exceptions.DomainNotFound(instance_uuid=uuid)
    host.fencing.hold(uuid, command.generation)
    source = set_aside(uuid, host.conf.shutdown_timeout)
    return {"disks": msgspec.to_builtins(source)}


def resize_in_place(host: LocalHost, command: ActionCommand) -> None:
    """Give the guest vCPUs and memory of the payload's flavor, without a restart."""
    flavor = msgspec.convert(command.payload["flavor"], Flavor)
    host.require_domain(command)
    host.claims.instance_claim(command.instance.uuid, Resources.of(_with(command, flavor)), {})
    _plug(host, command, flavor)
    _record_size(host, command, flavor)


def rollback_resize_in_place(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Return the guest to the vCPUs and memory of its own flavor.

    A guest that refuses to release the new ones gets all of the new flavor. Then ``done`` is True, because no row may
    name less than its guest has. A guest that takes its old ones later counts as returned.
    """
    uuid, old, new = command.instance.uuid, command.instance.flavor, msgspec.convert(command.payload["flavor"], Flavor)
    if host.domain(uuid) is None:
        return {"done": False}
    host.require_domain(command)
    done = False
    try:
        _plug(host, command, old)
    except exceptions.GuestSizeRefused as error:
        LOG.warning("%s", error.message)
        done = (new.vcpus, new.memory_mb) > (old.vcpus, old.memory_mb)
    if done:
        try:
            _plug(host, command, new)
        except exceptions.GuestSizeRefused as error:
            LOG.warning("%s", error.message)
    _record_size(host, command, new if done else old)
    return {"done": done}


def _plug(host: LocalHost, command: ActionCommand, flavor: Flavor) -> None:
    spec = moves.spawn_spec(host, command, _with(command, flavor))
    spec.still_wanted = lambda: _require_last(host, command)
    host.driver.hotplug.resize(spec)


def _require_last(host: LocalHost, command: ActionCommand) -> None:
    """Raise `StaleReport` if a later command has come: a delete does not wait for the guest's answer."""
    uuid = command.instance.uuid
    if host.fencing.get(uuid).last_command != (command.action_id, command.sequence):
        raise exceptions.StaleReport(instance_id=uuid, generation=command.generation, host=host.name)


def _record_size(host: LocalHost, command: ActionCommand, flavor: Flavor) -> None:
    uuid, resources = command.instance.uuid, Resources.of(_with(command, flavor))
    host.claims.restore({uuid: resources})
    host.fencing.mark_resized(uuid, resources)


def _with(command: ActionCommand, flavor: Flavor) -> Instance:
    return msgspec.structs.replace(command.instance, flavor=flavor)


def finish_resize(host: LocalHost, command: ActionCommand) -> None:
    """Create the guest from the source's disks, and start it if it ran. Runs at the destination.

    The payload contains the flavor, the images, whether the guest ran, and the source's reply. After a failure partial
    disks remain; the following ``drop_resize`` removes them.
    """
    uuid, generation, payload = command.instance.uuid, command.generation, command.payload
    found = host.domain(uuid)
    if found is not None and found.generation == generation and host.is_complete(found):
        return
    host.fencing.check(uuid, generation)
    moves.require_current(host, command)
    if found is not None:
        host.remove_with_retries(uuid)
    finish = host.driver.moves.finish
    flavor = msgspec.convert(payload["flavor"], Flavor)
    instance = msgspec.structs.replace(moves.instance_at(command, HostRole.DESTINATION), flavor=flavor)
    resources = Resources.of(instance)
    host.claims.instance_claim(uuid, resources, payload.get("limits", {}))
    instance.vifs = interfaces.bind_and_plug(host, instance)
    finish(
        moves.spawn_spec(host, command, instance),
        msgspec.convert(payload["answers"]["leave"]["disks"], DiskSource),
        bool(payload["running"]),
    )
    host.fencing.mark_built(uuid, generation, resources)


def drop_resize(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Remove the guest at the destination of a cancelled move, unless the move was complete before the revocation.

    The conductor does not know of the completion then. The guest stays with all that it has written, and ``done`` is
    True.
    """
    found = host.domain(command.instance.uuid)
    record = host.fencing.get(command.instance.uuid)
    done = found is not None and found.generation == record.built_generation == command.generation
    if not done:
        moves.remove_generation(host, command)
    return {"done": done}


def confirm_resize(host: LocalHost, command: ActionCommand) -> None:
    """Remove the guest. Runs at the source after the move."""
    moves.remove_generation(host, command)
    host.driver.moves.discard(command.instance.uuid)


def revert_resize(host: LocalHost, command: ActionCommand) -> None:
    """Remove the guest. Runs at the destination of a reverted move."""
    moves.remove_generation(host, command)


def finish_revert_resize(host: LocalHost, command: ActionCommand) -> None:
    """Release the guest, and start it if it ran before. Runs at the source of a reverted move.

    A guest that is missing cannot be released. The move ends without it, and the next comparison reports it as lost.
    """
    uuid = command.instance.uuid
    if _is_one_host(command):
        _restore_original(host, command)
    if host.domain(uuid) is None:
        LOG.warning("Instance %s: its domain of generation %d is missing", uuid, command.generation)
        host.fencing.release_hold(uuid)
        return
    moves.require_generation(host, command)
    host.fencing.release_hold(uuid)
    if command.payload["running"]:
        interfaces.bind_and_plug(host, command.instance)
        host.driver.power.on(uuid)
    else:
        interfaces.bind(host, command.instance)


def _is_one_host(command: ActionCommand) -> bool:
    source, destination = command.payload.get("source"), command.payload.get("destination")
    return bool(source and destination and source["host"] == destination["host"])


def _restore_original(host: LocalHost, command: ActionCommand) -> None:
    """Restore the guest that was set aside. Remove its replacement, which may exist if this host was forced down."""
    uuid = command.instance.uuid
    resources = Resources.of(moves.instance_at(command, HostRole.SOURCE))
    found = host.domain(uuid)
    if found is not None and found.generation > command.generation:
        host.fencing.revoke(uuid, found.generation)
        host.remove(uuid)
    host.fencing.mark_restored(uuid, command.generation, resources)
    host.driver.moves.restore(uuid)
    host.claims.restore({uuid: resources})
    host.driver.networks.plug(command.instance, command.instance.vifs)
