"""DHCP options of ports: real clients in namespaces ask the real dnsmasq of a host."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import msgspec

from nova_lite.objects import VIF, Subnet6, dhcp_options, ipv6
from tests.integration.network.routed_host import A, RoutedHost

#: A client of DHCPv6 without a wish for an address (RFC 8415). It prints the options of the reply in hexadecimal.
_INFORM = """
import json, socket, struct, sys
mac = bytes.fromhex(sys.argv[1].replace(":", ""))
client = struct.pack("!HHHH", 1, 10, 3, 1) + mac
wanted = [int(item) for item in sys.argv[2:]]
packet = struct.pack("!I", 11 << 24 | 5) + client + struct.pack(f"!HH{len(wanted)}H", 6, 2 * len(wanted), *wanted)
index, found = socket.if_nametoindex("eth0"), {}
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    s.bind(("::", 546, 0, index))
    for _ in range(20):
        try:
            s.sendto(packet, ("ff02::1:2", 547, 0, index))
            rest = s.recv(3000)[4:]
            break
        except (TimeoutError, OSError):
            continue
while rest:
    code, size = struct.unpack("!HH", rest[:4])
    found[code], rest = rest[4:4 + size].hex(), rest[4 + size:]
print(json.dumps(found))
"""


def option(name: str, value: str, version: int = 4) -> dict[str, Any]:
    return {"opt_name": name, "opt_value": value, "ip_version": version}


def give(host: RoutedHost, name: str, *options: dict[str, Any]) -> VIF:
    """Give a guest's port these options, and run the daemon."""
    host.guests[name] = msgspec.structs.replace(host.guests[name], dhcp_options=list(options) or None)
    host.drive()
    return host.guests[name]


def addresses(*texts: str) -> str:
    return b"".join(map(socket.inet_aton, texts)).hex()


def test_guest_gets_the_options_of_its_own_port(host: RoutedHost) -> None:
    """Options of the port win over those of the network. Changes reach the guest with its next request."""
    one, two = host.guest_on(A, "one", 10), host.guest_on(A, "two", 11)
    one = give(
        host,
        "one",
        option("mtu", "1200"),
        option("67", "pxe/boot file.0"),
        option("tftp-server", "10.1.0.9"),
        option("ntp-server", "10.1.0.7,10.1.0.8"),
        option("classless-static-route", "10.9.0.0/16,10.1.0.9"),
        option("domain-search", "a.example,b.example"),
        option("router", ""),
    )
    asked = (15, 42, 66, 67, 119)
    found = host.offer(one, *asked)
    assert found["address"] == one.address
    route = "10" + addresses("10.9.0.0")[:4] + addresses("10.1.0.9")
    assert {key: found.get(key) for key in ("3", "26", "42", "121", "249")} == {
        "3": None,
        "26": f"{1200:04x}",
        "42": addresses("10.1.0.7", "10.1.0.8"),
        "121": route,
        "249": route,
    }
    assert (text_of(found["66"]), text_of(found["67"])) == (b"10.1.0.9", b"pxe/boot file.0")
    assert bytes.fromhex(found["119"]).startswith(b"\x01a\x07example\x00\x01b")
    other = host.offer(two, *asked)
    assert (other["26"], other["3"]) == (f"{1450:04x}", addresses("10.1.0.1"))
    assert not {"42", "66", "67", "119"} & other.keys()
    one = give(host, "one", option("mtu", "1300"))
    found = host.offer(one, *asked)
    assert (found["26"], found["3"], "67" in found) == (f"{1300:04x}", addresses("10.1.0.1"), False)
    assert host.offer(give(host, "one"), *asked)["26"] == f"{1450:04x}"


def test_dhcp_server_goes_on_when_options_change_between_requests(host: RoutedHost) -> None:
    """dnsmasq 2.90 frees the tags of reservations when it reads them again, after which it would crash."""
    host.guest_on(A, "one", 10)
    processes = set()
    for mtu in (1200, 1300, 1400):
        one = give(host, "one", option("mtu", str(mtu)))
        assert host.offer(one)["26"] == f"{mtu:04x}"
        processes.add(host.dhcp_server(one.network))
    assert host.offer(give(host, "one"))["26"] == f"{1450:04x}"
    assert processes == {host.dhcp_server(one.network)}


def text_of(option: str) -> bytes:
    """Return a text, after which dnsmasq sends a zero if there is room."""
    return bytes.fromhex(option).removesuffix(b"\0")


HOSTILE = [
    "x,10.66.6.6",
    "x # comment",
    "x, tag:other",
    "tag:!known",
    "10.1.0.9",
    "12:34:56",
    "1234",
    "$(id) `id` ;|&<>*?~",
    "option:router,10.66.6.6",
    "x" * 200,
]


def test_text_reaches_the_guest_as_it_is(host: RoutedHost) -> None:
    """No character of a text means anything to dnsmasq."""
    host.guest_on(A, "one", 10)
    for text in HOSTILE:
        found = host.offer(give(host, "one", option("bootfile-name", text)), 67)
        assert text_of(found["67"]) == text.encode(), text
        assert (found["26"], found["3"]) == (f"{1450:04x}", addresses("10.1.0.1"))


def test_invalid_option_of_a_conductor_is_left_out(host: RoutedHost) -> None:
    """The others of the port are there, and so is the address."""
    host.guest_on(A, "one", 10)
    wrong = [
        option("bootfile-name", 'x"\ndhcp-option=3,10.66.6.6'),
        option("root-path", "x\noption:router,10.66.6.6"),
        option("mtu", "1400\ntag:x"),
        option("router,10.66.6.6\noption:mtu", "1"),
        {"opt_name": "mtu"},
    ]
    one = give(host, "one", *wrong, option("default-ttl", "7"))
    found = host.offer(one, 17, 23, 67)
    assert (found["address"], found["23"]) == (one.address, "07")
    assert (found["26"], found["3"]) == (f"{1450:04x}", addresses("10.1.0.1"))
    assert not {"17", "67"} & found.keys()


#: A valid value of each kind.
_VALUES = {
    "IPv4 address": "10.1.0.9",
    "IPv6": "fd00::9",
    "pairs": "10.9.0.0/16,10.1.0.9",
    "name": "a.example",
    "number": "1",
    "text": "a text",
}


def test_each_known_option_is_sent(host: RoutedHost) -> None:
    """All of one IP version are tried, as many at a time as fit into a packet."""
    subnet = Subnet6(gateway="fd00:a::1", ra_mode=ipv6.STATELESS, address_mode=ipv6.STATELESS)
    network = msgspec.structs.replace(A, cidr6="fd00:a::/64", subnet6=subnet)
    host.guest_on(network, "one", 10)
    for version in (4, 6):
        every = dhcp_options._OPTIONS[version]
        for part in (every[::3], every[1::3], every[2::3]):
            values = {
                item.name: next(value for word, value in _VALUES.items() if word in item.kind.meaning) for item in part
            }
            one = give(host, "one", *(option(name, value, version) for name, value in values.items()))
            numbers = [item.number for item in part if item.name != "server-ip-address"]
            found = host.offer(one, *numbers) if version == 4 else inform(host, one, *numbers)
            assert {str(number) for number in numbers} <= found.keys(), (version, values)


def inform(host: RoutedHost, vif: VIF, *options: int) -> dict[str, str]:
    words = (sys.executable, "-c", _INFORM, vif.mac_address, *map(str, options))
    found: dict[str, str] = json.loads(host.in_space(host.space("one"), *words))
    return found


def test_guest_gets_ipv6_options_without_an_assigned_address(host: RoutedHost) -> None:
    subnet = Subnet6(gateway="fd00:a::1", ra_mode=ipv6.STATELESS, address_mode=ipv6.STATELESS)
    network = msgspec.structs.replace(A, cidr6="fd00:a::/64", subnet6=subnet)
    host.guest_on(network, "one", 10)
    one = give(
        host, "one", option("dns-server", "fd00::53,fd00::54", 6), option("bootfile-url", "tftp://[fd00::9]/a,b#c", 6)
    )
    found = inform(host, one, 23, 59)
    assert found["23"] == "".join(socket.inet_pton(socket.AF_INET6, text).hex() for text in ("fd00::53", "fd00::54"))
    assert bytes.fromhex(found["59"]) == b"tftp://[fd00::9]/a,b#c"
