"""Consoles of a host's guests."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.manager import ComputeManager
from nova_lite.objects import Console
from nova_lite.virt.driver import ComputeDriver
from tests.support.compute_host import UUID, FakeConductor, Host


def test_vnc_console_of_a_running_guest(host: Host) -> None:
    host.conf.set_override("server_proxyclient_address", "192.0.2.5", "vnc")
    host.conf.set_override("novncproxy_base_url", "https://proxy/vnc.html", "vnc")
    with pytest.raises(exceptions.DomainNotFound):
        host.manager.get_vnc_console(host.context, UUID, "novnc")
    host.built()
    host.control(console_ports={"novnc": 5904})
    assert host.manager.get_vnc_console(host.context, UUID, "novnc") == Console(
        console_type="novnc", host="192.0.2.5", port=5904, access_url_base="https://proxy/vnc.html"
    )
    with pytest.raises(exceptions.ConsoleTypeInvalid, match="Invalid console type xvpvnc"):
        host.manager.get_vnc_console(host.context, UUID, "xvpvnc")
    host.conf.set_override("enabled", False, "vnc")
    with pytest.raises(exceptions.ConsoleTypeUnavailable, match=r"Unavailable console type novnc\."):
        host.manager.get_vnc_console(host.context, UUID, "novnc")


def test_serial_console_of_a_running_guest(host: Host) -> None:
    host.built()
    with pytest.raises(exceptions.ConsoleTypeUnavailable):
        host.manager.get_serial_console(host.context, UUID, "serial")
    host.conf.set_override("enabled", True, "serial_console")
    assert host.manager.get_serial_console(host.context, UUID, "serial") == Console(
        console_type="serial", host="127.0.0.1", port=10000, access_url_base="ws://127.0.0.1:6083/"
    )
    with pytest.raises(exceptions.ConsoleTypeInvalid):
        host.manager.get_serial_console(host.context, UUID, "novnc")


@pytest.mark.parametrize(
    ("console_type", "url"),
    [("spice-html5", "http://127.0.0.1:6082/spice_auto.html"), ("spice-direct", "https://kerbside/nova")],
)
def test_spice_console_of_a_running_guest(host: Host, console_type: str, url: str) -> None:
    host.conf.set_override("spice_direct_proxy_base_url", "https://kerbside/nova", "spice")
    host.built()
    with pytest.raises(exceptions.ConsoleTypeUnavailable):
        host.manager.get_spice_console(host.context, UUID, console_type)
    host.conf.set_override("enabled", True, "spice")
    assert host.manager.get_spice_console(host.context, UUID, console_type) == Console(
        console_type=console_type, host="127.0.0.1", port=5910, access_url_base=url, tls_port=5911
    )
    with pytest.raises(exceptions.ConsoleTypeInvalid):
        host.manager.get_spice_console(host.context, UUID, "novnc")


def test_both_spice_ports_belong_to_the_guest_and_one_has_tls(host: Host) -> None:
    host.built()
    host.conf.set_override("enabled", True, "spice")
    found = [host.manager.find_console_port(host.context, UUID, port, "spice-html5") for port in (5910, 5911, 5912)]
    assert [port.is_current for port in found] == [True, True, False]
    assert [port.tls for port in found] == [False, True, False]
    assert not host.manager.find_console_port(host.context, UUID, 5910, "novnc").is_current


def test_paused_guest_has_consoles_and_a_stopped_one_has_none(host: Host) -> None:
    host.built()
    host.driver.standby.pause(UUID)
    host.manager.get_vnc_console(host.context, UUID, "novnc")
    host.driver.power.off(UUID, 0)
    with pytest.raises(exceptions.InstanceInvalidState, match=r"'get_vnc_console' .* power state shutdown"):
        host.manager.get_vnc_console(host.context, UUID, "novnc")


def test_console_port_belongs_to_one_guest(host: Host) -> None:
    def is_at(port: int, console_type: str = "novnc", uuid: str = UUID) -> bool:
        return host.manager.find_console_port(host.context, uuid, port, console_type).is_current

    assert not is_at(5900)
    host.built()
    assert is_at(5900)
    assert not is_at(5901)
    assert not is_at(5900, "serial")
    assert not is_at(5900, "rdp-html5")
    assert not is_at(5900, uuid="another")
    host.driver.power.off(UUID, 0)
    assert not is_at(5900)


def test_driver_without_consoles_is_an_error(host: Host) -> None:
    host.conf.set_override("enabled", True, "serial_console")
    bare = ComputeDriver(host.conf, "host-b", host.driver.fetch_image)
    mute = ComputeManager(host.conf, "host-b", bare, FakeConductor(), host.images)  # type: ignore[arg-type]
    with pytest.raises(exceptions.NotImplementedByDriver):
        mute.get_vnc_console(host.context, UUID, "novnc")
    with pytest.raises(exceptions.NotImplementedByDriver):
        mute.get_serial_console(host.context, UUID, "serial")
