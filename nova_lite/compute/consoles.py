"""Consoles of this host's guests: addresses and access URLs. Reads only, so it takes no instance lock."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.objects import Console, ConsolePort
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import ConsoleAddress

NOVNC = "novnc"
SERIAL = "serial"
SPICE_HTML5 = "spice-html5"
SPICE_DIRECT = "spice-direct"


def vnc(host: LocalHost, instance_uuid: str, console_type: str) -> Console:
    """Return the VNC console of a guest. Raises the errors of `_vnc`."""
    return _console(NOVNC, _vnc(host, instance_uuid, console_type), host.conf.vnc.novncproxy_base_url)


def serial(host: LocalHost, instance_uuid: str, console_type: str) -> Console:
    """Return the serial console of a guest. Raises the errors of `_vnc`."""
    return _console(SERIAL, _serial(host, instance_uuid, console_type), host.conf.serial_console.base_url)


def spice(host: LocalHost, instance_uuid: str, console_type: str) -> Console:
    """Return the SPICE console of a guest, for our proxy or another project's. Raises the errors of `_vnc`."""
    address, options = _spice(host, instance_uuid, console_type), host.conf.spice
    is_direct = console_type == SPICE_DIRECT
    return _console(
        console_type, address, options.spice_direct_proxy_base_url if is_direct else options.html5proxy_base_url
    )


def find_port(host: LocalHost, instance_uuid: str, port: int, console_type: str) -> ConsolePort:
    """Check whether the console of this type is at this port."""
    find = {NOVNC: _vnc, SERIAL: _serial, SPICE_HTML5: _spice}.get(console_type)
    if find is None:
        return ConsolePort(is_current=False)
    try:
        address = find(host, instance_uuid, console_type)
    except (exceptions.Invalid, exceptions.Conflict, exceptions.DomainNotFound):
        return ConsolePort(is_current=False)
    has_tls = address.tls or port == address.tls_port
    return ConsolePort(is_current=port in (address.port, address.tls_port), tls=has_tls)


def _vnc(host: LocalHost, instance_uuid: str, console_type: str) -> ConsoleAddress:
    """Return the address of a guest's VNC console.

    Raises `ConsoleTypeInvalid`, `ConsoleTypeUnavailable`, `InstanceInvalidState` or `DomainNotFound`.
    """
    if console_type != NOVNC:
        raise exceptions.ConsoleTypeInvalid(console_type=console_type)
    if not host.conf.vnc.enabled:
        raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
    find = host.driver.consoles.vnc
    _check_running(host, instance_uuid, "get_vnc_console")
    return find(instance_uuid)


def _serial(host: LocalHost, instance_uuid: str, console_type: str) -> ConsoleAddress:
    """Return the address of a guest's serial console. Raises the same errors as `_vnc`."""
    if console_type != SERIAL:
        raise exceptions.ConsoleTypeInvalid(console_type=console_type)
    if not host.conf.serial_console.enabled:
        raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
    find = host.driver.consoles.serial
    _check_running(host, instance_uuid, "get_serial_console")
    return find(instance_uuid)


def _spice(host: LocalHost, instance_uuid: str, console_type: str) -> ConsoleAddress:
    """Return the addresses of a guest's SPICE server. Raises the same errors as `_vnc`."""
    if console_type not in (SPICE_HTML5, SPICE_DIRECT):
        raise exceptions.ConsoleTypeInvalid(console_type=console_type)
    if not host.conf.spice.enabled:
        raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
    find = host.driver.consoles.spice
    _check_running(host, instance_uuid, "get_spice_console")
    return find(instance_uuid)


def _check_running(host: LocalHost, instance_uuid: str, method: str) -> None:
    state = host.driver.guests.get(instance_uuid).power_state
    if state not in (PowerState.RUNNING, PowerState.PAUSED):
        raise exceptions.InstanceInvalidState(
            method=method, instance_id=instance_uuid, attr="power state", state=state.name.lower()
        )


def _console(console_type: str, address: ConsoleAddress, access_url_base: str) -> Console:
    return Console(
        console_type=console_type,
        host=address.host,
        port=address.port,
        access_url_base=str(access_url_base),
        tls_port=address.tls_port,
    )
