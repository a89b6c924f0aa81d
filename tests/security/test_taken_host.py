"""An attacker who has taken a compute host tries all certificates, keys and tokens that lie on it at another host.

Messages and metadata are tried in test_compute_host.py and test_metadata_role.py, ports of migrations in
tests/integration/network/test_migration_peers.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.host_certificates import CONSOLES, Authority
from nova_lite.cmd import send_disks
from nova_lite.console import rfb
from nova_lite.virt.libvirt.disks import offers, transfer
from tests.support.ports import free_port
from tests.support.waiting import wait_for

QEMU = "qemu-system-x86_64"
TAKEN, VICTIM = "taken", "victim"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the certificates of both hosts and of a proxy. The taken host has the directory ``taken``."""
    path = tmp_path_factory.mktemp("pki")
    authority = Authority(str(path / "authority"))
    authority.create()
    for host in (TAKEN, VICTIM):
        authority.issue(host, ["127.0.0.1"], str(path / host), 1)
        authority.issue_console(host, ["127.0.0.1"], str(path / host / CONSOLES))
    authority.issue_proxy("proxy", str(path / "proxy"), 1)
    return path


class Guest:
    """A guest of the victim: a real qemu with the settings that libvirt makes of qemu.conf."""

    def __init__(self, pki: Path) -> None:
        self.display = next(number for number in range(40, 99) if _is_free(5900 + number))
        self.vnc, self.serial = 5900 + self.display, free_port()
        credentials = f"tls-creds-x509,id=tls,dir={pki / VICTIM / CONSOLES},endpoint=server,verify-peer=on"
        serial = f"socket,id=serial,host=127.0.0.1,port={self.serial},server=on,wait=off,tls-creds=tls"
        command = [QEMU, "-S", "-nodefaults", "-accel", "tcg", "-m", "16", "-vga", "std", "-object", credentials]
        command += ["-vnc", f"127.0.0.1:{self.display},tls-creds=tls", "-chardev", serial, "-serial", "chardev:serial"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def dial(self, port: int) -> socket.socket:
        """Connect. qemu serves one client of a serial port at a time, and refuses others meanwhile."""

        def dialled() -> socket.socket | None:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", port), 20)
            assert self.process.poll() is None, "qemu has ended"
            return None

        return wait_for("qemu listens", dialled, 60)

    def shows_serial(self, context: ssl.SSLContext) -> bool:
        """Check whether the serial port keeps a client. A refused one is disconnected at once."""
        with self.dial(self.serial) as sock:
            try:
                with context.wrap_socket(sock) as secured:
                    secured.sendall(b"x")
                    secured.settimeout(3)
                    return secured.recv(1) != b""
            except TimeoutError:
                return True
            except OSError:
                return False

    def shows_screen(self, context: ssl.SSLContext) -> bool:
        with self.dial(self.vnc) as sock:
            try:
                with rfb.connect(sock, context.wrap_socket, need_tls=True) as secured:
                    secured.sendall(b"\x01")
                    return len(secured.recv(4)) == 4
            except (OSError, rfb.RfbError):
                return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="module")
def guest(pki: Path) -> Iterator[Guest]:
    if shutil.which(QEMU) is None:
        pytest.skip("needs qemu")
    made = Guest(pki)
    yield made
    made.process.terminate()
    made.process.wait(20)


def client(pki: Path, certificate: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(pki / "proxy/ca-cert.pem")
    if certificate is not None:
        context.load_cert_chain(certificate, str(certificate).replace("-cert", "-key"))
    return context


def test_consoles_of_another_host_open_for_nothing_that_lies_on_a_taken_host(pki: Path, guest: Guest) -> None:
    keys = sorted((pki / TAKEN).rglob("*-key.pem"))
    assert len(keys) == 3, "the test does not know a key of the host"
    for key in keys:
        context = client(pki, Path(str(key).replace("-key", "-cert")))
        assert not guest.shows_screen(context), key
        assert not guest.shows_serial(context), key
    assert not guest.shows_screen(client(pki, None))
    assert not guest.shows_serial(client(pki, None))
    proxy = client(pki, pki / "proxy/client-cert.pem")
    assert guest.shows_screen(proxy) and guest.shows_serial(proxy), "the test would prove nothing"


def test_vnc_server_of_another_host_offers_no_way_without_tls(guest: Guest) -> None:
    with guest.dial(guest.vnc) as sock:
        sock.settimeout(20)
        assert sock.recv(12) == rfb.VERSION
        sock.sendall(rfb.VERSION)
        assert sock.recv(2) == bytes([1, rfb.VENCRYPT])
        sock.sendall(bytes([rfb.NONE]))
        sock.sendall(b"\x01")
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while more := sock.recv(100):
                said += more
        assert len(said) < 100 and said[:4] in (b"", b"\x00\x00\x00\x01"), "the result is not a refusal"


class Disks:
    """The instances of the victim: the first moves to the taken host, the second moves elsewhere, the third stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moving, self.other, self.staying = (str(uuid.uuid4()) for _ in range(3))
        conf = cfg.ConfigOpts()
        configuration.register_opts(conf)
        conf([], default_config_files=[])
        for name in (self.moving, self.other, self.staying):
            (path / name).mkdir(parents=True)
            for file in ("disk", "disk.config", "console.log", "instance.json"):
                (path / name / file).write_text(f"{file} of {name}")
        (path / offers.BASE).mkdir()
        for image in ("used", "other"):
            (path / offers.BASE / image).write_text(image)
        self.token = transfer.offer(conf, str(path / self.moving), images=["used"]).token
        self.other_token = transfer.offer(conf, str(path / self.other)).token

    def files(self) -> list[str]:
        return sorted(str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file())

    def opened_by(self, value: str) -> set[str]:
        """Return the files that a value of the environment variable opens."""
        opened = set()
        for path in self.files():
            command = f"rsync --server --sender -e.iLsfxCIvu --partial . {path}"
            environment: dict[str, Any] = {"SSH_ORIGINAL_COMMAND": command, offers.VARIABLE: value}
            with contextlib.suppress(offers.OfferError):
                directory, _ = send_disks.allowed(str(self.path), environment)
                opened.add(path)
                assert Path(directory) in {self.path / os.path.dirname(path)}
        return opened


def test_disks_of_another_host_open_for_the_token_of_a_move_alone(tmp_path: Path) -> None:
    disks = Disks(tmp_path / "instances")
    own = f"{disks.moving}:{disks.token}"
    expected = {f"{disks.moving}/disk", f"{disks.moving}/disk.config", f"{offers.BASE}/used"}
    assert disks.opened_by(own) == expected
    marker = (disks.path / disks.moving / transfer.MARKER).read_text()
    for name in (disks.moving, disks.other, disks.staying, offers.BASE, ".", ""):
        for token in ("", "0" * 64, marker, disks.token if name != disks.moving else "1" * 64):
            assert disks.opened_by(f"{name}:{token}") == set(), (name, token)
    transfer.withdraw(str(disks.path / disks.moving))
    assert disks.opened_by(own) == set(), "the move is over"
