"""Ports of live migrations with ``live_migration_tls``: a guest comes from a host of the cloud, and goes to one, or not
at all.

The guests are qemus with the settings that libvirt makes for VIR_MIGRATE_TLS. Certificates of whole hosts are tried in
tests/integration/libvirt/test_live_migration_tls.py, packet filters in tests/integration/network.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base.host_certificates import CONSOLES, Authority
from tests.support.ports import free_port
from tests.support.waiting import wait_for

QEMU = "qemu-system-x86_64"
SOURCE, DESTINATION = "source", "destination"
#: First bytes of a guest that is sent in plain text, and of a TLS connection.
PLAIN, TLS = b"QEVM", b"\x16\x03"

pytestmark = pytest.mark.skipif(shutil.which(QEMU) is None, reason="no qemu")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the certificates of both hosts, and those of an authority of the attacker, who trusts ours, too."""
    path = tmp_path_factory.mktemp("pki")
    ours, other = Authority(str(path / "authority")), Authority(str(path / "other"))
    for authority in (ours, other):
        authority.create()
    for host in (SOURCE, DESTINATION):
        ours.issue(host, ["127.0.0.1"], str(path / host), 1)
        ours.issue_console(host, ["127.0.0.1"], str(path / host / CONSOLES))
        other.issue(host, ["127.0.0.1"], str(path / f"foreign-{host}"), 1)
        with open(path / f"foreign-{host}" / "ca-cert.pem", "ab") as file:
            file.write((path / host / "ca-cert.pem").read_bytes())
    return path


class Guest:
    """A qemu with its monitor. ``certificates``: with those in this directory its migrations use TLS."""

    def __init__(self, path: Path, certificates: Path | None, endpoint: str) -> None:
        self.port = free_port()
        monitor = path / "monitor"
        command = [QEMU, "-S", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "16"]
        command += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        if certificates is not None:
            credentials = f"tls-creds-x509,id=tls,dir={certificates},endpoint={endpoint},verify-peer=on"
            # An attacker's own qemu does not judge its certificates.
            command += ["-object", f"{credentials},sanity-check={'off' if 'foreign' in certificates.name else 'on'}"]
        if endpoint == "server":
            command += ["-incoming", "defer"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        wait_for("a connection to the monitor", lambda: self._connects(str(monitor)), 60)
        self._lines = self._socket.makefile("rw")
        self("qmp_capabilities")
        if certificates is not None:
            self("migrate-set-parameters", **{"tls-creds": "tls"})
        if endpoint == "server":
            self("migrate-incoming", uri=f"tcp:127.0.0.1:{self.port}")

    def _connects(self, monitor: str) -> bool:
        assert self.process.poll() is None, "qemu has ended"
        with contextlib.suppress(OSError):
            self._socket.connect(monitor)
            return True
        return False

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._lines.flush()
        while line := self._lines.readline():
            said = json.loads(line)
            assert "error" not in said, said
            if "return" in said:
                return dict(said["return"])
        raise AssertionError("qemu has ended")

    def sends(self, port: int) -> str:
        """Send the guest to a port. Return how that ended."""
        self("migrate", uri=f"tcp:127.0.0.1:{port}")
        wait_for("the end of the migration", lambda: self("query-migrate").get("status") in ("completed", "failed"), 60)
        return str(self("query-migrate")["status"])

    @property
    def has_guest(self) -> bool:
        """Check whether a guest has arrived. A qemu that reads something else than a guest ends."""
        try:
            return bool(self("query-status")["status"] != "inmigrate")
        except (OSError, AssertionError):
            self.process.wait(20)
            return False

    def stop(self) -> None:
        self._socket.close()
        self.process.kill()
        self.process.wait(20)


MakeGuest = Callable[[Path | None, str], Guest]


@pytest.fixture
def make_guest(tmp_path: Path) -> Iterator[MakeGuest]:
    made: list[Guest] = []
    numbers = itertools.count()

    def make(certificates: Path | None, endpoint: str) -> Guest:
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        made.append(Guest(directory, certificates, endpoint))
        return made[-1]

    yield make
    for guest in made:
        guest.stop()


def test_guest_moves_between_hosts_of_the_cloud(pki: Path, make_guest: MakeGuest) -> None:
    destination, source = make_guest(pki / DESTINATION, "server"), make_guest(pki / SOURCE, "client")
    assert source.sends(destination.port) == "completed"
    wait_for("the guest at the destination", lambda: destination.has_guest, 60)


@pytest.mark.parametrize("certificates", [None, f"foreign-{SOURCE}"])
def test_guest_of_an_attacker_is_not_accepted(pki: Path, make_guest: MakeGuest, certificates: str | None) -> None:
    """The attacker sends a guest to the port at which a host waits for one, without TLS or with a foreign
    certificate."""
    destination = make_guest(pki / DESTINATION, "server")
    attacker = make_guest(pki / certificates if certificates else None, "client")
    # A sender in plain text may have written all of a small guest before the other side hangs up.
    attacker.sends(destination.port)
    assert not destination.has_guest
    source = make_guest(pki / SOURCE, "client")
    assert source.sends(destination.port) == "completed", "the attack ended the migration that it waited for"


@pytest.mark.parametrize("certificates", [None, f"foreign-{DESTINATION}", f"{DESTINATION}/{CONSOLES}"])
def test_guest_is_not_sent_to_somebody_in_place_of_its_destination(
    pki: Path, make_guest: MakeGuest, certificates: str | None
) -> None:
    attacker = make_guest(pki / certificates if certificates else None, "server")
    source = make_guest(pki / SOURCE, "client")
    assert source.sends(attacker.port) == "failed"
    assert not attacker.has_guest


@pytest.mark.parametrize(("certificates", "first"), [(SOURCE, TLS), (None, PLAIN)])
def test_listener_without_tls_sees_nothing_of_a_guest(
    pki: Path, make_guest: MakeGuest, certificates: str | None, first: bytes
) -> None:
    source = make_guest(pki / certificates if certificates else None, "client")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        source("migrate", uri=f"tcp:127.0.0.1:{listening.getsockname()[1]}")
        with listening.accept()[0] as accepted:
            accepted.settimeout(60)
            data = accepted.recv(65536)
    assert data.startswith(first)
    assert (PLAIN in data) == (certificates is None)
