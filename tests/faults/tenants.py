"""Two projects with equal addresses lose a host: ``failover.sh --tenants``.

Each has a network with the same range, a router, and a load balancer in front of two real guests on two hosts, all with
floating addresses. Clients outside, and the guest that stays, ask each of them several times a second. Then the host of
one guest of each project, and of one load balancer, is lost. It comes back later.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from tests.faults import matrix, tenants_report
from tests.faults.fabric import ADDRESS, CLIENTS, HOST_ADDRESS, INTERFACE, OUTSIDE, Fabric, NetworkedMachine, mac_of
from tests.faults.real_failover import CONFIG, CUT_POWER, LIMIT, POLL, PROTECTED, RealCloud
from tests.faults.real_failover import WAYS as WAYS_OF_LOSS
from tests.faults.tenants_report import BALANCER, GUEST, INSIDE, LOST, STAYED, WAYS, Answer, Row
from tests.functional import cloud
from tests.integration import guest_image
from tests.support.ports import free_port
from tests.support.waiting import wait_for

OPTIONS = """
[DEFAULT]
wings = load_balancer
[network]
backend = local
public_interface = {interface}
project_vnis = 100-199
[api]
enabled_apis = osapi_compute, network, load_balancer
load_balancer_port = {port}
"""
HOST_OPTIONS = f"\n[DEFAULT]\nmy_ip = {HOST_ADDRESS}\n"

PROJECTS = ("red", "blue")
#: Addresses in both projects. The first guest is on the host that is lost.
RANGE, GUESTS, VIP = "10.0.0.0/24", ("10.0.0.11", "10.0.0.12"), "10.0.0.100"

#: Seconds for which all ways answer before the loss, and at its end; and for which the host that is back is observed.
STEADY, AFTERWARDS = 10.0, 45.0
#: Seconds after which each way has to answer again.
BACK = 240.0

#: Program of a guest: it answers with its name, and asks others, if it is the guest that stays.
SERVE = """#!/bin/sh
mkdir -p /run/www
echo {name} >/run/www/index.html
httpd -h /run/www
ask() {{
    while :; do
        answer=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 3 nc -w 2 "$2" 80 2>/dev/null | tail -n 1)
        echo "asked $1: ${{answer:--}}"
        usleep 300000
    done
}}
"""
ASK = f"ask vip {VIP} &\nask guest {GUESTS[0]} &\n"
ASKED = {"asked vip: ": INSIDE, "asked guest: ": GUEST}

#: Program of the clients outside: asks each address four times a second, with one connection at a time.
CLIENT = """
import http.client, json, sys, threading, time
lock = threading.Lock()
def ask(project, way, address):
    while True:
        began = time.monotonic()
        connection = http.client.HTTPConnection(address, 80, timeout=2)
        try:
            connection.request("GET", "/")
            text = connection.getresponse().read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            text = type(error).__name__
        finally:
            connection.close()
        with lock:
            print(json.dumps([project, way, time.monotonic(), text]), flush=True)
        time.sleep(max(0, began + 0.25 - time.monotonic()))
for arguments in json.loads(sys.argv[1]):
    threading.Thread(target=ask, args=arguments).start()
"""

#: Program that asks for the owners of addresses twice a second, and prints who answers.
WHO_HAS = """
import ipaddress, json, socket, sys, time
interface, source, *addresses = sys.argv[1:]
packed = [ipaddress.ip_address(item).packed for item in (source, *addresses)]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as raw:
    raw.bind((interface, 0x0806))
    raw.settimeout(0.1)
    mac, due = raw.getsockname()[4], 0
    while True:
        if time.monotonic() >= due:
            due = time.monotonic() + 0.5
            for wanted in packed[1:]:
                head = b"\\xff" * 6 + mac + bytes.fromhex("08060001080006040001")
                raw.send(head + mac + packed[0] + bytes(6) + wanted)
        try:
            frame = raw.recv(100)
        except TimeoutError:
            continue
        if frame[20:22] == b"\\0\\2" and frame[28:32] in packed[1:]:
            owner = str(ipaddress.ip_address(frame[28:32])), frame[22:28].hex(":")
            print(json.dumps([time.monotonic(), *owner]), flush=True)
"""


class Ears:
    """Collects the lines of JSON that programs in the namespace of clients print."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._programs: list[subprocess.Popen[str]] = []

    def start(self, program: str, *arguments: str) -> list[Any]:
        """Start a program, and return its growing list."""
        command = ["ip", "netns", "exec", self._fabric.clients, sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._programs.append(process)
        found: list[Any] = []

        def read() -> None:
            assert process.stdout is not None
            found.extend(map(json.loads, process.stdout))

        threading.Thread(target=read, daemon=True).start()
        return found

    def close(self) -> None:
        for process in self._programs:
            process.kill()
            process.wait()


class Consoles:
    """Reads what guests say on their consoles about connections of theirs. ``guests``: projects by guests' ids."""

    def __init__(self, real: RealCloud, guests: dict[str, str]) -> None:
        self._real, self._guests = real, guests
        self._seen: collections.Counter[str] = collections.Counter()
        self._stop = threading.Event()
        self.answers: list[Answer] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.wait(0.1):
            for guest, project in self._guests.items():
                lines = self._real.console(guest).split("\n")[:-1]
                for text in lines[self._seen[guest] :]:
                    for beginning, way in ASKED.items():
                        if text.startswith(beginning):
                            self.answers.append(
                                Answer(project, way, time.monotonic(), text.removeprefix(beginning).strip())
                            )
                self._seen[guest] = len(lines)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)


class Tenant:
    """A project, as its member makes it. ``addresses``: floating addresses by ways."""

    def __init__(self, running: cloud.Cloud, name: str, outside: str, balancer_port: int) -> None:
        self.name, self._running, self._outside = name, running, outside
        self._balancers = f"http://127.0.0.1:{balancer_port}/v2/lbaas/loadbalancers"
        self.addresses: dict[str, str] = {}
        self.servers: list[str] = []
        network = self._make("network", name="inner")
        self.network_id = network["id"]
        self._subnet = self._make("subnet", network_id=self.network_id, cidr=RANGE, ip_version=4)["id"]
        router = self._make("router", external_gateway_info={"network_id": outside})["id"]
        call(running, "PUT", f"/routers/{router}/add_router_interface", {"subnet_id": self._subnet}, self.member)
        (group,) = call(running, "GET", "/security-groups?name=default", None, self.member)["security_groups"]
        rule = {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp"}
        self._make("security_group_rule", security_group_id=group["id"], **rule)
        self.balancer = self._make_balancer()

    @property
    def member(self) -> str:
        return f"{self.name}:{self.name}"

    def _make(self, kind: str, **values: Any) -> dict[str, Any]:
        path = f"/{kind.replace('_', '-')}s" if "_" in kind else f"/{kind}s"
        made: dict[str, Any] = call(self._running, "POST", path, {kind: values}, self.member)[kind]
        return made

    def _make_balancer(self) -> str:
        members = [{"address": address, "protocol_port": 80} for address in GUESTS]
        monitor = {"type": "HTTP", "delay": 2, "timeout": 2, "max_retries": 1, "max_retries_down": 1}
        pool = {"protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN", "members": members, "healthmonitor": monitor}
        listener = {"protocol": "HTTP", "protocol_port": 80, "default_pool": pool}
        body = {"name": "web", "vip_subnet_id": self._subnet, "vip_address": VIP, "listeners": [listener]}
        answer = self._ask_balancers("POST", "", {"loadbalancer": body})
        return str(answer["id"])

    def _ask_balancers(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"X-Auth-Token": self.member}
        answer = requests.request(method, self._balancers + path, json=body, headers=headers, timeout=60)
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()["loadbalancer"]
        return found

    def balancer_is_ready(self) -> bool:
        return bool(self._ask_balancers("GET", f"/{self.balancer}")["provisioning_status"] == "ACTIVE")

    def balancer_host(self) -> str:
        port = self._ask_balancers("GET", f"/{self.balancer}")["vip_port_id"]
        shown = call(self._running, "GET", f"/ports/{port}", None, f"admin:{self.name}")["port"]
        return str(shown["binding:host_id"])

    def add_server(self, number: int, host: str) -> None:
        program = SERVE.format(name=f"{self.name}-{number + 1}") + ("wait\n" if not number else f"{ASK}wait\n")
        self._running.token = f"admin:{self.name}"  # An admin chooses the host.
        self.servers += self._running.create(
            f"{self.name}-{number + 1}",
            availability_zone=f"nova:{host}",
            networks=[{"uuid": self.network_id, "fixed_ip": GUESTS[number]}],
            metadata=PROTECTED,
            config_drive=True,
            user_data=base64.b64encode(program.encode()).decode(),
        )

    def wait_active(self) -> None:
        self._running.token = f"admin:{self.name}"
        self._running.wait_active(self.servers, LIMIT, POLL)

    def add_addresses(self) -> None:
        for way, server in zip((LOST, STAYED), self.servers, strict=True):
            (port,) = call(self._running, "GET", f"/ports?device_id={server}", None, self.member)["ports"]
            self._float(way, port["id"])
        self._float(BALANCER, self._ask_balancers("GET", f"/{self.balancer}")["vip_port_id"])

    def _float(self, way: str, port: str) -> None:
        made = self._make("floatingip", floating_network_id=self._outside, port_id=port)
        self.addresses[way] = made["floating_ip_address"]


def call(running: cloud.Cloud, method: str, path: str, body: Any, token: str) -> Any:
    """Send a request to the network API."""
    url, headers = f"http://127.0.0.1:{running.network_port}/v2.0{path}", {"X-Auth-Token": token}
    answer = requests.request(method, url, json=body, headers=headers, timeout=60)
    assert answer.ok, f"{method} {path}: {answer.text}"
    return answer.json()


def make_outside(running: cloud.Cloud) -> str:
    """Make the external network. Return its id."""
    body = {"network": {"name": "outside", "router:external": True}}
    made: str = call(running, "POST", "/networks", body, "admin:admin")["network"]["id"]
    subnet = {"network_id": made, "cidr": OUTSIDE, "ip_version": 4, "enable_dhcp": False}
    call(running, "POST", "/subnets", {"subnet": subnet}, "admin:admin")
    return made


class Scene:
    """Cloud of both projects, and its clients. The first host has the first guests, the second one the others."""

    def __init__(self, real: RealCloud, fabric: Fabric, port: int, stack: contextlib.ExitStack) -> None:
        running = real.cloud
        self._real, outside = real, make_outside(running)
        self.tenants = [Tenant(running, name, outside, port) for name in PROJECTS]
        for tenant in self.tenants:
            wait_for(f"the load balancer of {tenant.name} is there", tenant.balancer_is_ready, LIMIT, POLL)
        self.lost, self._kept, *_ = running.computes
        found = [tenant.balancer_host() for tenant in self.tenants]
        assert found == [self.lost, self._kept], f"load balancers are on {found}"
        for tenant in self.tenants:
            for number, host in enumerate((self.lost, self._kept)):
                tenant.add_server(number, host)
        for tenant in self.tenants:
            tenant.wait_active()
            tenant.add_addresses()
        self._guests = {f"{name}-{number}": name for name in PROJECTS for number in (1, 2)}
        ears = Ears(fabric)
        stack.callback(ears.close)
        asked = [(item.name, way, address) for item in self.tenants for way, address in item.addresses.items()]
        self._outside = ears.start(CLIENT, json.dumps(asked))
        self._owners = ears.start(WHO_HAS, INTERFACE, CLIENTS, *(address for _, _, address in asked))
        self._inside = Consoles(real, {tenant.servers[1]: tenant.name for tenant in self.tenants})
        stack.callback(self._inside.close)

    def answers(self) -> list[Answer]:
        return [Answer(*item) for item in list(self._outside)] + list(self._inside.answers)

    def rows(self, since: float, until: float) -> dict[tuple[str, str], Row]:
        by_way: dict[tuple[str, str], list[Answer]] = {(name, way): [] for name in PROJECTS for way in WAYS}
        for item in self.answers():
            by_way[item.project, item.way].append(item)
        return {key: tenants_report.row_of(items, self._guests, since, until) for key, items in by_way.items()}

    def owners(self, since: float) -> list[tuple[float, str, str]]:
        """Return answers to ARP requests: seconds since then, addresses, and MAC addresses."""
        return [(at - since, address, who) for at, address, who in list(self._owners) if at > since]

    def wait_steady(self, what: str, since: float) -> None:
        """Wait until all ways have answered well for some seconds, which begin after ``since``."""

        def is_steady() -> bool:
            now = time.monotonic()
            rows = self.rows(now - STEADY, now).values()
            return now - STEADY > since and all(row.connections > 1 and not row.failed for row in rows)

        try:
            wait_for(what, is_steady, LIMIT, 0.5)
        except AssertionError as error:
            now = time.monotonic()
            table = [tenants_report.line(*key, row) for key, row in self.rows(now - STEADY, now).items()]
            raise AssertionError("\n".join([str(error), *table])) from None


def run(scene: Scene, real: RealCloud, how: str) -> list[str]:
    """Lose the host, print the table, and let the host return. Return what is wrong."""
    ids = [server for tenant in scene.tenants for server in tenant.servers]
    scene.wait_steady("all ways answer before the loss", time.monotonic())
    wait_for("guests are confirmed", lambda: real.confirmed(ids), LIMIT, POLL)
    lost_at = time.monotonic()
    real.lose(scene.lost, how)
    with contextlib.suppress(AssertionError):  # The table shows which way does not.
        scene.wait_steady("all ways answer again", lost_at)
    until = time.monotonic()
    wrong = show(f"Host {scene.lost} is lost: {how}.", scene.rows(lost_at, until))
    for tenant in scene.tenants:
        tenant.wait_active()
    returned = time.monotonic()
    real.bring_back(scene.lost)
    scene.wait_steady("all ways answer after the return of the host", time.monotonic() + AFTERWARDS)
    wrong += show("The host is back.", scene.rows(returned, time.monotonic()))
    return wrong + tenants_report.conflicts(scene.owners(lost_at), mac_of(1))


def show(title: str, rows: dict[tuple[str, str], Row]) -> list[str]:
    """Print a table, and return what is wrong in it."""
    print("\n".join([title, "", tenants_report.HEAD]))
    print("\n".join(tenants_report.line(*key, row) for key, row in rows.items()), flush=True)
    return tenants_report.problems(rows, BACK)


@contextlib.contextmanager
def cloud_on(fabric: Fabric, path: Path, computes: int, port: int) -> Iterator[RealCloud]:
    config = CONFIG.replace("[network]\nbackend = none\n", "") + OPTIONS.format(interface=INTERFACE, port=port)
    machine = functools.partial(NetworkedMachine, fabric)
    real = RealCloud(path, computes, config, HOST_OPTIONS, machine, address=ADDRESS)
    try:
        real.start(guest_image.build(path))
        yield real
    finally:
        real.stop()


def main(computes: int, how: str) -> int:
    """Lose a host in the first way that has ``how`` in its name. Return the exit code."""
    way = next((way for way in (CUT_POWER, *WAYS_OF_LOSS) if how in way), None)
    if way is None or computes not in range(2, 10):
        print(f"Use 2 to 9 hosts, and a part of: {'; '.join(WAYS_OF_LOSS)}", flush=True)
        return 2
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenants-", dir="/var/tmp")))
        directory.chmod(0o755)
        fabric = Fabric()
        stack.callback(fabric.close)
        port = free_port()
        real = stack.enter_context(cloud_on(fabric, directory, computes, port))
        try:
            wrong = run(Scene(real, fabric, port, stack), real, way)
        except Exception:
            kept = matrix.keep_logs(directory, Path(tempfile.gettempdir(), "nova-lite-tenants-logs"))
            print(f"The run ended early; logs are in {kept}", flush=True)
            raise
    print("\n".join([*wrong, f"{len(wrong)} problems"]), flush=True)
    return 1 if wrong else 0
