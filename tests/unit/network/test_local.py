"""Backend ``local``: the choice of networks and addresses."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.network.driver import load_backend
from nova_lite.network.local import SAMPLE, LocalNetworks
from nova_lite.network.none import NoNetworks
from nova_lite.objects import VIF, Network, NetworkRequest, ipv6
from tests.unit.network.store import MemoryStore

ME = RequestContext(user_id="u1", project_id="p1", overwrite=False)
OTHER = RequestContext(user_id="u2", project_id="p2", overwrite=False)
ADMIN = RequestContext(user_id="a", project_id="a", is_admin=True, overwrite=False)


def make_conf(backend: str = "local") -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([])
    conf.set_override("backend", backend, "network")
    return conf


LOCAL = LocalNetworks(make_conf())


def network(name: str = "n", cidr: str = "10.0.0.0/29", **values: object) -> Network:
    addresses = ipaddress.ip_network(cidr)
    defaults: dict[str, object] = {
        "id": name,
        "name": name,
        "cidr": cidr,
        "gateway": str(addresses[1]),
        "start": str(addresses[2]),
        "end": str(addresses[-2]),
    }
    return Network(**(defaults | values))  # type: ignore[arg-type]


def chosen(store: MemoryStore, networks: str | list[NetworkRequest] = "auto") -> list[str | None]:
    return [request.network_id for request in LOCAL.resolve(store, ME, networks)]


# --- which network


def test_auto_is_the_default_network() -> None:
    store = MemoryStore(network("a"), network("b", is_default=True), network("c"))
    assert chosen(store) == ["b"]


def test_auto_prefers_the_default_of_the_project() -> None:
    store = MemoryStore(network("a", is_default=True), network("b", is_default=True, project_id="p1"))
    assert chosen(store) == ["b"]


def test_auto_is_the_only_visible_network() -> None:
    assert chosen(MemoryStore(network("a", project_id="p2", is_default=True), network("b"))) == ["b"]
    assert chosen(MemoryStore(network("a", project_id="p2"))) == []
    assert chosen(MemoryStore()) == []


def test_auto_is_ambiguous_among_several() -> None:
    with pytest.raises(exceptions.NetworkAmbiguous):
        chosen(MemoryStore(network("a"), network("b")))


def test_none_and_invalid_words() -> None:
    store = MemoryStore(network("a", is_default=True))
    assert chosen(store, "none") == chosen(store, []) == []
    with pytest.raises(exceptions.InvalidInput):
        chosen(store, "some")


def test_named_network_must_be_visible() -> None:
    store = MemoryStore(network("a", project_id="p2"), network("b"))
    assert chosen(store, [NetworkRequest(network_id="b"), NetworkRequest(network_id="b")]) == ["b", "b"]
    for name in ("a", "x"):
        with pytest.raises(exceptions.NetworkUnavailable, match=f"Network {name} could not be found"):
            chosen(store, [NetworkRequest(network_id=name)])
    assert LOCAL.resolve(store, ADMIN, [NetworkRequest(network_id="a")])[0].network_id == "a"


def test_external_network_is_refused_with_advice() -> None:
    store = MemoryStore(network("a"))
    store.pools.add("x")
    with pytest.raises(exceptions.ExternalNetworkForbidden, match=r"external network x\. .* floating address"):
        chosen(store, [NetworkRequest(network_id="x")])


def test_request_without_a_network_is_for_the_default() -> None:
    assert chosen(MemoryStore(network("a")), [NetworkRequest(tag="t")]) == ["a"]
    with pytest.raises(exceptions.InvalidInput):
        chosen(MemoryStore(), [NetworkRequest()])


def test_port_of_a_user_is_assigned_to_one_instance() -> None:
    store = MemoryStore(network("a"))
    mac_address = "fa:16:3e:00:00:01"
    store.of_users.append(VIF(id="p", mac_address=mac_address, address="10.0.0.3", network=network("a")))
    requests = [NetworkRequest(network_id="a"), NetworkRequest(port_id="p", tag="x")]
    resolved = LOCAL.resolve(store, ME, requests)
    assert [(request.network_id, request.port_id, request.tag) for request in resolved] == [
        ("a", None, None),
        ("a", "p", "x"),
    ]
    LOCAL.reserve(store, "i1", resolved)
    made = LOCAL.allocate(store, "i1", resolved)
    assert [(vif.position, vif.id == "p") for vif in made] == [(0, False), (1, True)]
    assert (made[1].mac_address, made[1].tag) == (mac_address, "x")
    assert LOCAL.allocate(store, "i1", resolved) == made
    with pytest.raises(exceptions.PortInUse):
        chosen(store, [NetworkRequest(port_id="p")])
    with pytest.raises(exceptions.PortInUse):
        LOCAL.reserve(store, "i2", [NetworkRequest(network_id="a", port_id="p")])
    with pytest.raises(exceptions.PortInUse):
        LOCAL.allocate(store, "i2", [NetworkRequest(network_id="a", port_id="p")])


def test_port_of_another_project_is_not_found() -> None:
    store = MemoryStore(network("a"))
    store.of_users.append(VIF(id="p", mac_address="fa:16:3e:00:00:01", address="10.0.0.3", network=network("a")))
    for context, port_id in ((OTHER, "p"), (ME, "q")):
        with pytest.raises(exceptions.PortUnavailable, match=f"Port {port_id} could not be found"):
            LOCAL.resolve(store, context, [NetworkRequest(port_id=port_id)])


def test_network_without_a_subnet_is_refused() -> None:
    store = MemoryStore(network("a"))
    store.networks()[0].cidr = ""
    assert chosen(store, "auto") == []
    for method in (LOCAL.resolve, None):
        with pytest.raises(exceptions.NetworkRequiresSubnet, match="requires a subnet"):
            if method is None:
                LOCAL.allocate(store, "i1", [NetworkRequest(network_id="a")])
            else:
                chosen(store, [NetworkRequest(network_id="a")])


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.7", "10.0.0.1", "10.0.1.2", "fd00::1", "x", "10.0.0.2 "])
def test_invalid_fixed_ip_is_refused(address: str) -> None:
    own = network("a", project_id=ME.project_id)
    with pytest.raises(exceptions.FixedIpInvalid):
        chosen(MemoryStore(own), [NetworkRequest(network_id="a", fixed_ip=address)])


def test_fixed_ip_on_a_shared_network_is_chosen_by_admins_only() -> None:
    store, request = MemoryStore(network("a")), [NetworkRequest(network_id="a", fixed_ip="10.0.0.2")]
    with pytest.raises(exceptions.FixedIpForbidden, match="not your project's"):
        LOCAL.resolve(store, ME, request)
    assert LOCAL.resolve(store, ADMIN, request)[0].fixed_ip == "10.0.0.2"


def test_fixed_ip_is_allocated() -> None:
    store = MemoryStore(network("a", start="10.0.0.4", project_id=ME.project_id))
    requests = LOCAL.resolve(store, ME, [NetworkRequest(network_id="a", fixed_ip="10.0.0.2", tag="t")])
    (vif,) = LOCAL.allocate(store, "i1", requests)
    assert (vif.address, vif.tag) == ("10.0.0.2", "t")
    with pytest.raises(exceptions.FixedIpInUse):
        LOCAL.resolve(store, ME, [NetworkRequest(network_id="a", fixed_ip="10.0.0.2")])
    with pytest.raises(exceptions.FixedIpInUse):
        LOCAL.allocate(store, "i2", requests)


# --- which address


def test_every_address_is_allocated_once() -> None:
    store = MemoryStore(network("a", start="10.0.0.0", end="10.0.0.7"))
    given = [LOCAL.allocate(store, f"i{n}", [NetworkRequest(network_id="a")])[0] for n in range(5)]
    assert sorted(vif.address for vif in given) == [f"10.0.0.{n}" for n in range(2, 7)]
    assert len({vif.mac_address for vif in given}) == 5
    assert all(re.fullmatch("fa:16:3e(:[0-9a-f]{2}){3}", vif.mac_address) for vif in given)
    with pytest.raises(exceptions.NoMoreFixedIps, match="network a"):
        LOCAL.allocate(store, "i9", [NetworkRequest(network_id="a")])
    LOCAL.deallocate(store, "i3")
    LOCAL.deallocate(store, "i3")
    assert LOCAL.allocate(store, "i9", [NetworkRequest(network_id="a")])[0].address == given[3].address


def test_repeated_allocation_returns_the_same_interfaces() -> None:
    store = MemoryStore(network("a"), network("b"))
    requests = [NetworkRequest(network_id="b"), NetworkRequest(network_id="a")]
    vifs = LOCAL.allocate(store, "i1", requests)
    assert [vif.network.id for vif in vifs] == ["b", "a"]
    assert LOCAL.allocate(store, "i1", requests) == vifs
    assert LOCAL.allocate(store, "i2", []) == []


def test_allocation_retries_after_a_collision() -> None:
    store = MemoryStore(network("a"))
    store.faster = {"10.0.0.3"}
    request = [NetworkRequest(network_id="a", fixed_ip="10.0.0.3")]
    with pytest.raises(exceptions.FixedIpInUse):
        LOCAL.allocate(store, "i1", request)
    store.faster = {"10.0.0.2"}
    given = [LOCAL.allocate(store, f"i{n}", [NetworkRequest(network_id="a")])[0].address for n in range(3)]
    assert len({*given, "10.0.0.2", "10.0.0.3"}) == 5


def test_allocation_does_not_read_a_large_network() -> None:
    store = MemoryStore(network("a", "10.0.0.0/16"))
    for number in range(2000):
        LOCAL.allocate(store, f"i{number}", [NetworkRequest(network_id="a")])
    assert store.reads < 2000 * SAMPLE


def test_nearly_full_network_allocates_its_last_address() -> None:
    store = MemoryStore(network("a", "10.0.0.0/22"))
    given = [LOCAL.allocate(store, f"i{n}", [NetworkRequest(network_id="a")])[0].address for n in range(1021)]
    assert len(set(given)) == 1021
    with pytest.raises(exceptions.NoMoreFixedIps):
        LOCAL.allocate(store, "late", [NetworkRequest(network_id="a")])


def test_allocation_in_a_deleted_network_is_refused() -> None:
    with pytest.raises(exceptions.NetworkUnavailable):
        LOCAL.allocate(MemoryStore(), "i1", [NetworkRequest(network_id="a")])


def test_allocation_with_ipv6() -> None:
    store = MemoryStore(network("a", "fd00::/64"))
    (vif,) = LOCAL.allocate(store, "i1", [NetworkRequest(network_id="a")])
    assert ipaddress.ip_address(vif.address) in ipaddress.ip_network("fd00::/64")


class Addresses(RuleBasedStateMachine):
    """Allocations and releases in any order: no address twice, none outside the pool, refusal only if it is empty."""

    SIZE = 13

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(network("a", "10.0.0.0/28"))
        self.booted = 0

    @rule()
    def boot(self) -> None:
        self.booted += 1
        free = self.SIZE - len(self.store.ports)
        try:
            (vif,) = LOCAL.allocate(self.store, f"i{self.booted}", [NetworkRequest(network_id="a")])
        except exceptions.NoMoreFixedIps:
            assert free == 0
        else:
            assert free > 0
            assert 2 <= int(vif.address.rpartition(".")[2]) <= 14

    @precondition(lambda self: self.store.ports)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        LOCAL.deallocate(self.store, data.draw(st.sampled_from(sorted(self.store.ports))))

    @invariant()
    def no_address_twice(self) -> None:
        addresses = self.store.addresses("a")
        assert len(addresses) == len(set(addresses))


TestAddresses = Addresses.TestCase
TestAddresses.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


# --- the others


def test_backend_none_has_no_networks() -> None:
    backend, store = NoNetworks(make_conf("none")), MemoryStore(network("a", is_default=True))
    for networks in ("auto", "none", []):
        assert backend.resolve(store, ME, networks) == []  # type: ignore[arg-type]
    with pytest.raises(exceptions.NetworkUnavailable):
        backend.resolve(store, ME, [NetworkRequest(network_id="a")])
    assert backend.allocate(store, "i1", [NetworkRequest(network_id="a")]) == []
    LOCAL.allocate(store, "i1", [NetworkRequest(network_id="a")])
    backend.deallocate(store, "i1")
    assert store.ports == {}


def test_backend_is_loaded_by_its_name() -> None:
    assert isinstance(load_backend(make_conf("local")), LocalNetworks)
    assert isinstance(load_backend(make_conf("none")), NoNetworks)
    with pytest.raises(exceptions.ConfigurationError, match=r"\[network\] backend: unknown x"):
        load_backend(make_conf("x"))


def test_ipv6_address_follows_from_the_mac_address() -> None:
    """The guest generates the same address."""
    store = MemoryStore(network("a", cidr6="fd00:1::/64"))
    (vif,) = LOCAL.allocate(store, "i1", [NetworkRequest(network_id="a")])
    (further,) = vif.more
    assert further.address == ipv6.address_of("fd00:1::/64", vif.mac_address)
    assert (further.cidr, further.gateway, further.subnet_id) == ("fd00:1::/64", "fd00:1::1", ipv6.subnet_id("a"))
    assert store.ipv6 == {further.address}
    assert LOCAL.allocate(MemoryStore(network("b")), "i1", [NetworkRequest(network_id="b")])[0].more == []


def test_eui_64() -> None:
    """RFC 4291, appendix A."""
    assert ipv6.address_of("fe80::/64", "34:56:78:9A:BC:DE") == "fe80::3656:78ff:fe9a:bcde"
    assert ipv6.address_of("fd00:1:2:3::/64", "fa:16:3e:00:00:01") == "fd00:1:2:3:f816:3eff:fe00:1"
