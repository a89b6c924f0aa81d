"""What an operator may say about a network, and what is chosen where nothing is said."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.network import factory
from nova_lite.network.address_pool import AddressPool
from nova_lite.objects import ipv6


def test_defaults() -> None:
    made = factory.network("private", "10.1.0.0/24")
    assert (made.gateway, made.start, made.end) == ("10.1.0.1", "10.1.0.2", "10.1.0.254")
    assert len(made.bridge) <= 15 and made.id[:8] in made.bridge
    assert (made.project_id, made.is_default, made.dns, made.mtu) == (None, False, [], 1500)


def test_everything_said() -> None:
    made = factory.network(
        "n", "10.1.0.0/24", "10.1.0.254", ["9.9.9.9"], "br-x", "10.1.0.10", "10.1.0.20", 1400, True, "p"
    )
    assert (made.gateway, made.start, made.end, made.bridge) == ("10.1.0.254", "10.1.0.10", "10.1.0.20", "br-x")
    assert (made.dns, made.mtu, made.is_default, made.project_id) == (["9.9.9.9"], 1400, True, "p")


def test_one_that_spans_hosts_leaves_room_for_the_tunnel() -> None:
    made = factory.network("n", "10.1.0.0/24", vni=77)
    assert (made.vni, made.mtu) == (77, 1450)
    assert factory.network("n", "10.1.0.0/24", vni=77, mtu=8950).mtu == 8950


def test_ipv6_besides() -> None:
    made = factory.network("n", "10.1.0.0/24", cidr6="fd00:1:0::/64")
    assert made.cidr6 == "fd00:1::/64"
    assert (ipv6.host_address(made), ipv6.gateway(made)) == ("fd00:1::1", "fd00:1::1")
    assert ipv6.gateway(factory.network("n", "10.1.0.0/24", gateway="none", cidr6="fd00:1::/64")) is None
    assert ipv6.gateway(factory.network("n", "10.1.0.0/24")) is None


def test_no_gateway() -> None:
    made = factory.network("n", "10.1.0.0/30", gateway="none")
    assert (made.gateway, list(AddressPool(made).all())) == (None, ["10.1.0.1", "10.1.0.2"])


@pytest.mark.parametrize(
    "wrong",
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
        {"vni": 0},
        {"vni": 2**24},
        {"cidr6": "fd00::/48"},
        {"cidr6": "fd00::1/64"},
        {"cidr6": "10.1.0.0/24"},
        {"cidr6": "fe80::/64"},
        {"cidr6": "ff02::/64"},
        {"cidr6": "fd00::/64", "mtu": 1279},
    ],
    ids=str,
)
def test_wrong(wrong: dict[str, object]) -> None:
    with pytest.raises(exceptions.InvalidInput):
        factory.network(**({"name": "n", "cidr": "10.1.0.0/24"} | wrong))  # type: ignore[arg-type]


@given(st.integers(8, 30), st.integers(0, 2**32 - 1))
def test_pool_is_all_but_three_addresses(prefix: int, number: int) -> None:
    cidr = ipaddress.ip_network((number, prefix), strict=False)
    pool = AddressPool(factory.network("n", str(cidr)))
    assert pool.last - pool.first + 1 == cidr.num_addresses - 3
    assert not any(pool.usable(address) for address in (cidr[0], cidr[1], cidr[-1]))
    assert pool.usable(cidr[2])
