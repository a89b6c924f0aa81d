"""Stop, start and reboot on the host."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.moves import spawn_spec
from nova_lite.objects import ActionCommand
from nova_lite.virt.driver import Recreating, Renewing


def stop_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, or cut its power after ``[compute] shutdown_timeout``."""
    host.require_domain(command)
    host.driver.power_off(command.instance.uuid, host.conf.compute.shutdown_timeout)


def start_instance(host: LocalHost, command: ActionCommand) -> None:
    host.require_domain(command)
    host.driver.plug_vifs(command.instance, command.instance.vifs)
    host.driver.power_on(command.instance.uuid)


def reboot_instance(host: LocalHost, command: ActionCommand) -> None:
    """``payload["reboot_type"]``: SOFT or HARD, which also mends the network, and makes the domain anew, known or not,
    of its disks."""
    reboot_type = str(command.payload.get("reboot_type", "SOFT")).upper()
    if reboot_type == "HARD" and host.domain(command.instance.uuid) is None:
        _recreate(host, command)
    host.require_domain(command)
    if reboot_type == "HARD":
        host.driver.plug_vifs(command.instance, command.instance.vifs)
        _renew(host, command)
    host.driver.reboot(command.instance.uuid, reboot_type, host.conf.compute.shutdown_timeout)


def _renew(host: LocalHost, command: ActionCommand) -> None:
    """Only what the conductor has said all of."""
    if isinstance(host.driver, Renewing) and "image" in command.payload:
        host.driver.renew(spawn_spec(host, command, command.instance))


def _recreate(host: LocalHost, command: ActionCommand) -> None:
    """The conductor's order says that the instance belongs here, at this generation, and nothing else is being done to
    it. Raises `DomainNotFound` where that cannot be."""
    instance = command.instance
    if not isinstance(host.driver, Recreating):
        raise exceptions.DomainNotFound(instance_uuid=instance.uuid)
    host.fencing.check_not_held(instance.uuid, command.generation)
    resources = Resources.of(instance.flavor, instance.numa)
    host.claims.instance_claim(instance.uuid, resources, {})
    try:
        host.driver.recreate(spawn_spec(host, command, instance))
    except Exception:
        host.claims.release(instance.uuid)
        raise
    host.fencing.mark_built(instance.uuid, command.generation, resources)
