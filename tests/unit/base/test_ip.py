"""The parsers of addresses, and their use everywhere."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nova_lite
from nova_lite.base import ip

ROOT = Path(nova_lite.__file__).parent
PARSERS = (ip.parse, ip.parse4, ip.parse6, ip.parse_network, ip.parse_network4, ip.parse_network6, ip.parse_interface4)
CONSTRUCTORS = {
    "ip_address",
    "ip_network",
    "ip_interface",
    "IPv4Address",
    "IPv6Address",
    "IPv4Network",
    "IPv6Network",
    "IPv4Interface",
    "IPv6Interface",
}
#: Calls with numbers or constants.
ALLOWED = {
    "nova_lite/base/ip.py",
    "nova_lite/db/network/subnet_pools.py",
    "nova_lite/network/address_pool.py",
    "nova_lite/virt/libvirt/net/links.py",
    "nova_lite/virt/libvirt/net/nft.py",
    "nova_lite/virt/libvirt/net/firewall.py",
}


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["fe80::%lo/64", "fe80::1%lo", "::%", "fe80::%eth0\n} ; flush ruleset", "10.0.0.1%lo"])
def test_parser_refuses_a_zone(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="has a zone"):
        parse(text)
    assert not ip.is_address(text)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (ip.parse, "10.0.0.1", "10.0.0.1"),
        (ip.parse, "FD00:0::1", "fd00::1"),
        (ip.parse4, "10.0.0.1", "10.0.0.1"),
        (ip.parse6, "fe80::1", "fe80::1"),
        (ip.parse_network, "10.0.0.0/24", "10.0.0.0/24"),
        (ip.parse_network4, "10.0.0.0/255.255.255.0", "10.0.0.0/24"),
        (ip.parse_network6, "fd00::/64", "fd00::/64"),
    ],
)
def test_parser_returns_the_value(parse: Callable[[str], object], text: str, value: str) -> None:
    assert str(parse(text)) == value


@pytest.mark.parametrize("parse", [ip.parse4, ip.parse6])
@pytest.mark.parametrize("value", [1, None, b"\x0a\x00\x00\x01"])
def test_parser_refuses_what_is_no_text(parse: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match="not a text"):
        parse(value)


@given(st.one_of(st.text(), st.text(alphabet="0123456789abcdef:.%/ \n")))
def test_parsed_text_has_only_the_letters_of_addresses(text: str) -> None:
    for parse in PARSERS:
        try:
            value = str(parse(text))
        except ValueError:
            continue
        assert set(value) | set(text) <= set("0123456789abcdefABCDEF:./")


def test_other_modules_parse_no_address_themselves() -> None:
    """A call of ``ipaddress`` with a text accepts zones."""
    found = set()
    for path in (*ROOT.rglob("*.py"), *(ROOT.parent / "conformance").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if name in CONSTRUCTORS or name in ("inet_pton", "inet_aton"):
                    found.add(str(path.relative_to(ROOT.parent)))
    assert found <= ALLOWED


def test_own_addresses_are_read_from_the_kernel(tmp_path: Path) -> None:
    ipv4, ipv6 = tmp_path / "ipv4", tmp_path / "ipv6"
    ipv4.write_text(
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 192.0.2.7\n"
        "        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n"
    )
    ipv6.write_text("20010db8000000000000000000000007 02 40 00 80     eth0\n")
    found = ip.own_networks(str(ipv4), str(ipv6))
    assert [str(network) for network in found] == ["127.0.0.0/8", "192.0.2.7/32", "2001:db8::7/128"]
    assert ip.own_networks(str(tmp_path / "none"), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:0:1", "2001:db8::/64"),
        ("fe80::1%lo", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", ""),
        ("a:b", "a:b"),
    ],
)
def test_ipv6_network_counts_as_one_client(address: str, client: str) -> None:
    assert ip.client_of(address) == client
