"""Screens and serial ports in a domain's XML, and the choice of ports for serial consoles."""

from __future__ import annotations

import socket
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.host_certificates import Authority
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import Image, LiveDestination
from nova_lite.virt.abilities import ConsoleAddress
from nova_lite.virt.libvirt.disks.disks import DiskSet
from nova_lite.virt.libvirt.domain import consoles, guest_xml
from nova_lite.virt.libvirt.domain.consoles import Consoles, Listeners, SpiceListener
from tests.support.guests import make_spec

LOG = "/instances/u/console.log"


class Connection:
    """Executes calls and stores defined domains."""

    def __init__(self) -> None:
        self.defined: list[str] = []

    def call(self, method: Any, *args: Any) -> Any:
        return method(*args)

    def connect_call(self, name: str, *args: Any) -> None:
        assert name == "defineXMLFlags"
        self.defined.append(args[0])


class Domain:
    def __init__(self, xml: str, saved: bool = False) -> None:
        self.xml = self.saved_xml = xml
        self.saved = saved

    def name(self) -> str:
        return "instance-u"

    def XMLDesc(self, flags: int) -> str:
        return self.xml

    def hasManagedSaveImage(self, flags: int) -> bool:
        return self.saved

    def managedSaveGetXMLDesc(self, flags: int) -> str:
        return self.saved_xml

    def managedSaveDefineXML(self, xml: str, flags: int) -> None:
        self.saved_xml = xml


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Three free consecutive ports."""
    for first in range(40000, 60000, 3):
        if all(consoles._is_free(ConsoleAddress("127.0.0.1", first + offset)) for offset in range(3)):
            yield [first, first + 1, first + 2]
            return


@pytest.fixture
def host(conf: cfg.ConfigOpts, connection: Connection, ports: list[int]) -> Consoles:
    conf.set_override("enabled", True, "serial_console")
    conf.set_override("port_range", f"{ports[0]}:{ports[-1]}", "serial_console")
    return Consoles(conf, connection)  # type: ignore[arg-type]


def build(listeners: Listeners = consoles.NONE) -> ET.Element:
    disks = DiskSet(disks=[], direct_boot=None)
    xml = guest_xml.guest_xml(make_spec(), "host", "/instances/u", disks, "qemu", 0, listeners)
    return ET.fromstring(xml)


def serial_port(xml: str) -> int:
    found = consoles.serial_address(ET.fromstring(xml))
    assert found is not None
    return found.port


def test_guest_without_consoles_has_only_a_log() -> None:
    devices = build().find("devices")
    assert devices is not None
    assert devices.find(f"serial[@type='pty']/log[@file='{LOG}']") is not None
    assert devices.find("graphics") is None and devices.find("video") is None


def test_guest_with_a_screen() -> None:
    devices = build(Listeners(vnc="192.0.2.7")).find("devices")
    assert devices is not None
    (graphics,) = devices.findall("graphics")
    assert graphics.attrib == {"type": "vnc", "autoport": "yes", "listen": "192.0.2.7"}
    assert [listen.attrib for listen in graphics] == [{"type": "address", "address": "192.0.2.7"}]
    assert devices.find("video/model[@type='vga']") is not None


@pytest.mark.parametrize(("secure", "more"), [(False, {}), (True, {"defaultMode": "secure"})])
def test_guest_with_spice_has_its_card_and_the_channel_of_its_agent(secure: bool, more: dict[str, str]) -> None:
    devices = build(Listeners(spice=SpiceListener("192.0.2.7", secure))).find("devices")
    assert devices is not None
    (graphics,) = devices.findall("graphics")
    assert graphics.attrib == {"type": "spice", "autoport": "yes", "listen": "192.0.2.7"} | more
    assert [listen.attrib for listen in graphics] == [{"type": "address", "address": "192.0.2.7"}]
    (channel,) = devices.findall("channel[@type='spicevmc']")
    assert [target.attrib for target in channel] == [{"type": "virtio", "name": "com.redhat.spice.0"}]
    assert [model.attrib for model in devices.findall("video/model")] == [{"type": "qxl"}]


def test_guest_with_spice_and_vnc_has_one_graphics_card() -> None:
    devices = build(Listeners(vnc="192.0.2.7", spice=SpiceListener("192.0.2.7"))).find("devices")
    assert devices is not None
    assert [graphics.get("type") for graphics in devices.findall("graphics")] == ["vnc", "spice"]
    assert [model.attrib for model in devices.findall("video/model")] == [{"type": "qxl"}]


def test_guest_with_spice_has_the_graphics_card_of_its_image() -> None:
    spec = make_spec(image=Image(id="i", name="i", disk_format="raw", properties={"hw_video_model": "virtio"}))
    listeners = Listeners(spice=SpiceListener("192.0.2.7"))
    disks = DiskSet(disks=[], direct_boot=None)
    root = ET.fromstring(guest_xml.guest_xml(spec, "host", "/instances/u", disks, "qemu", 0, listeners))
    assert [model.attrib for model in root.findall("devices/video/model")] == [{"type": "virtio"}]


def test_guest_with_a_serial_port_still_logs_its_output() -> None:
    (serial,) = build(Listeners(serial=ConsoleAddress("192.0.2.7", 10003))).findall("devices/serial")
    assert [(element.tag, element.attrib) for element in serial] == [
        ("source", {"mode": "bind", "host": "192.0.2.7", "service": "10003"}),
        ("protocol", {"type": "raw"}),
        ("log", {"file": LOG, "append": "on"}),
        ("target", {"port": "0"}),
    ]
    assert serial.get("type") == "tcp"


@pytest.mark.parametrize(("tls", "attributes"), [(True, {"tls": "yes"}), (False, {})])
def test_serial_port_of_a_guest_speaks_tls_by_the_option(
    conf: cfg.ConfigOpts, host: Consoles, ports: list[int], tls: bool, attributes: dict[str, str]
) -> None:
    """Leave the decision to ``chardev_tls`` of qemu.conf without the option."""
    conf.set_override("tls", tls, "serial_console")
    root = build(host.listeners())
    (source,) = root.findall("devices/serial/source")
    assert source.attrib == {"mode": "bind", "host": "127.0.0.1", "service": str(ports[0])} | attributes
    assert host.serial(ET.tostring(root, encoding="unicode")) == ConsoleAddress("127.0.0.1", ports[0], tls)


def test_serial_tls_without_certificates_is_a_configuration_error(
    conf: cfg.ConfigOpts, host: Consoles, tmp_path: Path
) -> None:
    conf.set_override("certificates_directory", str(tmp_path), "libvirt")
    conf.set_override("tls", True, "serial_console")
    with pytest.raises(exceptions.ConfigurationError, match=r"lacks ca-cert.pem, server-cert.pem, server-key.pem\."):
        host.check()
    authority = Authority(str(tmp_path / "authority"))
    authority.create()
    authority.issue_console("host", ["192.0.2.1"], str(tmp_path / "consoles"))
    host.check()


def test_listeners_follow_the_options(conf: cfg.ConfigOpts, host: Consoles, ports: list[int]) -> None:
    conf.set_override("server_listen", "192.0.2.7", "vnc")
    assert host.listeners() == Listeners("192.0.2.7", ConsoleAddress("127.0.0.1", ports[0]))
    conf.set_override("enabled", False, "vnc")
    conf.set_override("enabled", False, "serial_console")
    assert host.listeners() == consoles.NONE
    for name, value in (("enabled", True), ("server_listen", "192.0.2.7"), ("require_secure", True)):
        conf.set_override(name, value, "spice")
    assert host.listeners() == Listeners(spice=SpiceListener("192.0.2.7", True))


@pytest.mark.parametrize("text", ["2:1", "0:1", "1:65536", "70000:70001"])
def test_invalid_port_range_is_a_configuration_error(conf: cfg.ConfigOpts, connection: Connection, text: str) -> None:
    conf.set_override("port_range", text, "serial_console")
    with pytest.raises(exceptions.ConfigurationError, match="port_range"):
        Consoles(conf, connection).check()  # type: ignore[arg-type]


def test_vnc_address_of_a_guest(conf: cfg.ConfigOpts, host: Consoles) -> None:
    conf.set_override("server_proxyclient_address", "192.0.2.8", "vnc")
    xml = "<domain><devices><graphics type='spice' port='1'/><graphics type='vnc' port='5903'/></devices></domain>"
    assert host.vnc(xml) == ConsoleAddress("192.0.2.8", 5903)
    for other in (xml.replace("vnc", "sdl"), xml.replace("5903", "-1")):
        with pytest.raises(exceptions.ConsoleTypeUnavailable, match="novnc"):
            host.vnc(other)


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ("port='5903'", (5903, None)),
        ("port='5903' tlsPort='5904'", (5903, 5904)),
        ("tlsPort='5904'", (0, 5904)),
        ("port='-1' tlsPort='5904'", (0, 5904)),
    ],
)
def test_spice_address_of_a_guest(
    conf: cfg.ConfigOpts, host: Consoles, attributes: str, found: tuple[int, int | None]
) -> None:
    conf.set_override("server_proxyclient_address", "192.0.2.8", "spice")
    xml = f"<domain><devices><graphics type='vnc' port='1'/><graphics type='spice' {attributes}/></devices></domain>"
    assert host.spice(xml) == ConsoleAddress("192.0.2.8", found[0], tls_port=found[1])


@pytest.mark.parametrize("graphics", ["", "<graphics type='vnc' port='1'/>", "<graphics type='spice' port='-1'/>"])
def test_guest_without_spice_has_no_address_of_it(host: Consoles, graphics: str) -> None:
    with pytest.raises(exceptions.ConsoleTypeUnavailable, match="spice-html5"):
        host.spice(f"<domain><devices>{graphics}</devices></domain>")


def test_serial_address_of_a_guest(host: Consoles) -> None:
    xml = ET.tostring(build(Listeners(serial=ConsoleAddress("192.0.2.7", 10003))), encoding="unicode")
    assert host.serial(xml) == ConsoleAddress("127.0.0.1", 10003)
    with pytest.raises(exceptions.ConsoleTypeUnavailable, match="serial"):
        host.serial(ET.tostring(build(), encoding="unicode"))


def test_serial_ports_are_unique_and_free(host: Consoles, ports: list[int]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[1]))
        other.listen()
        given = [host.listeners().serial.port for _ in range(2)]  # type: ignore[union-attr]
        assert given == [ports[0], ports[2]]
        with pytest.raises(exceptions.VirtDriverError, match="are taken"):
            host.listeners()


def test_unused_reserved_port_is_assigned_again(
    conf: cfg.ConfigOpts, connection: Connection, host: Consoles, ports: list[int]
) -> None:
    host = Consoles(conf, connection, LibvirtTiming(console_port_reservation=0.0))  # type: ignore[arg-type]
    assert [host.listeners().serial.port for _ in range(5)] == [ports[0]] * 5  # type: ignore[union-attr]


@pytest.mark.parametrize("saved", [False, True])
def test_guest_with_a_used_port_gets_another_at_its_start(
    host: Consoles, connection: Connection, ports: list[int], saved: bool
) -> None:
    xml = ET.tostring(build(host.listeners()), encoding="unicode")
    domain = Domain(xml, saved=saved)
    host.ensure_free_port(domain, domain.XMLDesc(0))
    assert connection.defined == []
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))
        other.listen()
        host.ensure_free_port(domain, domain.XMLDesc(0))
        assert [serial_port(xml) for xml in connection.defined] == [ports[1]]
        assert serial_port(domain.saved_xml) == (ports[1] if saved else ports[0])
        without = ET.tostring(build(), encoding="unicode")
        host.ensure_free_port(Domain(without), without)
        assert len(connection.defined) == 1


GOING = """<domain><devices>
  <serial type='tcp'><source mode='bind' host='127.0.0.1' service='10000' tls='no'/><protocol type='raw'/>
    <log file='/a'/><target type='isa-serial' port='0'/></serial>
  <console type='tcp'><source mode='bind' host='127.0.0.1' service='10000' tls='no'/><protocol type='raw'/>
    <log file='/a'/><target type='serial' port='0'/></console>
  <graphics type='vnc' port='5900' autoport='yes' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/>
  </graphics>
  <graphics type='spice' autoport='yes' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>
</devices></domain>"""


def going_to(**values: Any) -> ET.Element:
    root = ET.fromstring(GOING)
    there = LiveDestination(driver="libvirt", host="two", generation=2, address="192.0.2.2", **values)
    consoles.set_destination(root, there)
    return root


def test_migrated_guest_listens_at_the_destinations_addresses() -> None:
    root = going_to(vnc_listen="192.0.2.9", serial_listen="192.0.2.9", serial_port=11000)
    graphics = root.find("devices/graphics")
    assert graphics is not None
    assert graphics.get("listen") == "192.0.2.9"
    assert [listen.get("address") for listen in graphics] == ["192.0.2.9"]
    for tag in ("serial", "console"):
        sources = root.findall(f"devices/{tag}/source")
        assert [source.attrib for source in sources] == [{"mode": "bind", "host": "192.0.2.9", "service": "11000"}]
        assert len(root.findall(f"devices/{tag}/protocol")) == 1
        assert root.find(f"devices/{tag}/log") is not None


@pytest.mark.parametrize(("listen", "found"), [("192.0.2.9", "192.0.2.9"), ("", "127.0.0.1")])
def test_migrated_guest_keeps_spice_and_listens_at_the_destinations_address(listen: str, found: str) -> None:
    root = going_to(vnc_listen="192.0.2.10", spice_listen=listen)
    (graphics,) = root.findall("devices/graphics[@type='spice']")
    assert (graphics.get("listen"), [item.get("address") for item in graphics]) == (found, [found])


def test_destination_without_serial_consoles_only_logs() -> None:
    root = going_to()
    for tag in ("serial", "console"):
        (port,) = root.findall(f"devices/{tag}")
        assert port.get("type") == "pty" and [element.tag for element in port] == ["log", "target"]
    assert root.find("devices/graphics[@listen='127.0.0.1']") is not None


@pytest.mark.parametrize(("tls", "found"), [(True, "yes"), (False, None)])
def test_migrated_guest_has_the_tls_of_its_destination(tls: bool, found: str | None) -> None:
    root = going_to(serial_listen="192.0.2.9", serial_port=11000, serial_tls=tls)
    assert [source.get("tls") for source in root.iterfind("devices/*/source")] == [found, found]
