"""Attaching and detaching of interfaces, and the binding of ports of another network service.

The rollback of an attachment is a detachment, and vice versa.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.objects import VIF, ActionCommand, Instance, PCIDevice

LOG = logging.getLogger(__name__)

#: Every `FORWARD_EACH`th query whether all ports are active is forwarded to the network service, because its
#: notifications may be lost.
FORWARD_EACH = 5

_PAUSE = threading.Event()


def attach_interface(host: LocalHost, command: ActionCommand) -> None:
    """Attach the interface ``payload["port_id"]``. An existing interface stays."""
    host.require_domain(command)
    attach, vif, instance = host.driver.interfaces.attach, _vif(command), command.instance
    host.driver.networks.plug(instance, instance.vifs)
    if vif.device is not None:
        _record_devices(host, instance, instance.pci or [])
    attach(instance.uuid, vif)


def detach_interface(host: LocalHost, command: ActionCommand) -> None:
    """Detach the interface ``payload["port_id"]`` from the guest and from its bridge."""
    host.require_domain(command)
    vif, instance = _vif(command), command.instance
    host.driver.interfaces.detach(instance.uuid, vif)
    if vif.device is not None:
        _record_devices(host, instance, [device for device in instance.pci or () if device != vif.device])


def _record_devices(host: LocalHost, instance: Instance, devices: list[PCIDevice]) -> None:
    resources = Resources.of(msgspec.structs.replace(instance, pci=devices))
    host.claims.restore({instance.uuid: resources})
    host.fencing.mark_resized(instance.uuid, resources)


def rollback_attach_interface(host: LocalHost, command: ActionCommand) -> None:
    """Detach an interface whose attachment failed, if the guest exists."""
    if _is_here(host, command):
        detach_interface(host, command)


def rollback_detach_interface(host: LocalHost, command: ActionCommand) -> None:
    """Attach an interface again whose detachment failed, if the guest exists. A guest that is built again has it
    anyway."""
    if _is_here(host, command):
        attach_interface(host, command)


def _is_here(host: LocalHost, command: ActionCommand) -> bool:
    found = host.domain(command.instance.uuid)
    return found is not None and found.generation == command.generation


def _vif(command: ActionCommand) -> VIF:
    port_id = command.payload["port_id"]
    for vif in command.instance.vifs:
        if vif.id == port_id:
            return vif.with_device(command.instance.pci)
    raise exceptions.PortNotFound(port_id=port_id, instance_id=command.instance.uuid)


# --- ports of another network service


def bind_and_plug(host: LocalHost, instance: Instance) -> list[VIF]:
    """Bind the ports of an instance that has moved here, and plug them as the network service requests."""
    vifs = bind(host, instance)
    host.driver.networks.plug(instance, vifs)
    return vifs


def bind(host: LocalHost, instance: Instance) -> list[VIF]:
    """Let another network service bind the instance's ports to this host. Return the bound interfaces."""
    if not any(vif.is_remote for vif in instance.vifs):
        return instance.vifs
    return host.retrier.call(
        f"Instance {instance.uuid}: interfaces_bind",
        lambda: host.conductor.interfaces_bind(get_admin_context(), instance.uuid, host.name),
        lambda: None,
    ).vifs


def plugging_wait(host: LocalHost, instance_uuid: str, vifs: list[VIF], generation: int) -> Callable[[], None] | None:
    """Return a function that waits until the network service has activated the ports. None if there is nothing to wait
    for."""
    seconds = host.conf.network.vif_plugging_timeout
    if not seconds or not any(vif.is_remote for vif in vifs):
        return None
    return lambda: _wait(host, instance_uuid, generation, seconds)


def _wait(host: LocalHost, instance_uuid: str, generation: int, seconds: float) -> None:
    started = time.monotonic()
    polls = 0
    while time.monotonic() < started + seconds:
        host.fencing.check(instance_uuid, generation)
        polls += 1
        if _are_active(host, instance_uuid, polls % FORWARD_EACH == 0):
            LOG.info("Instance %s: connected after %.1f s", instance_uuid, time.monotonic() - started)
            return
        _PAUSE.wait(host.timing.plugging_poll)
    if host.conf.network.vif_plugging_is_fatal:
        raise exceptions.VirtualInterfaceCreateException(instance_id=instance_uuid, seconds=seconds)
    LOG.warning("Instance %s runs, although its interfaces were not active within %d s", instance_uuid, seconds)


def _are_active(host: LocalHost, instance_uuid: str, forward: bool) -> bool:
    try:
        return host.conductor.interfaces_active(get_admin_context(), instance_uuid, host.name, forward)
    except exceptions.ServiceUnavailable as error:
        LOG.info("Instance %s: the state of its interfaces is unknown: %s", instance_uuid, error.message)
        return False
