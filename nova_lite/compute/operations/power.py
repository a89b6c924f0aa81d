"""Stop, start and reboot on the host."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.moves import spawn_spec
from nova_lite.objects import ActionCommand


def stop_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, or cut its power after ``[DEFAULT] shutdown_timeout``."""
    host.require_domain(command)
    host.driver.power.off(command.instance.uuid, host.conf.shutdown_timeout)


def start_instance(host: LocalHost, command: ActionCommand) -> None:
    host.require_domain(command)
    host.driver.networks.plug(command.instance, command.instance.vifs)
    host.driver.power.on(command.instance.uuid)


def reboot_instance(host: LocalHost, command: ActionCommand) -> None:
    """Reboot the guest. ``payload["reboot_type"]``: SOFT or HARD.

    HARD also repairs the network, and defines the domain again from its disks, even if it is missing.
    """
    reboot_type = str(command.payload.get("reboot_type", "SOFT")).upper()
    if reboot_type == "HARD" and host.domain(command.instance.uuid) is None:
        _recreate(host, command)
    host.require_domain(command)
    if reboot_type == "HARD":
        host.driver.networks.plug(command.instance, command.instance.vifs)
        _renew(host, command)
    host.driver.power.reboot(command.instance.uuid, reboot_type, host.conf.shutdown_timeout)


def _renew(host: LocalHost, command: ActionCommand) -> None:
    """Define the domain again, if the command contains all that is necessary."""
    if host.driver.definitions and "image" in command.payload:
        host.driver.definitions.renew(spawn_spec(host, command, command.instance))


def _recreate(host: LocalHost, command: ActionCommand) -> None:
    """Define a missing domain again. Raises `DomainNotFound` if that is impossible.

    The conductor's command proves that the instance belongs here at this generation, and that no other operation runs.
    """
    instance = command.instance
    if not host.driver.definitions:
        raise exceptions.DomainNotFound(instance_uuid=instance.uuid)
    host.fencing.check_not_held(instance.uuid, command.generation)
    resources = Resources.of(instance)
    host.claims.instance_claim(instance.uuid, resources, {})
    try:
        host.driver.definitions.recreate(spawn_spec(host, command, instance))
    except Exception:
        host.claims.release(instance.uuid)
        raise
    host.fencing.mark_built(instance.uuid, command.generation, resources)
