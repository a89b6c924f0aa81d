"""Guests that are namespaces with a DHCP client, on bridges of the real libvirt."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from nova_lite.objects import VIF
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name

#: DHCP client: prints the options of the offer in hexadecimal by their numbers, or an empty object without an offer.
#: Further arguments are numbers of options that it asks for.
DISCOVER = """
import json, socket, sys, time
mac = bytes.fromhex(sys.argv[1].replace(":", ""))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
client.bind(("", 68))
head = bytes([1, 1, 6, 0]) + b"nova" + bytes([0, 0, 0x80, 0]) + bytes(16) + mac + bytes(10 + 192)
wanted = bytes([1, 3, 6, 26, 121, 249, *map(int, sys.argv[3:])])
packet = head + bytes([99, 130, 83, 99, 53, 1, 1, 55, len(wanted)]) + wanted + bytes([255])
deadline = time.monotonic() + float(sys.argv[2])
client.settimeout(0.5)
found = {}
while not found and time.monotonic() < deadline:
    client.sendto(packet, ("255.255.255.255", 67))
    try:
        reply = client.recv(2000)
    except TimeoutError:
        continue
    found["address"], rest = socket.inet_ntoa(reply[16:20]), reply[240:]
    while rest and rest[0] != 255:
        found[rest[0]] = rest[2 : 2 + rest[1]].hex()
        rest = rest[2 + rest[1] :]
print(json.dumps(found))
"""


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class NamespaceGuest:
    """A namespace on the bridge of a network, with the MAC address of its interface."""

    def __init__(self, vif: VIF) -> None:
        self._vif = vif
        self._space = f"nlt-{vif.id[:8]}"

    def start(self) -> None:
        run("ip", "netns", "add", self._space)
        link = ("ip", "link", "add", tap_name(self._vif), "type", "veth", "peer", "name", "eth0")
        run(*link, "netns", self._space)
        run("ip", "link", "set", tap_name(self._vif), "master", bridge_name(self._vif.network), "up")
        self.run("ip", "link", "set", "eth0", "address", self._vif.mac_address, "up")

    def run(self, *command: str) -> str:
        return run("ip", "netns", "exec", self._space, *command)

    def offer(self, patience: float = 20.0) -> dict[str, Any]:
        text = self.run(sys.executable, "-c", DISCOVER, self._vif.mac_address, str(patience))
        found: dict[str, Any] = json.loads(text)
        return found

    def close(self) -> None:
        subprocess.run(["ip", "netns", "delete", self._space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", tap_name(self._vif)], capture_output=True, check=False)
