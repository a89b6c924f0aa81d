"""Stop, start and reboot on the host."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.moves import spawn_spec
from nova_lite.objects import ActionCommand
from nova_lite.virt.driver import Recreating, Renewing


def stop_instance(host: LocalHost, ticket: ActionCommand) -> None:
    """Shut the guest down, or cut its power after ``[compute] shutdown_timeout``."""
    host.require_domain(ticket)
    host.driver.power_off(ticket.instance.uuid, host.conf.compute.shutdown_timeout)


def start_instance(host: LocalHost, ticket: ActionCommand) -> None:
    host.require_domain(ticket)
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    host.driver.power_on(ticket.instance.uuid)


def reboot_instance(host: LocalHost, ticket: ActionCommand) -> None:
    """``payload["reboot_type"]``: SOFT or HARD, which also mends the network, and makes the domain anew, known or not,
    of its disks."""
    reboot_type = str(ticket.payload.get("reboot_type", "SOFT")).upper()
    if reboot_type == "HARD" and host.domain(ticket.instance.uuid) is None:
        _recreate(host, ticket)
    host.require_domain(ticket)
    if reboot_type == "HARD":
        host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
        _renew(host, ticket)
    host.driver.reboot(ticket.instance.uuid, reboot_type, host.conf.compute.shutdown_timeout)


def _renew(host: LocalHost, ticket: ActionCommand) -> None:
    """Only what the conductor has said all of."""
    if isinstance(host.driver, Renewing) and "image" in ticket.payload:
        host.driver.renew(spawn_spec(host, ticket, ticket.instance))


def _recreate(host: LocalHost, ticket: ActionCommand) -> None:
    """The conductor's order says that the instance belongs here, at this generation, and nothing else is being done to
    it. Raises `DomainNotFound` where that cannot be."""
    instance = ticket.instance
    if not isinstance(host.driver, Recreating):
        raise exceptions.DomainNotFound(instance_uuid=instance.uuid)
    host.fences.check_not_held(instance.uuid, ticket.generation)
    resources = Resources.of(instance.flavor, instance.numa)
    host.claims.instance_claim(instance.uuid, resources, {})
    try:
        host.driver.recreate(spawn_spec(host, ticket, instance))
    except Exception:
        host.claims.release(instance.uuid)
        raise
    host.fences.built(instance.uuid, ticket.generation, resources)
