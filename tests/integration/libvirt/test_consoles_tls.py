"""Consoles of a real guest by TLS: the proxy's certificate opens them, and no other."""

from __future__ import annotations

import contextlib
import pwd
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.host_certificates import CONSOLES, Authority
from nova_lite.console import pump, rfb
from nova_lite.console.host_tls import HostTls
from nova_lite.console.opening import ConsoleRefusal, Opener
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from nova_lite.virt.abilities import ConsoleAddress, SpawnSpec
from nova_lite.virt.libvirt.domain import consoles
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeHost, guest_lines, guest_spec
from tests.support.consoles import SPICE_LINK, SPICE_REPLY, accepts_spice
from tests.support.waiting import wait_for

OWNER = "libvirt-qemu"


@pytest.fixture
def pki(directory: Path, second_host: None) -> Iterator[Path]:
    """Make certificates of two hosts and a proxy."""
    path = directory / "pki"
    qemu = pwd.getpwnam(OWNER)
    authority = Authority(str(path / "authority"))
    authority.create()
    for host in ("third", "other"):
        authority.issue(host, [hosts.THIRD], str(path / host), 1, (qemu.pw_uid, qemu.pw_gid))
        authority.issue_console(host, [hosts.THIRD], str(path / host / CONSOLES), (qemu.pw_uid, qemu.pw_gid))
    authority.issue_proxy("proxy", str(path / "proxy"), 1)
    with hosts.third_host(certificates=path / "third"):
        yield path


class Cloud:
    """Fake conductor and compute service, which know the consoles of one guest on host ``third``."""

    def __init__(self, driver: LibvirtDriver, spec: SpawnSpec, console_type: str) -> None:
        self.uuid, self._type = spec.instance.uuid, console_type
        find = {"novnc": driver.consoles.vnc, "serial": driver.consoles.serial, "spice-html5": driver.consoles.spice}
        self.address: ConsoleAddress = find[console_type](self.uuid)

    def console_token_redeem(self, *args: Any) -> ConsoleTarget:
        host, port, _, tls_port = self.address
        console = Console(
            console_type=self._type, host=host, port=port, access_url_base="http://proxy/", tls_port=tls_port
        )
        return ConsoleTarget(instance_uuid=self.uuid, compute_host="third", console=console)

    def find_console_port(self, *args: Any) -> ConsolePort:
        return ConsolePort(is_current=True, tls=self.address.tls or self.address.tls_port is not None)


def host_tls(pki: Path) -> HostTls | None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("tls_directory", str(pki / "proxy"), "console")
    return HostTls.of(conf)


def type_until(sock: socket.socket, command: bytes, text: bytes) -> bytes:
    """Type a command until the guest prints ``text``. The first line starts its shell. Return all that it printed."""
    said = b""
    sock.settimeout(3)
    deadline = time.monotonic() + 120
    pump.write(sock, command + b"\n", 1)
    while text not in said:
        assert time.monotonic() < deadline, said
        try:
            more = sock.recv(4096)
        except TimeoutError:
            pump.write(sock, command + b"\n", 1)
            continue
        assert more, said
        said += more
    return said


def test_real_guest_shows_its_consoles_to_the_proxy_alone(
    pki: Path, make_host: MakeHost, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver is not in the network namespace of its libvirtd, so it cannot try an address there.
    monkeypatch.setattr(consoles, "_is_free", lambda address: True)
    third = make_host(
        "third",
        hosts.THIRD,
        vnc__server_listen=hosts.THIRD,
        vnc__server_proxyclient_address=hosts.THIRD,
        serial_console__enabled=True,
        serial_console__tls=True,
        serial_console__proxyclient_address=hosts.THIRD,
        spice__enabled=True,
        spice__require_secure=True,
        spice__server_listen=hosts.THIRD,
        spice__server_proxyclient_address=hosts.THIRD,
        certificates_directory=str(pki / "third"),
    )
    spec = guest_spec(images, [])
    third.guests.spawn(spec)
    guest_lines(third, spec.instance.uuid)

    screen: Any = Cloud(third, spec, "novnc")
    with Opener(screen, screen, ["novnc"], [], host_tls(pki)).open("/?token=x", None, None).sock as sock:
        assert isinstance(sock, ssl.SSLSocket)
        sock.sendall(b"\x01")  # ClientInit: others may look, too
        width, height = struct.unpack("!HH", sock.recv(4))
        assert width >= 320 and height >= 200

    serial: Any = Cloud(third, spec, "serial")
    assert serial.address.tls
    with Opener(serial, serial, ["serial"], [], host_tls(pki)).open("/?token=x", None, None).sock as sock:
        assert isinstance(sock, ssl.SSLSocket)
        type_until(sock, b"echo the-gu''est-answers", b"the-guest-answers")

    by_spice: Any = Cloud(third, spec, "spice-html5")
    assert by_spice.address.port == 0, "the SPICE server has a port without TLS"
    with Opener(by_spice, by_spice, ["spice-html5"], [], host_tls(pki)).open("/?token=x", None, None).sock as sock:
        assert isinstance(sock, ssl.SSLSocket)
        sock.sendall(SPICE_LINK)
        assert accepts_spice(sock.recv(SPICE_REPLY))
    with pytest.raises(ConsoleRefusal):
        Opener(by_spice, by_spice, ["spice-html5"], [], None).open("/?token=x", None, None)

    attackers = {
        "nobody": (None, None),
        "host by its certificate for migrations": ("other/client-cert.pem", "other/client-key.pem"),
        "host by its certificate for consoles": ("other/consoles/server-cert.pem", "other/consoles/server-key.pem"),
    }
    for certificate, key in attackers.values():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(pki / "proxy/ca-cert.pem")
        if certificate is not None and key is not None:
            context.load_cert_chain(pki / certificate, pki / key)
        assert heard_by_tls(serial.address, context) == b""
        stranger: Any = HostTls(context, True)
        opener = Opener(screen, screen, ["novnc"], [], stranger)
        with pytest.raises(ConsoleRefusal):
            opener.open("/?token=x", None, None)
    plain: Any = Opener(screen, screen, ["novnc"], [], None)
    with plain.open("/?token=x", None, None).sock as sock:
        assert sock.recv(12) == rfb.VERSION
        sock.sendall(rfb.VERSION)
        assert sock.recv(2) == bytes([1, rfb.VENCRYPT]), "the VNC server offers something else than TLS"

    with Opener(serial, serial, ["serial"], [], host_tls(pki)).open("/?token=x", None, None).sock as sock:
        assert b"attack" not in type_until(sock, b"echo nobody-else-typ''ed", b"nobody-else-typed")


def heard_by_tls(address: ConsoleAddress, context: ssl.SSLContext) -> bytes:
    """Type into a serial console, and return what it says until it closes the connection.

    qemu serves one client at a time, and refuses others while it sees off the last one.
    """

    def dialled() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((address.host, address.port), 10)
        return None

    try:
        with wait_for("qemu listens again", dialled, 60) as sock, context.wrap_socket(sock) as secured:
            pump.write(secured, b"echo attack\n", 1)
            return secured.recv(4096)
    except OSError:
        return b""
