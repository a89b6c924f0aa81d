"""A host and its guests as network namespaces: real packets and the kernel's own filter, without other networks."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable

from nova_lite.objects import VIF, Network
from tests.support.waiting import wait_for

BRIDGE = "brt"
NETWORK = Network(id="11111111-2222-3333-4444-555555555555", name="t", cidr="10.9.0.0/24", bridge=BRIDGE)
HOST_ADDRESS, OUTSIDE = "10.9.0.1", "192.0.2.7"
PATIENCE = 30.0

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.7).close()"
_TALK = """
import socket, sys
kind = socket.SOCK_DGRAM
with socket.socket(socket.AF_INET, kind) as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.settimeout(0.7)
    s.sendto(b"hello", (sys.argv[1], int(sys.argv[2])))
    print(s.recvfrom(100)[0].decode())
"""
_SERVE = """
import selectors, socket, sys
selector = selectors.DefaultSelector()
for port in sys.argv[1:]:
    tcp, udp = socket.create_server(("0.0.0.0", int(port))), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", int(port)))
    for server in tcp, udp:
        selector.register(server, selectors.EVENT_READ)
print("serving", flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj.type == socket.SOCK_STREAM:
            key.fileobj.accept()[0].close()
        else:
            key.fileobj.sendto(b"heard", key.fileobj.recvfrom(100)[1])
"""


def within_patience(attempt: Callable[[], bool]) -> bool:
    """Return True when one of several attempts has succeeded. Fail without a success in time.

    After a failure the kernel may still regard a neighbour as missing, and a busy machine may delay a packet. Attempts
    that are expected to fail are made once.
    """
    return wait_for("an attempt that succeeds", attempt, PATIENCE, 0.2)


def run(*command: str, text: str | None = None) -> str:
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stderr}"
    return result.stdout


class Room:
    """Namespaces of one test: a host with a bridge, guests on it, and an outside machine that the host routes to."""

    def __init__(self) -> None:
        self.name = f"nlt{uuid.uuid4().hex[:6]}"
        self.host = f"{self.name}-host"
        self._spaces: list[str] = []
        self._servers: list[subprocess.Popen[str]] = []
        self._space(self.host)
        self.in_space(self.host, "ip", "link", "add", BRIDGE, "type", "bridge")
        self.in_space(self.host, "ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
        self.in_space(self.host, "ip", "link", "set", BRIDGE, "up")
        self.in_space(self.host, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.guests: dict[str, VIF] = {}
        self._outside()

    def _space(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._spaces.append(name)
        self.in_space(name, "ip", "link", "set", "lo", "up")

    def in_space(self, space: str, *command: str, text: str | None = None) -> str:
        return run("ip", "netns", "exec", space, *command, text=text)

    def tunnel_devices(self) -> set[str]:
        """Return the names of the host's VXLAN devices."""
        shown = json.loads(self.in_space(self.host, "ip", "-json", "link", "show", "type", "vxlan"))
        return {device["ifname"] for device in shown if device}

    def _outside(self) -> None:
        space = f"{self.name}-out"
        self._space(space)
        self.in_space(self.host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", space)
        self.in_space(self.host, "ip", "address", "add", "192.0.2.1/24", "dev", "up0")
        self.in_space(self.host, "ip", "link", "set", "up0", "up")
        self.in_space(space, "ip", "address", "add", f"{OUTSIDE}/24", "dev", "eth0")
        self.in_space(space, "ip", "link", "set", "eth0", "up")
        self.in_space(space, "ip", "route", "add", "10.9.0.0/24", "via", "192.0.2.1")

    def bridge(self, network: Network) -> None:
        """Add the bridge of a further network, which the host has no address on."""
        self.in_space(self.host, "ip", "link", "add", network.bridge, "type", "bridge")
        self.in_space(self.host, "ip", "link", "set", network.bridge, "up")

    def guest(self, name: str, number: int, network: Network = NETWORK) -> VIF:
        """Add a guest with the address 10.9.0.``number``."""
        vif = VIF(
            id=str(uuid.uuid4()),
            mac_address=f"fa:16:3e:00:00:{number:02x}",
            address=f"10.9.0.{number}",
            network=network,
            port_security_enabled=True,
        )
        space, tap = f"{self.name}-{name}", f"tap{vif.id[:11]}"
        self._space(space)
        self.in_space(self.host, "ip", "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", space)
        self.in_space(self.host, "ip", "link", "set", tap, "master", network.bridge, "up")
        self.in_space(space, "ip", "link", "set", "eth0", "address", vif.mac_address, "up")
        self.in_space(space, "ip", "address", "add", f"{vif.address}/24", "dev", "eth0")
        self.in_space(space, "ip", "route", "add", "default", "via", HOST_ADDRESS)
        self.guests[name] = vif
        return vif

    def space(self, who: str) -> str:
        return f"{self.name}-{who}"

    def serve(self, who: str, *ports: int) -> None:
        command = ["ip", "netns", "exec", self.space(who), sys.executable, "-c", _SERVE, *map(str, ports)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "serving\n"

    def keep(self, server: subprocess.Popen[str]) -> None:
        """End a program with the room."""
        self._servers.append(server)

    def reaches(self, who: str, address: str, port: int) -> bool:
        """Check whether a TCP connection is established."""
        return within_patience(lambda: not self.cut_off(who, address, port))

    def cut_off(self, who: str, address: str, port: int) -> bool:
        """Check whether one attempt at a TCP connection fails."""
        return self._asks(_CONNECT, who, address, port) is None

    def answered(self, who: str, address: str, port: int) -> bool:
        """Check whether a datagram is answered."""
        return within_patience(lambda: not self.unanswered(who, address, port))

    def unanswered(self, who: str, address: str, port: int) -> bool:
        """Check whether one datagram remains unanswered."""
        return self._asks(_TALK, who, address, port) != "heard\n"

    def pinged(self, who: str, address: str) -> bool:
        """Check whether a ping to an IPv6 address is answered."""
        return within_patience(lambda: not self.unpinged(who, address))

    def unpinged(self, who: str, address: str) -> bool:
        """Check whether one ping to an IPv6 address remains unanswered."""
        script = f"ping -6 -c 1 -W 1 {address} >/dev/null 2>&1 && echo yes || echo no"
        return self.in_space(self.space(who), "sh", "-c", script) == "no\n"

    def _asks(self, script: str, who: str, address: str, port: int) -> str | None:
        command = ["ip", "netns", "exec", self.space(who), sys.executable, "-c", script, address, str(port)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if result.returncode else result.stdout

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()
        for space in self._spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False)
