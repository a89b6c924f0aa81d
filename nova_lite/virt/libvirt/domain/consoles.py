"""A guest's VNC or SPICE screen and serial port: their elements in the domain, and their addresses while it runs.

libvirt finds a port for each VNC and SPICE server when the guest starts. For serial ports this module chooses one, and
checks it at each start, because another guest may use it by then.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import libvirt
from oslo_config import cfg

from nova_lite.base import exceptions, host_certificates
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.objects import LiveDestination
from nova_lite.virt.abilities import ConsoleAddress
from nova_lite.virt.libvirt.connection import Connection

LOG = logging.getLogger(__name__)


class SpiceListener(NamedTuple):
    """Listen address of a domain's SPICE server. ``is_secure``: it has no port without TLS."""

    address: str
    is_secure: bool = False


class Listeners(NamedTuple):
    """Listen addresses of a domain's consoles.

    ``vnc``: the address, None for a guest without VNC. ``serial``: None for a serial port that is only logged.
    ``spice``: None for a guest without SPICE.
    """

    vnc: str | None = None
    serial: ConsoleAddress | None = None
    spice: SpiceListener | None = None


NONE = Listeners()

#: Channel of SPICE's agent in the guest.
AGENT_CHANNEL = "com.redhat.spice.0"


class Consoles:
    def __init__(self, conf: cfg.ConfigOpts, connection: Connection, timing: LibvirtTiming = TIMING.libvirt) -> None:
        self._reservation = timing.console_port_reservation
        self._vnc = conf.vnc
        self._serial = conf.serial_console
        self._spice = conf.spice
        self._libvirt = conf.libvirt
        self._connection = connection
        self._lock = threading.Lock()
        self._reserved: dict[int, float] = {}

    def check(self) -> None:
        """Check the options. Raises `ConfigurationError`."""
        if self._serial.tls:
            self._check_certificate()
        first, last = self._range()
        if not 0 < first <= last < 65536:
            raise exceptions.ConfigurationError(
                reason=f"[serial_console] port_range = {self._serial.port_range}: must be FIRST:LAST, two ports."
            )

    def _check_certificate(self) -> None:
        directory = os.path.join(self._libvirt.certificates_directory, host_certificates.CONSOLES)
        missing = [
            name for name in host_certificates.CONSOLE_FILES if not os.path.exists(os.path.join(directory, name))
        ]
        if missing:
            raise exceptions.ConfigurationError(
                reason=f"[serial_console] tls: {directory} lacks {', '.join(missing)}. "
                "nova-lite-manage certificates create makes them."
            )

    def listeners(self) -> Listeners:
        """Return the listen addresses of a guest that is created here or arrives here now."""
        vnc = self._vnc.server_listen if self._vnc.enabled else None
        spice = SpiceListener(self._spice.server_listen, self._spice.require_secure) if self._spice.enabled else None
        return Listeners(vnc, self._choose() if self._serial.enabled else None, spice)

    # --- a running guest

    def vnc(self, xml: str) -> ConsoleAddress:
        """Return the address for the console proxy. ``xml``: of the domain."""
        graphics = ET.fromstring(xml).find("devices/graphics[@type='vnc']")  # noqa: S314 libvirt's own
        port = -1 if graphics is None else int(graphics.get("port", "-1"))
        if port < 0:
            raise exceptions.ConsoleTypeUnavailable(console_type="novnc")
        return ConsoleAddress(self._vnc.server_proxyclient_address, port)

    def serial(self, xml: str) -> ConsoleAddress:
        found = serial_address(ET.fromstring(xml))  # noqa: S314 libvirt's own
        if found is None:
            raise exceptions.ConsoleTypeUnavailable(console_type="serial")
        return ConsoleAddress(self._serial.proxyclient_address, found.port, found.tls)

    def spice(self, xml: str) -> ConsoleAddress:
        graphics = ET.fromstring(xml).find("devices/graphics[@type='spice']")  # noqa: S314 libvirt's own
        port, tls_port = (max(0, int(_attribute(graphics, name))) for name in ("port", "tlsPort"))
        if not port and not tls_port:
            raise exceptions.ConsoleTypeUnavailable(console_type="spice-html5")
        return ConsoleAddress(self._spice.server_proxyclient_address, port, tls_port=tls_port or None)

    # --- before the start of a guest

    def ensure_free_port(self, domain: Any, xml: str) -> None:
        """Give a domain that is off another port for its serial console if its port is in use.

        ``xml``: its definition, with secrets.
        """
        address = serial_address(ET.fromstring(xml))  # noqa: S314 libvirt's own
        if address is None or self._is_mine(address):
            return
        other = self._choose()
        LOG.info("Domain %s: port %d is in use, so its serial console gets %d", domain.name(), address.port, other.port)
        self._connection.connect_call("defineXMLFlags", with_serial(xml, other), 0)
        if self._connection.call(domain.hasManagedSaveImage, 0):
            saved = self._connection.call(domain.managedSaveGetXMLDesc, libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)
            self._connection.call(domain.managedSaveDefineXML, with_serial(saved, other), 0)

    def saved_xml(self, path: str, xml: str) -> str:
        """Return the definition in a file of saved memory, with the serial console's address of the definition
        ``xml``."""
        flags = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE
        saved = str(self._connection.connect_call("saveImageGetXMLDesc", path, flags))
        address = serial_address(ET.fromstring(xml))  # noqa: S314 libvirt's own
        return saved if address is None else with_serial(saved, address)

    def _is_mine(self, address: ConsoleAddress) -> bool:
        """Check whether the port is free, or reserved for this new guest. Renews the reservation."""
        with self._lock:
            if not _is_free(address):
                return False
            self._reserved[address.port] = time.monotonic() + self._reservation
            return True

    def _choose(self) -> ConsoleAddress:
        """Choose a free port and reserve it for a while. Raises `VirtDriverError`."""
        first, last = self._range()
        with self._lock:
            now = time.monotonic()
            self._reserved = {port: until for port, until in self._reserved.items() if until > now}
            for port in range(first, last + 1):
                address = ConsoleAddress(self._serial.proxyclient_address, port, self._serial.tls)
                if port not in self._reserved and _is_free(address):
                    self._reserved[port] = now + self._reservation
                    return address
        raise exceptions.VirtDriverError(reason=f"all ports of [serial_console] port_range {first}:{last} are taken")

    def _range(self) -> tuple[int, int]:
        first, _, last = self._serial.port_range.partition(":")
        return int(first), int(last)


def _is_free(address: ConsoleAddress) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return False
    return True


# --- XML


def _attribute(graphics: ET.Element | None, name: str) -> str:
    return "0" if graphics is None else graphics.get(name, "0")


def add(devices: ET.Element, listeners: Listeners, console_log: str) -> None:
    """Add the first serial port, whose output is always logged, and the screen with its graphics card.

    With SPICE the card is a QXL, as in Nova, and the guest has a channel for SPICE's agent.
    """
    serial = ET.SubElement(devices, "serial", type="pty")
    ET.SubElement(serial, "log", file=console_log, append="on")
    ET.SubElement(serial, "target", port="0")
    if listeners.serial is not None:
        _listen(serial, listeners.serial)
    if listeners.vnc is not None:
        _graphics(devices, "vnc", listeners.vnc)
    if listeners.spice is not None:
        graphics = _graphics(devices, "spice", listeners.spice.address)
        if listeners.spice.is_secure:
            graphics.set("defaultMode", "secure")
        channel = ET.SubElement(devices, "channel", type="spicevmc")
        ET.SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
    if listeners.vnc is not None or listeners.spice is not None:
        card = "vga" if listeners.spice is None else "qxl"
        ET.SubElement(ET.SubElement(devices, "video"), "model", type=card)


def _graphics(devices: ET.Element, kind: str, address: str) -> ET.Element:
    graphics = ET.SubElement(devices, "graphics", type=kind, autoport="yes", listen=address)
    ET.SubElement(graphics, "listen", type="address", address=address)
    return graphics


def serial_address(domain: ET.Element) -> ConsoleAddress | None:
    source = domain.find("devices/serial[@type='tcp']/source[@mode='bind']")
    if source is None:
        return None
    return ConsoleAddress(source.get("host", ""), int(source.get("service", "0")), source.get("tls") == "yes")


def with_serial(xml: str, address: ConsoleAddress) -> str:
    root = ET.fromstring(xml)  # noqa: S314 libvirt's own
    for serial in _serials(root):
        _listen(serial, address)
    return ET.tostring(root, encoding="unicode")


def set_destination(domain: ET.Element, destination: LiveDestination) -> None:
    """Set the listen addresses of a guest that moves to another host to those of the destination."""
    listeners = {"vnc": destination.vnc_listen, "spice": destination.spice_listen}
    for graphics in domain.iterfind("devices/graphics"):
        if wanted := listeners.get(graphics.get("type", "")):
            graphics.set("listen", wanted)
            for listen in graphics.findall("listen"):
                graphics.remove(listen)
            ET.SubElement(graphics, "listen", type="address", address=wanted)
    for serial in _serials(domain):
        if destination.serial_port is not None:
            address = ConsoleAddress(destination.serial_listen, destination.serial_port, destination.serial_tls)
            _listen(serial, address)
        else:
            serial.set("type", "pty")
            for tag in ("source", "protocol"):
                for element in serial.findall(tag):
                    serial.remove(element)


def _serials(domain: ET.Element) -> list[ET.Element]:
    """Return both elements of the first serial port if it is reached by TCP: libvirt lists it as a console, too."""
    return [*domain.findall("devices/serial[@type='tcp']"), *domain.findall("devices/console[@type='tcp']")]


def _listen(serial: ET.Element, address: ConsoleAddress) -> None:
    serial.set("type", "tcp")
    for tag in ("source", "protocol"):
        for element in serial.findall(tag):
            serial.remove(element)
    source = ET.Element("source", mode="bind", host=address.host, service=str(address.port))
    if address.tls:  # otherwise chardev_tls of qemu.conf decides
        source.set("tls", "yes")
    serial.insert(0, source)
    serial.insert(1, ET.Element("protocol", type="raw"))
