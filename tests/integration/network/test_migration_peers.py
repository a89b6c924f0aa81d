"""Ports of live migrations, as other hosts reach them, in network namespaces with the real nft."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from nova_lite.virt.libvirt.net import migration_peers
from tests.integration.network.room import within_patience

Result = TypeVar("Result")

OWN, SOURCE, OTHER = "198.18.5.1", "198.18.5.2", "198.18.5.3"
#: Address of the host in another network than that of migrations.
SECOND = "198.18.5.9"
LIBVIRTD, QEMU = migration_peers.LIBVIRTD_PORT, migration_peers.QEMU_PORTS[0] + 5
NETNS = "/var/run/netns"


def inside(name: str, act: Callable[[], Result]) -> Result:
    """Do something in a network namespace, and return its result. A thread has a namespace of its own."""
    results: list[Any] = []

    def enter() -> None:
        descriptor = os.open(f"{NETNS}/{name}", os.O_RDONLY)
        try:
            _setns(descriptor)
            results.append(act())
        except BaseException as error:
            results.append(error)
        finally:
            os.close(descriptor)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    (result,) = results
    if isinstance(result, BaseException):
        raise result
    return result  # type: ignore[no-any-return]


def _setns(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


class Lan:
    """Three hosts on a bridge: the one with the filter, the source of a migration, and another one."""

    def __init__(self) -> None:
        run = uuid.uuid4().hex[:6]
        self.names = {address: f"nlt{run}-{number}" for number, address in enumerate((OWN, SOURCE, OTHER))}
        self.listening: list[socket.socket] = []

    def make(self) -> None:
        own = self.names[OWN]
        for name in self.names.values():
            run("ip", "netns", "add", name)
        run("ip", "-n", own, "link", "add", "br0", "type", "bridge")
        for number, address in enumerate((SOURCE, OTHER)):
            peer = self.names[address]
            run("ip", "-n", own, "link", "add", f"p{number}", "type", "veth", "peer", "name", "eth0", "netns", peer)
            run("ip", "-n", own, "link", "set", f"p{number}", "master", "br0", "up")
            run("ip", "-n", peer, "address", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", peer, "link", "set", "eth0", "up")
        for address in (OWN, SECOND):
            run("ip", "-n", own, "address", "add", f"{address}/24", "dev", "br0")
        for link in ("br0", "lo"):
            run("ip", "-n", own, "link", "set", link, "up")
        for port in (LIBVIRTD, QEMU, 22022):
            self.listen(OWN, "0.0.0.0", port)
        self.listen(SOURCE, SOURCE, 5672)

    def listen(self, where: str, address: str, port: int) -> None:
        self.listening.append(inside(self.names[where], lambda: socket.create_server((address, port), backlog=50)))

    def close(self) -> None:
        for sock in self.listening:
            sock.close()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def allow(self, *peers: str) -> None:
        """Load the filter for these sources."""
        command = ["ip", "netns", "exec", self.names[OWN], "nft", "-f", "-"]
        rules = migration_peers.ruleset("nova_lite_migrations_h", OWN, list(peers))
        subprocess.run(command, input=rules, text=True, check=True)

    def connect(self, source: str, port: int, address: str = OWN, own_port: int = 0) -> socket.socket:
        def dial() -> socket.socket:
            return socket.create_connection((address, port), 1, ("0.0.0.0", own_port) if own_port else None)

        return inside(self.names[source], dial)

    def reaches(self, source: str, port: int, address: str = OWN) -> bool:
        with contextlib.suppress(TimeoutError):
            self.connect(source, port, address).close()
            return True
        return False

    def comes_to_reach(self, source: str, port: int, address: str = OWN) -> bool:
        return within_patience(lambda: self.reaches(source, port, address))


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


@pytest.fixture
def lan() -> Iterator[Lan]:
    if os.geteuid() or not all(map(shutil.which, ("ip", "nft"))):
        pytest.skip("needs root, ip and nft")
    made = Lan()
    try:
        made.make()
        yield made
    finally:
        made.close()


def test_ports_of_migrations_are_open_for_the_source_of_one_alone(lan: Lan) -> None:
    for port in (LIBVIRTD, QEMU):
        assert lan.comes_to_reach(OTHER, port), "the test would prove nothing"
    lan.allow()
    for port in (LIBVIRTD, QEMU):
        assert not lan.reaches(SOURCE, port)
        assert lan.comes_to_reach(OWN, port), "the host itself is shut out"
    assert not lan.reaches(OTHER, LIBVIRTD, SECOND), "libvirtd may listen at all addresses"
    lan.allow(SOURCE)
    for port in (LIBVIRTD, QEMU):
        assert lan.comes_to_reach(SOURCE, port)
        assert not lan.reaches(OTHER, port)
    assert lan.comes_to_reach(OTHER, 22022)
    assert lan.comes_to_reach(OTHER, QEMU, SECOND), "other programs use these ports at other addresses"


def test_connection_does_not_outlive_its_migration(lan: Lan) -> None:
    lan.allow(SOURCE)
    with lan.connect(SOURCE, LIBVIRTD) as kept:
        accepted, _ = lan.listening[0].accept()
        with accepted:
            accepted.settimeout(1)
            kept.sendall(b"a command")
            assert accepted.recv(100) == b"a command"
            lan.allow()
            kept.sendall(b"another one")
            with pytest.raises(TimeoutError):
                accepted.recv(100)


def test_connection_of_the_host_from_such_a_port_goes_on(lan: Lan) -> None:
    """The kernel gives these ports to clients, too, such as a daemon that talks to the broker."""
    lan.allow()
    with lan.connect(OWN, 5672, SOURCE, own_port=QEMU + 1) as broker:
        accepted, _ = lan.listening[-1].accept()
        with accepted:
            accepted.sendall(b"a message")
            broker.settimeout(5)
            assert broker.recv(100) == b"a message"
