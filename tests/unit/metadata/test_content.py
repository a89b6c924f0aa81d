"""The documents themselves."""

from __future__ import annotations

from nova_lite.metadata import content
from tests.unit.virt.builders import make_network, make_vif


def test_network_data_holds_all_that_a_static_setup_needs() -> None:
    vif = make_vif(network=make_network(dns=["9.9.9.9"], mtu=1450))
    data = content.network_data([vif])
    (link,), (network,) = data["links"], data["networks"]
    assert (link["ethernet_mac_address"], link["mtu"]) == (vif.mac_address, 1450)
    assert network["link"] == link["id"]
    assert (network["type"], network["ip_address"], network["netmask"]) == ("ipv4", vif.address, "255.255.255.0")
    assert network["routes"] == [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.76.0.1"}]
    assert data["services"] == [{"type": "dns", "address": "9.9.9.9"}]


def test_a_network_without_gateway_has_no_route() -> None:
    assert content.network_data([make_vif(network=make_network(gateway=None))])["networks"][0]["routes"] == []
