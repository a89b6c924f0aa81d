"""Attaching an interface to a guest and detaching one, running or not; what takes back one is the other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.objects import VIF, ActionCommand, Instance
from nova_lite.virt.driver import AttachingInterfaces

LOG = logging.getLogger(__name__)

#: Seconds between two questions whether the network service has connected all; each so-manieth is passed on to it,
#: for what it said by itself may be lost.
POLL_SECONDS = 1.0
ASK_EACH = 5

_PAUSE = threading.Event()


def attach_interface(host: LocalHost, ticket: ActionCommand) -> None:
    """``payload["port_id"]``: which of the instance's interfaces. One that is there stays."""
    host.require_domain(ticket)
    driver, vif = _driver(host), _vif(ticket)
    host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
    driver.attach_interface(ticket.instance.uuid, vif)


def detach_interface(host: LocalHost, ticket: ActionCommand) -> None:
    """Nothing of it is left here, on its bridge either."""
    host.require_domain(ticket)
    _driver(host).detach_interface(ticket.instance.uuid, _vif(ticket))


def take_back_interface(host: LocalHost, ticket: ActionCommand) -> None:
    """An attach has failed: detached, as far as there is a guest."""
    if _is_here(host, ticket):
        detach_interface(host, ticket)


def give_back_interface(host: LocalHost, ticket: ActionCommand) -> None:
    """A detach has failed: attached, as far as there is a guest; one that is made anew has it."""
    if _is_here(host, ticket):
        attach_interface(host, ticket)


def _is_here(host: LocalHost, ticket: ActionCommand) -> bool:
    found = host.domain(ticket.instance.uuid)
    return found is not None and found.generation == ticket.generation


def _vif(ticket: ActionCommand) -> VIF:
    port_id = ticket.payload["port_id"]
    for vif in ticket.instance.vifs:
        if vif.id == port_id:
            return vif
    raise exceptions.PortNotFound(port_id=port_id, instance_id=ticket.instance.uuid)


def _driver(host: LocalHost) -> AttachingInterfaces:
    if not isinstance(host.driver, AttachingInterfaces):
        raise exceptions.NotImplementedByDriver(operation="attaching interfaces")
    return host.driver


# --- where another service has the ports


def arrive(host: LocalHost, instance: Instance) -> list[VIF]:
    """The instance has come here (or back): its ports are connected here from now on, and plugged as is said now."""
    vifs = bind(host, instance)
    host.driver.plug_vifs(instance, vifs)
    return vifs


def bind(host: LocalHost, instance: Instance) -> list[VIF]:
    """Have another service connect its ports here, from when they are plugged on; how."""
    if all(vif.vif_type is None for vif in instance.vifs):
        return instance.vifs
    return host.retrier.ask(
        f"Instance {instance.uuid}: interfaces_bind",
        lambda: host.conductor.interfaces_bind(get_admin_context(), instance.uuid, host.name),
        lambda: None,
    ).vifs


def plugged(host: LocalHost, instance_uuid: str, vifs: list[VIF], generation: int) -> Callable[[], None] | None:
    """What waits until the network service has connected them; None where nothing is to be waited for."""
    seconds = host.conf.network.vif_plugging_timeout
    if not seconds or not any(vif.vif_type is not None for vif in vifs):
        return None
    return lambda: _wait(host, instance_uuid, generation, seconds)


def _wait(host: LocalHost, instance_uuid: str, generation: int, seconds: float) -> None:
    started = time.monotonic()
    asked = 0
    while time.monotonic() < started + seconds:
        host.fences.check(instance_uuid, generation)
        asked += 1
        if _are_active(host, instance_uuid, asked % ASK_EACH == 0):
            LOG.info("Instance %s: connected after %.1f s", instance_uuid, time.monotonic() - started)
            return
        _PAUSE.wait(POLL_SECONDS)
    if host.conf.network.vif_plugging_is_fatal:
        raise exceptions.VirtualInterfaceCreateException(instance_id=instance_uuid, seconds=seconds)
    LOG.warning("Instance %s runs, although its interfaces were not connected within %d s", instance_uuid, seconds)


def _are_active(host: LocalHost, instance_uuid: str, ask: bool) -> bool:
    try:
        return host.conductor.interfaces_active(get_admin_context(), instance_uuid, host.name, ask)
    except exceptions.ServiceUnavailable as error:
        LOG.info("Instance %s: whether it is connected could not be asked: %s", instance_uuid, error.message)
        return False
