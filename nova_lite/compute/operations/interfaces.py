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


def attach_interface(host: LocalHost, command: ActionCommand) -> None:
    """``payload["port_id"]``: which of the instance's interfaces. One that is there stays."""
    host.require_domain(command)
    driver, vif = _driver(host), _vif(command)
    host.driver.plug_vifs(command.instance, command.instance.vifs)
    driver.attach_interface(command.instance.uuid, vif)


def detach_interface(host: LocalHost, command: ActionCommand) -> None:
    """Nothing of it is left here, on its bridge either."""
    host.require_domain(command)
    _driver(host).detach_interface(command.instance.uuid, _vif(command))


def rollback_attach_interface(host: LocalHost, command: ActionCommand) -> None:
    """An attach has failed: detached, as far as there is a guest."""
    if _is_here(host, command):
        detach_interface(host, command)


def rollback_detach_interface(host: LocalHost, command: ActionCommand) -> None:
    """A detach has failed: attached, as far as there is a guest; one that is made anew has it."""
    if _is_here(host, command):
        attach_interface(host, command)


def _is_here(host: LocalHost, command: ActionCommand) -> bool:
    found = host.domain(command.instance.uuid)
    return found is not None and found.generation == command.generation


def _vif(command: ActionCommand) -> VIF:
    port_id = command.payload["port_id"]
    for vif in command.instance.vifs:
        if vif.id == port_id:
            return vif
    raise exceptions.PortNotFound(port_id=port_id, instance_id=command.instance.uuid)


def _driver(host: LocalHost) -> AttachingInterfaces:
    if not isinstance(host.driver, AttachingInterfaces):
        raise exceptions.NotImplementedByDriver(operation="attaching interfaces")
    return host.driver


# --- where another service has the ports


def bind_and_plug(host: LocalHost, instance: Instance) -> list[VIF]:
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


def plugging_wait(host: LocalHost, instance_uuid: str, vifs: list[VIF], generation: int) -> Callable[[], None] | None:
    """What waits until the network service has connected them; None where nothing is to be waited for."""
    seconds = host.conf.network.vif_plugging_timeout
    if not seconds or not any(vif.vif_type is not None for vif in vifs):
        return None
    return lambda: _wait(host, instance_uuid, generation, seconds)


def _wait(host: LocalHost, instance_uuid: str, generation: int, seconds: float) -> None:
    started = time.monotonic()
    asked = 0
    while time.monotonic() < started + seconds:
        host.fencing.check(instance_uuid, generation)
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
