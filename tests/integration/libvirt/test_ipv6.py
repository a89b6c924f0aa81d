"""Guests with IPv6 and IPv4: the predicted address, and the traffic that their groups allow."""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nova_lite.objects import VIF, Network, PortFilters, SecurityGroupRule, Subnet6, ipv6
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import (
    PATIENCE,
    Images,
    boot,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.guests import console_line, group, user_data
from tests.support.guests import make_network, make_vif
from tests.support.host_networks import remove_network
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")

#: The guest prints its own address after duplicate address detection, and its router.
TELLS = """
while :; do
    own=$(ip -6 addr show dev eth0 scope global | grep -v tentative | sed -n 's|.*inet6 \\([^/]*\\)/.*|\\1|p')
    [ -z "$own" ] || break
    usleep 200000
done
echo "ipv6: $own"
echo "route6: $(ip -6 route | sed -n 's|^default via \\([^ ]*\\) .*|\\1|p')"
"""
SERVES = TELLS + "while :; do nc -l -p 80 -e /bin/true; done"
TRIES = (
    TELLS
    + """
ip -6 addr add {forged}/64 dev eth0 nodad
n=0
while :; do
    n=$((n + 1))
    if ping -6 -c 1 -W 1 -I {own} {server} >/dev/null 2>&1; then own=yes; else own=no; fi
    if ping -6 -c 1 -W 1 -I {forged} {server} >/dev/null 2>&1; then forged=yes; else forged=no; fi
    echo "try $n: $own $forged"
    usleep 200000
done
"""
)
_TRY = re.compile(r"^try (\d+): (yes|no) (yes|no)\r?$", re.MULTILINE)
ECHO = SecurityGroupRule(id="r", security_group_id="echo", ethertype="IPv6", protocol="icmp", port_range_min=128)


@pytest.fixture
def dual(connection: Any) -> Iterator[Network]:
    token = uuid.uuid4()
    prefix, bridge = f"10.{200 + token.bytes[0] % 50}.{token.bytes[1]}", f"nlt{token.hex[:8]}"
    gateway, start, end = (f"{prefix}.{number}" for number in (1, 10, 250))
    values: dict[str, Any] = {"gateway": gateway, "start": start, "end": end, "bridge": bridge}
    cidr6 = str(ipaddress.IPv6Network(f"fd{token.hex[:2]}:{token.hex[2:6]}:{token.hex[6:10]}:1::/64"))
    yield make_network(id=str(token), cidr=f"{prefix}.0/24", cidr6=cidr6, **values)
    remove_network(connection, f"nova-lite-{token}")


def port(network: Network, number: int) -> VIF:
    mac_address = f"fa:16:3e:{network.id[:2]}:66:{number:02x}"
    return make_vif(
        network=network,
        address=f"{network.start.rpartition('.')[0]}.{10 + number}",  # type: ignore[union-attr]
        mac_address=mac_address,
        more=ipv6.further_addresses(network, ipv6.address_on(network, mac_address)),
        port_security_enabled=True,
    )


def pinged(address: str) -> bool:
    """Check whether a ping from the host is answered."""
    command = ["ping", "-6", "-c", "1", "-W", "2", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_guest_has_both_addresses_and_its_groups_filter_them(
    driver: LibvirtDriver, images: Images, dual: Network
) -> None:
    """Packets from a forged address are dropped."""
    mine, other = port(dual, 1), port(dual, 2)
    own, forged = other.more[0].address, dual.cidr6.replace("::/64", "::bad")
    server = guest_spec(images, [mine], hostname="server", user_data=user_data(SERVES))
    values = {"server": mine.more[0].address, "own": own, "forged": forged}
    client = guest_spec(images, [other], hostname="client", user_data=user_data(TRIES.format(**values)))
    ids = [spec.instance.uuid for spec in (server, client)]

    def let_in(*open_to_all: Any) -> None:
        known = {member.id: member for member in (group("shut"), *open_to_all)}
        driver.filters.apply(PortFilters(groups=known, instances={ids[0]: list(known), ids[1]: ["shut"]}))

    def tries() -> list[tuple[str, ...]]:
        return _TRY.findall(whole_lines(driver, ids[1]))

    def wait_for_answer(answer: str) -> None:
        """Wait until all new attempts have this result, and attempts from a forged address have none."""
        before = len(tries()) + 1
        what = f"two tries that end with {answer}"
        found = wait_for(what, lambda: tries()[before:][:2] if len(tries()) >= before + 2 else [], PATIENCE)
        assert [line[1:] for line in found] == [(answer, "no")] * 2

    boot(driver, server)
    boot(driver, client)
    let_in()
    for instance_uuid, vif in zip(ids, (mine, other), strict=True):
        assert guest_lines(driver, instance_uuid)[0][2] == vif.address
        assert console_line(driver, instance_uuid, "ipv6:").split()[1:] == [vif.more[0].address]
        assert console_line(driver, instance_uuid, "route6:").split()[1:][0].startswith("fe80::")
    wait_for_answer("no")
    assert not pinged(mine.more[0].address)
    let_in(group("echo", ECHO))
    wait_for_answer("yes")
    assert pinged(mine.more[0].address)
    let_in()
    wait_for_answer("no")


#: A DHCPv6 client (RFC 8415). It prints the address that it is assigned, and the link's routers and other addresses.
_CLIENT = """
import json, socket, struct, subprocess, time
mac = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
client, ia = struct.pack("!HHHH", 1, 10, 3, 1) + mac, struct.pack("!HHIII", 3, 12, 7, 0, 0)
index = socket.if_nametoindex("eth0")

def ask(kind, more):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.bind(("::", 546, 0, index))
        for _ in range(20):
            s.sendto(struct.pack("!I", kind << 24 | 5) + client + more, ("ff02::1:2", 547, 0, index))
            try:
                return s.recvfrom(2000)[0]
            except TimeoutError:
                continue

def options(data):
    found = {}
    while data:
        code, size = struct.unpack("!HH", data[:4])
        found[code], data = data[4:4 + size], data[4 + size:]
    return found

def shown(*words):
    return json.loads(subprocess.check_output(["ip", "-6", "-json", *words, "dev", "eth0"]))

for _ in range(100):
    if any(not a.get("tentative") for link in shown("addr", "show") for a in link["addr_info"]):
        break
    time.sleep(0.2)
offer = options(ask(1, ia)[4:])
server = struct.pack("!HH", 2, len(offer[2])) + offer[2]
given = options(options(ask(3, server + ia)[4:])[3][12:])[5]
for _ in range(100):
    if routes := shown("route", "show", "default"):
        break
    time.sleep(0.2)
derived = [a["local"] for link in shown("addr", "show") for a in link["addr_info"] if a["scope"] == "global"]
print(json.dumps([socket.inet_ntop(socket.AF_INET6, given[:16]), [r["gateway"][:6] for r in routes], derived]))
"""


def test_member_subnet_assigns_addresses_by_dhcpv6_after_a_change_of_modes(
    driver: LibvirtDriver, dual: Network, request: pytest.FixtureRequest
) -> None:
    """The network runs with SLAAC before."""
    networks = driver._network.networks
    networks.start(dual)
    pool, address = dual.cidr6.replace("::/64", "::{}"), dual.cidr6.replace("::/64", "::55")
    settings = Subnet6(
        gateway=pool.format(1),
        pools=[{"start": pool.format(10), "end": pool.format(99)}],
        ra_mode=ipv6.STATEFUL,
        address_mode=ipv6.STATEFUL,
    )
    network = msgspec.structs.replace(dual, subnet6=settings)
    vif = msgspec.structs.replace(port(network, 3), more=ipv6.further_addresses(network, address))
    networks.plug(vif, "server")
    space, outside = f"nlt{network.id[:8]}", f"nlc{network.id[:8]}"
    request.addfinalizer(lambda: networks.unplug(vif))
    request.addfinalizer(lambda: subprocess.run(["ip", "netns", "delete", space], check=False) and None)
    for command in (
        f"ip netns add {space}",
        f"ip link add {outside} type veth peer name eth0 netns {space}",
        f"ip link set {outside} master {network.bridge} up",
        f"ip -n {space} link set eth0 address {vif.mac_address}",
        f"ip netns exec {space} sysctl -qw net.ipv6.conf.eth0.accept_ra=2",
        f"ip -n {space} link set eth0 up",
    ):
        subprocess.run(command.split(), check=True)
    text = subprocess.check_output(["ip", "netns", "exec", space, sys.executable, "-c", _CLIENT], text=True, timeout=90)
    assert json.loads(text) == [address, ["fe80::"], []]
