"""A real dnsmasq answers from the files of names."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.reversename
import pytest

from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.net import names_of_guests
from tests.support.waiting import wait_for

DOMAIN = "cloud.test"


class Resolver:
    """dnsmasq with the files of a network, at a port of this machine."""

    def __init__(self, path: Path) -> None:
        self.names = str(path / "names")
        (path / "servers").write_text("".join(f"{line}\n" for line in names_of_guests.servers(DOMAIN)))
        self.write()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        options = [f"--port={self.port}", f"--addn-hosts={self.names}", f"--servers-file={path / 'servers'}"]
        fixed = ["--listen-address=127.0.0.1", "--bind-interfaces", "--no-hosts", "--no-resolv", "--user=root"]
        self.process = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", *options, *fixed]
        )
        wait_for("dnsmasq answers", lambda: self.answers("a", "A"))

    def write(self, *members: str) -> None:
        known = ["10.0.0.4 a ", "10.0.0.5 a ", "fd00::4 a net.org."]
        lists = {"n1": NetworkMembers(members=[*known, *members])}
        names_of_guests.write(self.names, names_of_guests.texts(lists, [], DOMAIN)["n1"], "h1")

    def answers(self, name: str, kind: str) -> list[str]:
        query = dns.message.make_query(name, kind)
        try:
            reply = dns.query.tcp(query, "127.0.0.1", 30, port=self.port)
        except (dns.exception.DNSException, EOFError, OSError):
            return []
        return sorted(str(item) for answer in reply.answer for item in answer)


@pytest.fixture
def resolver(tmp_path: Path) -> Iterator[Resolver]:
    made = Resolver(tmp_path)
    yield made
    made.process.terminate()
    made.process.wait(10)


def test_guests_resolve_names_addresses_and_changes(resolver: Resolver) -> None:
    assert resolver.answers("A.Cloud.Test", "A") == resolver.answers("a", "A") == ["10.0.0.4", "10.0.0.5"]
    assert resolver.answers("a.net.org", "AAAA") == ["fd00::4"]
    assert resolver.answers(dns.reversename.from_address("10.0.0.5").to_text(), "PTR") == ["a.cloud.test."]
    assert resolver.answers(dns.reversename.from_address("fd00::4").to_text(), "PTR") == ["a.net.org."]
    assert resolver.answers("b.cloud.test", "A") == []
    resolver.write("10.0.0.6 b ")
    resolver.process.send_signal(signal.SIGHUP)
    wait_for("dnsmasq reads its file again", lambda: resolver.answers("b.cloud.test", "A") == ["10.0.0.6"])
    reply = dns.query.tcp(dns.message.make_query("unknown.cloud.test", "A"), "127.0.0.1", 30, port=resolver.port)
    assert reply.rcode() == dns.rcode.NXDOMAIN, "no other server is asked for the cloud's own domain"
