"""Load balancers with real packets: HAProxy in namespaces of two hosts, with members and a client on their network.

A host is a process with network and mounts of its own, so that both have namespaces of the same names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import sealing
from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.objects import (
    Assignment,
    HealthMonitor,
    HostReport,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)
from nova_lite.objects import VIF, Network
from tests.support.certificates import make
from tests.support.waiting import wait_for

NETWORK = Network(
    id="d1111111-2222-4333-8444-555555555555", name="t", cidr="10.77.0.0/24", bridge="brlb", gateway="10.77.0.1"
)
VIP, CLIENT, MEMBERS = "10.77.0.5", "10.77.0.20", ("10.77.0.11", "10.77.0.12")
FABRIC = "brlbfabric"

#: Program of a host: each line of its input is a list of assignments with the seconds of their lease.
_HOST = """
import sys, time
import msgspec
from types import SimpleNamespace
from nova_lite.compute.load_balancer.backends import HAProxyBackend
from nova_lite.load_balancer.objects import Assignments
networks = SimpleNamespace(plug=lambda instance, vifs: None, unplug=lambda uuid: None)
backend = HAProxyBackend(sys.argv[1], "haproxy", networks)
print("ready", flush=True)
for line in sys.stdin:
    wanted = msgspec.json.decode(line, type=Assignments)
    if wanted.lease:
        backend.apply(wanted.balancers, time.monotonic() + wanted.lease)
    print(msgspec.json.encode(backend.report()).decode(), flush=True)
"""
#: Program of a member: replies with its address and the client's, once for each connection.
_MEMBER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{sys.argv[1]} {self.headers.get('X-Forwarded-For')}".encode())
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler).serve_forever()
"""
#: Program of the client: sends as many requests, and prints the replies.
_CLIENT = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for number in range(int(sys.argv[2])):
    try:
        print(opener.open(f"http://{sys.argv[1]}/", timeout=float(sys.argv[3])).read().decode(), flush=True)
    except OSError as error:
        print("failed", error, flush=True)
"""


def run(*command: str, check: bool = True) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 or not check, f"{command}: {result.stderr}"
    return result.stdout


#: Program of a client: sends a request by TLS, and prints the reply.
_TLS_CLIENT = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
with context.wrap_socket(socket.create_connection((sys.argv[1], 443), 2), server_hostname=sys.argv[2]) as connection:
    connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    while data := connection.recv(4096):
        print(data.decode().partition("\\r\\n\\r\\n")[2] if b"HTTP" in data else data.decode(), end="")
"""


class Host:
    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self._link = f"lbh{name}"
        own = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && mount -t sysfs sysfs /sys"
        self._process = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                "sh",
                "-c",
                f'{own} && exec "{sys.executable}" -c "$PROGRAM" "{directory}"',
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PROGRAM": _HOST},
        )
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"
        pid = str(self._process.pid)
        run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "uplink", "netns", pid)
        run("ip", "link", "set", self._link, "master", FABRIC, "up")
        self.inside("ip", "link", "add", NETWORK.bridge, "type", "bridge")
        self.inside("ip", "link", "set", NETWORK.bridge, "up")
        self.inside("ip", "link", "set", "uplink", "master", NETWORK.bridge, "up")

    def inside(self, *command: str, check: bool = True) -> str:
        return run("nsenter", "-t", str(self._process.pid), "--net", "--mount", "--", *command, check=check)

    def apply(self, *assignments: Assignment, lease: float = 30.0) -> HostReport:
        assert self._process.stdin is not None and self._process.stdout is not None
        sent = {"lease": lease, "balancers": msgspec.to_builtins(list(assignments))}
        self._process.stdin.write(json.dumps(sent) + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=HostReport)

    def report(self) -> HostReport:
        return self.apply(lease=0)

    def addresses(self, balancer: LoadBalancer) -> str:
        return self.inside("ip", "-n", f"nova-lite-lb-{balancer.id}", "-4", "-br", "address", check=False)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError, json.JSONDecodeError, msgspec.DecodeError):
            self.apply()
        self._process.kill()
        self._process.wait()
        run("ip", "link", "delete", self._link, check=False)


class Room:
    """Two hosts, two members and a client."""

    def __init__(self, path: Path) -> None:
        run("ip", "link", "add", FABRIC, "type", "bridge")
        run("ip", "link", "set", FABRIC, "up")
        self._spaces: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for number, address in enumerate((CLIENT, *MEMBERS)):
            space = self._spaces[address] = f"lbt-{number}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", f"lbt{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", f"lbt{number}", "master", FABRIC, "up")
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
        for address in MEMBERS:
            self.serve(address)
        self.hosts = [Host(name, path / name) for name in ("a", "b")]
        port = VIF(id=str(uuid.uuid4()), mac_address="fa:16:3e:00:00:05", address=VIP, network=NETWORK)
        self._vif = port

    def serve(self, address: str) -> None:
        command = ["ip", "netns", "exec", self._spaces[address], sys.executable, "-c", _MEMBER, address]
        self.processes[address] = subprocess.Popen(command)

    def requests(self, number: int = 4, timeout: float = 2.0, vip: str = VIP) -> list[str]:
        space = self._spaces[CLIENT]
        out = run("ip", "netns", "exec", space, sys.executable, "-c", _CLIENT, vip, str(number), str(timeout))
        return out.splitlines()

    def assignment(self, balancer: LoadBalancer, active: bool = True, **certificates: str) -> Assignment:
        return Assignment(balancer=balancer, vif=self._vif, active=active, certificates=certificates)

    def encrypted(self, name: str, trusted: Path) -> str:
        """Return the reply to a request by TLS, whose certificate has to be that of ``name``."""
        space = self._spaces[CLIENT]
        command = ["ip", "netns", "exec", space, sys.executable, "-c", _TLS_CLIENT, VIP, name, str(trusted)]
        return run(*command, check=False).strip()

    def close(self) -> None:
        for host in getattr(self, "hosts", []):
            host.close()
        for process in self.processes.values():
            process.kill()
            process.wait()
        for number, space in enumerate(self._spaces.values()):
            run("ip", "netns", "delete", space, check=False)
            run("ip", "link", "delete", f"lbt{number}", check=False)
        run("ip", "link", "delete", FABRIC, check=False)


@pytest.fixture
def room() -> Iterator[Room]:
    if os.geteuid() != 0 or shutil.which("haproxy") is None:
        pytest.skip("needs root and haproxy")
    with contextlib.ExitStack() as closing:
        made = Room.__new__(Room)
        made._spaces, made.processes = {}, {}
        closing.callback(Room.close, made)
        # A short path, for sockets.
        Room.__init__(made, Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="lb"))))
        yield made


def balancer_of(**listener: Any) -> LoadBalancer:
    pool = Pool(id=str(uuid.uuid4()), protocol="HTTP", lb_algorithm="ROUND_ROBIN")
    pool.members = [Member(id=str(uuid.uuid4()), address=address, protocol_port=8080) for address in MEMBERS]
    pool.healthmonitor = HealthMonitor(id=str(uuid.uuid4()), type="HTTP", delay=1, timeout=1, max_retries=1)
    pool.healthmonitor.max_retries_down = 1
    values: dict[str, Any] = {"id": str(uuid.uuid4()), "protocol": "HTTP", "protocol_port": 80} | listener
    one = Listener(**values, default_pool_id=pool.id, insert_headers={"X-Forwarded-For": "true"})
    return LoadBalancer(id=str(uuid.uuid4()), project_id="demo", listeners=[one], pools=[pool])


def served(room: Room, number: int = 4) -> list[str]:
    """Return replies once there are only good ones: members need a moment to start, and to pass their checks."""
    found: list[str] = []

    def good() -> bool:
        found[:] = room.requests(number)
        return not any("failed" in reply for reply in found)

    wait_for("replies", good, 20, 0.2)
    return found


def counted(host: Host, balancer: LoadBalancer) -> int:
    return host.report().balancers[0].counters[balancer.listeners[0].id].total_connections


def test_load_balancer_spreads_requests_and_changes_without_failures(room: Room) -> None:
    host, balancer = room.hosts[0], balancer_of()
    report = host.apply(room.assignment(balancer))
    assert (report.problem, report.balancers[0].problem) == ("", "")
    both = {f"{address} {CLIENT}" for address in MEMBERS}
    wait_for("both members reply", lambda: set(room.requests()) == both, 20, 0.2)
    pid = host.inside("pgrep", "-f", f"{balancer.id}/haproxy.cfg").split()
    user = host.inside("ps", "-o", "user=", "-p", pid[0]).strip()
    assert user == "haproxy"
    # Five changes of the connection limit while a client sends requests: none of them fails.
    found: list[str] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            found.extend(room.requests(20))

    worker = threading.Thread(target=ask)
    worker.start()
    for change in range(1, 6):
        balancer.listeners[0].connection_limit = 1000 + change
        host.apply(room.assignment(balancer))
        seen = len(found)
        wait_for("requests after a change", lambda seen=seen: len(found) > seen, 20, 0.05)
    is_over.set()
    worker.join()
    assert [reply for reply in found if "failed" in reply] == []
    before = counted(host, balancer)
    balancer.listeners[0].connection_limit = 999
    host.apply(room.assignment(balancer))
    room.requests(2)
    assert counted(host, balancer) == before + 2 > 2
    # Members that fail their checks get no requests.
    room.processes[MEMBERS[0]].kill()
    first = balancer.pools[0].members[0].id
    wait_for("the check fails", lambda: host.report().balancers[0].members[first] is False, 20, 0.2)
    assert {reply.split()[0] for reply in room.requests(3)} == {MEMBERS[1]}
    balancer.listeners[0].allowed_cidrs = ["192.0.2.0/24"]
    host.apply(room.assignment(balancer))
    assert all("failed" in reply for reply in room.requests(2))
    host.apply()
    assert host.addresses(balancer) == "" and host.report().balancers == []
    assert host.inside("pgrep", "-f", f"{balancer.id}/haproxy.cfg", check=False) == ""


def test_stand_by_takes_over_when_the_kernel_has_removed_the_address(room: Room) -> None:
    (first, second), balancer = room.hosts, balancer_of()
    first.apply(room.assignment(balancer), lease=6)
    second.apply(room.assignment(balancer, active=False))
    served(room)
    assert VIP in first.addresses(balancer) and VIP not in second.addresses(balancer)
    # The daemon of the first host hangs: its lease is not renewed.
    wait_for("the lease is over", lambda: VIP not in first.addresses(balancer), 10, 0.1)
    assert all("failed" in reply for reply in room.requests(1, timeout=0.5))
    second.apply(room.assignment(balancer))
    assert not any("failed" in reply for reply in served(room))
    # The first host comes back, and is the stand-by now.
    report = first.apply(room.assignment(balancer, active=False))
    assert not report.balancers[0].holds
    assert first.inside("ip", "link", "show", f"tap{room._vif.id[:11]}", check=False) == ""
    assert not any("failed" in reply for reply in room.requests(3))


def test_load_balancer_ends_tls_with_certificates_that_only_the_active_host_has(room: Room, tmp_path: Path) -> None:
    host, balancer = room.hosts[0], balancer_of(protocol="TERMINATED_HTTPS", protocol_port=443)
    (listener,) = balancer.listeners
    made = {name: make(name) for name in ("one.test", "two.test", "three.test")}
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(b"".join(one.certificate for one in made.values()))

    def apply(*names: str) -> HostReport:
        pems = [(made[name].certificate + made[name].key).decode() for name in names]
        listener.certificates = [certificates.digest(pem) for pem in pems]
        box = sealing.seal(host.report().public_key, msgspec.json.encode(pems))
        return host.apply(room.assignment(balancer, True, **{listener.id: box}))

    def files() -> list[Path]:
        return sorted(host.directory.rglob("*.pem"))

    assert apply("one.test", "two.test").balancers[0].problem == ""
    wait_for("replies by TLS", lambda: CLIENT in room.encrypted("one.test", trusted), 20, 0.2)
    assert CLIENT in room.encrypted("two.test", trusted)
    assert [path.stat().st_mode & 0o777 for path in files()] == [0o600, 0o600]
    # An assignment without certificates: the host has them already.
    assert host.apply(room.assignment(balancer)).balancers[0].problem == ""
    assert room.encrypted("three.test", trusted) == ""
    apply("three.test")
    assert CLIENT in room.encrypted("three.test", trusted) and len(files()) == 1
    host.apply(room.assignment(balancer, active=False))
    assert files() == []
    report = host.apply(room.assignment(balancer))
    assert report.balancers[0].problem  # so that the conductor sends them again
