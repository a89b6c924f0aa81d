"""Values of a new network: defaults, and errors."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.network import factory
from nova_lite.network.address_pool import AddressPool
from nova_lite.objects import ipv6


def test_new_network_has_defaults() -> None:
    network = factory.new_network("private", "10.1.0.0/24")
    assert (network.gateway, network.start, network.end) == ("10.1.0.1", "10.1.0.2", "10.1.0.254")
    assert len(network.bridge) <= 15 and network.id[:8] in network.bridge
    assert (network.project_id, network.is_default, network.dns, network.mtu) == (None, False, [], 1500)


def test_new_network_takes_all_values() -> None:
    network = factory.new_network(
        "n", "10.1.0.0/24", "10.1.0.254", ["9.9.9.9"], "br-x", "10.1.0.10", "10.1.0.20", 1400, True, "p"
    )
    assert (network.gateway, network.start, network.end, network.bridge) == (
        "10.1.0.254",
        "10.1.0.10",
        "10.1.0.20",
        "br-x",
    )
    assert (network.dns, network.mtu, network.is_default, network.project_id) == (["9.9.9.9"], 1400, True, "p")


def test_network_with_vni_has_the_mtu_of_a_tunnel() -> None:
    network = factory.new_network("n", "10.1.0.0/24", vni=77)
    assert (network.vni, network.mtu) == (77, 1450)
    assert factory.new_network("n", "10.1.0.0/24", vni=77, mtu=8950).mtu == 8950


def test_new_network_takes_an_ipv6_prefix() -> None:
    network = factory.new_network("n", "10.1.0.0/24", cidr6="fd00:1:0::/64")
    assert network.cidr6 == "fd00:1::/64"
    assert (ipv6.host_address(network), ipv6.gateway(network)) == ("fd00:1::1", "fd00:1::1")
    assert ipv6.gateway(factory.new_network("n", "10.1.0.0/24", gateway="none", cidr6="fd00:1::/64")) is None
    assert ipv6.gateway(factory.new_network("n", "10.1.0.0/24")) is None


def test_new_network_without_gateway() -> None:
    network = factory.new_network("n", "10.1.0.0/30", gateway="none")
    assert (network.gateway, network.host_address) == (None, "10.1.0.2")
    assert list(AddressPool(network).all()) == ["10.1.0.1"], "the hosts have an address"
    pooled = factory.new_network("n", "10.1.0.0/24", gateway="none", start="10.1.0.10", end="10.1.0.254")
    assert pooled.host_address == "10.1.0.1"


@pytest.mark.parametrize(
    "values",
    [
        {"cidr": "10.1.0.1/24"},
        {"cidr": "10.1.0.0/31"},
        {"cidr": "fd00::/64"},
        {"cidr": "x"},
        {"name": ""},
        {"name": " n"},
        {"name": "a/b"},
        {"name": "a\nb"},
        {"name": "n" * 256},
        {"gateway": "10.2.0.1"},
        {"gateway": "10.1.0.255"},
        {"start": "10.1.0.0"},
        {"start": "10.1.0.9", "end": "10.1.0.8"},
        {"end": "x"},
        {"bridge": "br with space"},
        {"bridge": "b" * 16},
        {"bridge": "-br"},
        {"bridge": "br'/><x"},
        {"dns": ["x"]},
        {"dns": ["127.0.0.1"]},
        {"dns": ["169.254.169.254"]},
        {"dns": ["0.0.0.0"]},
        {"dns": ["224.0.0.251"]},
        {"cidr": "127.1.0.0/24"},
        {"cidr": "169.254.0.0/16"},
        {"cidr": "230.0.0.0/24"},
        {"cidr": "240.0.0.0/24"},
        {"cidr": "0.0.0.0/0"},
        {"cidr6": "::/64"},
        {"cidr6": "::ffff:0:0:0/64"},
        {"cidr6": "fe81::/64"},
        {"vni": 0},
        {"vni": 2**24},
        {"cidr6": "fd00::/48"},
        {"cidr6": "fd00::1/64"},
        {"cidr6": "10.1.0.0/24"},
        {"cidr6": "fe80::/64"},
        {"cidr6": "ff02::/64"},
        {"cidr6": "fd00::/64", "mtu": 1279},
        {"mtu": 9217},
    ],
    ids=str,
)
def test_invalid_value_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(exceptions.InvalidInput):
        factory.new_network(**({"name": "n", "cidr": "10.1.0.0/24"} | values))  # type: ignore[arg-type]


@given(st.integers(8, 30), st.integers(1 << 24, (127 << 24) - 1))
def test_pool_is_all_but_three_addresses(prefix: int, number: int) -> None:
    cidr = ipaddress.ip_network((number, prefix), strict=False)
    pool = AddressPool(factory.new_network("n", str(cidr)))
    assert pool.size == cidr.num_addresses - 3
    assert not any(pool.usable(address) for address in (cidr[0], cidr[1], cidr[-1]))
    assert pool.usable(cidr[2])
