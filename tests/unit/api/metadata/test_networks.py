"""Guests' networks: a compute daemon passes their sockets, and a worker of the API accepts on them."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite import rpc
from nova_lite.api.http import proxy_protocol, server
from nova_lite.api.http.limits import ClientLimits
from nova_lite.api.http.proxy_protocol import Balancers
from nova_lite.api.metadata import role
from nova_lite.api.metadata.networks import GuestNetworks
from nova_lite.base import ip, unix_sockets
from nova_lite.compute.metadata_sockets import MetadataSockets
from nova_lite.daemon import sockets
from nova_lite.metadata import network_sockets
from tests.support.api_client import make_conf
from tests.support.waiting import wait_for

ONE, TWO = "3cb9bc59-0000-4000-8000-000000000001", "3cb9bc59-0000-4000-8000-000000000002"
REQUEST = b"GET / HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n"


class Host:
    """A compute daemon, whose driver listens at ports of 127.0.0.1."""

    def __init__(self, path: Path, name: str = "h1") -> None:
        self.networks: dict[str, socket.socket] = {}
        self.daemon = MetadataSockets(network_sockets.path(str(path / "sockets"), name), lambda: self.networks)

    def add(self, network_id: str) -> tuple[str, int]:
        """Make a socket of the network, in place of any other, and return its address."""
        self.networks[network_id] = sockets.listen("127.0.0.1", 0)
        address: tuple[str, int] = self.networks[network_id].getsockname()
        return address

    def end(self) -> None:
        self.daemon.close()
        for sock in self.networks.values():
            sock.close()


class Worker:
    """A worker of the API. Each response is the network, and the address, of its request."""

    def __init__(self, path: Path, *hosts: Host, limits: ClientLimits | None = None) -> None:
        self.hosts = hosts
        balancers = Balancers([ip.parse_network("127.0.0.0/8")])
        self.http = server.make_server(None, self._answer, 2, None, limits, balancers=balancers)
        self.http.start()
        conf = make_conf(path)
        conf.set_override("metadata_directory", str(path / "sockets"), "network")
        conf.set_override("host", "h1")
        self.networks = GuestNetworks(conf, self.http)

    @staticmethod
    def _answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{environ[server.NETWORK]} {environ['REMOTE_ADDR']}".encode()]

    def tick(self) -> None:
        """Let both sides do what is due."""
        for _ in range(2):
            self.networks.tick()
            for host in self.hosts:
                host.daemon.tick()
        self.networks.tick()

    def end(self) -> None:
        self.networks.close()
        self.http.stop(1)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    made.daemon.tick()
    yield made
    made.end()


@pytest.fixture
def worker(tmp_path: Path, host: Host) -> Iterator[Worker]:
    made = Worker(tmp_path, host)
    yield made
    made.end()


def connect(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address, 20, ("127.0.0.9", 0))
    sock.sendall(REQUEST)
    return sock


def answer(sock: socket.socket) -> str:
    with sock:
        received = b""
        while data := sock.recv(65536):
            received += data
    return received.partition(b"\r\n\r\n")[2].decode()


def ask(address: tuple[str, int]) -> str:
    return answer(connect(address))


def refuses(address: tuple[str, int]) -> bool:
    try:
        return ask(address) == ""
    except OSError:
        return True


def test_guests_with_equal_addresses_are_told_apart_by_their_networks(host: Host, worker: Worker) -> None:
    one, two = host.add(ONE), host.add(TWO)
    worker.tick()
    assert [ask(address) for address in (one, two, one)] == [f"{item} 127.0.0.9" for item in (ONE, TWO, ONE)]


def test_network_that_comes_later_is_served_and_one_that_goes_is_not(host: Host, worker: Worker) -> None:
    one = host.add(ONE)
    worker.tick()
    two = host.add(TWO)
    host.networks.pop(ONE).close()
    worker.tick()
    assert ask(two).startswith(TWO)
    wait_for("the first network is gone", lambda: refuses(one))


def test_connections_that_wait_in_a_replaced_socket_are_served(host: Host, worker: Worker) -> None:
    first = host.add(ONE)
    worker.tick()
    assert ask(first).startswith(ONE)
    waiting = [connect(first) for _ in range(3)]
    second = host.add(ONE)
    worker.tick()
    assert [answer(sock) for sock in waiting] == [f"{ONE} 127.0.0.9"] * 3
    assert ask(second).startswith(ONE)


def test_connections_wait_while_the_api_restarts(tmp_path: Path, host: Host, worker: Worker) -> None:
    one = host.add(ONE)
    worker.tick()
    assert ask(one).startswith(ONE)
    worker.end()
    waiting = [connect(one) for _ in range(5)]
    successor = Worker(tmp_path, host)
    successor.tick()
    assert [answer(sock) for sock in waiting] == [f"{ONE} 127.0.0.9"] * 5
    successor.end()


def test_sockets_of_a_compute_daemon_are_served_until_its_successor_has_passed_its_own(
    tmp_path: Path, host: Host, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = host.add(ONE), host.add(TWO)
    worker.tick()
    host.end()
    for _ in range(3):
        worker.networks.tick()
    assert [ask(one), ask(two)] == [f"{ONE} 127.0.0.9", f"{TWO} 127.0.0.9"]
    assert len([text for text in caplog.messages if "Changes of guests' networks are not seen" in text]) == 2
    successor = Host(tmp_path)
    new = successor.add(ONE)
    worker.hosts = (successor,)
    worker.tick()
    assert ask(new).startswith(ONE)
    for old in (one, two):
        wait_for("the old socket is closed", lambda old=old: refuses(old))
    successor.end()


def test_guest_with_the_address_of_a_load_balancer_names_no_other_guest(host: Host, worker: Worker) -> None:
    """The worker believes load balancers in 127.0.0.0/8, whose connections begin with the client's address."""
    one = host.add(ONE)
    worker.tick()
    places = socket.inet_aton("127.0.0.7") + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 1, 80)
    header = proxy_protocol.SIGNATURE + struct.pack(">BBH", 0x21, 0x11, len(places)) + places
    with socket.create_connection(one, 20, ("127.0.0.9", 0)) as sock:
        sock.sendall(header + REQUEST)
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert ask(one) == f"{ONE} 127.0.0.9"


def test_limit_of_connections_is_one_guests(tmp_path: Path, host: Host) -> None:
    worker = Worker(tmp_path, host, limits=ClientLimits(connections=1))
    one, two = host.add(ONE), host.add(TWO)
    worker.tick()
    with socket.create_connection(one, 20, ("127.0.0.9", 0)) as first:
        wait_for("it is the only one", lambda: refuses(one))
        assert ask(two).startswith(TWO)
        first.sendall(REQUEST)
        assert first.recv(65536)
    worker.end()


def test_several_compute_daemons_of_a_machine_are_served_by_the_role_api_alone(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Host(tmp_path, "h2")
    other.daemon.tick()
    one, two = host.add(ONE), other.add(ONE)
    served: dict[str, list[bool]] = {}
    for name in (rpc.API, rpc.METADATA):
        monkeypatch.setattr(role, "role_of", lambda conf, name=name: name)
        worker = Worker(tmp_path, host, other)
        worker.tick()
        assert ask(one).startswith(ONE)
        with connect(two) as sock:
            sock.settimeout(0.5)
            try:
                served[name] = [bool(sock.recv(10))]
            except TimeoutError:
                served[name] = [False]
        worker.end()
    assert served == {rpc.API: [True], rpc.METADATA: [False]}
    other.end()


def test_server_of_another_user_is_not_believed(
    host: Host, worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unix_sockets, "is_trusted", lambda sock: False)
    one = host.add(ONE)
    worker.tick()
    with connect(one) as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(10)
    assert "another user's program serves" in caplog.text


def test_machine_without_compute_daemons_has_no_networks(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.tick()
    assert network_sockets.paths(str(tmp_path / "sockets")) == []
    worker.end()


# --- the compute daemon's side


def test_socket_is_for_the_group_of_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "sockets"
    directory.mkdir(mode=0o750)
    os.chown(directory, -1, 12345)
    made = Host(tmp_path)
    made.daemon.tick()
    found = (directory / "h1.sock").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 0o660)
    made.end()


def test_api_that_reads_nothing_gets_the_rest_later(tmp_path: Path, host: Host) -> None:
    sock = sockets.listen("127.0.0.1", 0)
    wanted = {f"3cb9bc59-0000-4000-8000-{number:012}" for number in range(600)}
    host.networks = dict.fromkeys(wanted, sock)
    channel = network_sockets.connect(network_sockets.path(str(tmp_path / "sockets"), "h1"))
    other = network_sockets.connect(network_sockets.path(str(tmp_path / "sockets"), "h1"))
    seen: set[str] = set()
    for _ in range(20):
        host.daemon.tick()
        kinds = read(other, seen)
    assert (seen, kinds) == (wanted, []), "one that reads is not kept waiting"
    seen = set()
    all_kinds = read(channel, seen)
    assert seen < wanted, "the rest did not fit"
    while len(seen) < len(wanted):
        host.daemon.tick()
        all_kinds += read(channel, seen)
    assert all_kinds[-1] == network_sockets.COMPLETE
    channel.close()
    other.close()


def read(channel: Any, seen: set[str]) -> list[bytes]:
    """Read all packets that wait. Return their kinds, and add the networks with sockets to ``seen``."""
    kinds = []
    while True:
        try:
            packet = network_sockets.receive(channel)
        except BlockingIOError:
            return kinds
        assert packet is not None
        kinds.append(packet.kind)
        if packet.sock is not None:
            seen.add(packet.network_id)
            packet.sock.close()


def test_api_that_has_ended_is_forgotten(tmp_path: Path, host: Host) -> None:
    channel = network_sockets.connect(network_sockets.path(str(tmp_path / "sockets"), "h1"))
    host.daemon.tick()
    assert len(host.daemon._apis) == 1
    channel.close()
    host.daemon.tick()
    assert host.daemon._apis == []
