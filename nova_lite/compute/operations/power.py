"""Stop, start and reboot on the host."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionTicket


def stop_instance(host: LocalHost, ticket: ActionTicket) -> None:
    """Shut the guest down, or cut its power after ``[compute] shutdown_timeout``."""
    host.require_domain(ticket)
    host.driver.power_off(ticket.instance.uuid, host.conf.compute.shutdown_timeout)


def start_instance(host: LocalHost, ticket: ActionTicket) -> None:
    host.require_domain(ticket)
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    host.driver.power_on(ticket.instance.uuid)


def reboot_instance(host: LocalHost, ticket: ActionTicket) -> None:
    """``payload["reboot_type"]``: SOFT or HARD, which also mends the network."""
    host.require_domain(ticket)
    reboot_type = str(ticket.payload.get("reboot_type", "SOFT")).upper()
    if reboot_type == "HARD":
        host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    host.driver.reboot(ticket.instance.uuid, reboot_type, host.conf.compute.shutdown_timeout)
