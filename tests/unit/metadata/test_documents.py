"""The documents themselves."""

from __future__ import annotations

import msgspec

from nova_lite.metadata import documents
from nova_lite.objects import BlockDevice, ipv6
from nova_lite.objects.block_device import DeviceSource
from tests.unit.virt.builders import make_instance, make_network, make_vif


def test_network_data_holds_all_that_a_static_setup_needs() -> None:
    vif = make_vif(network=make_network(dns=["9.9.9.9"], mtu=1450))
    data = documents.network_data([vif])
    (link,), (network,) = data["links"], data["networks"]
    assert (link["ethernet_mac_address"], link["mtu"]) == (vif.mac_address, 1450)
    assert network["link"] == link["id"]
    assert (network["type"], network["ip_address"], network["netmask"]) == ("ipv4", vif.address, "255.255.255.0")
    assert network["routes"] == [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.76.0.1"}]
    assert data["services"] == [{"type": "dns", "address": "9.9.9.9"}]


def test_a_network_without_gateway_has_no_route() -> None:
    assert documents.network_data([make_vif(network=make_network(gateway=None))])["networks"][0]["routes"] == []


def test_volumes_with_a_tag_are_told() -> None:
    """By their serial number; in no document from before there were such."""
    device = BlockDevice(
        uuid="a",
        source_type=DeviceSource.VOLUME,
        destination_type="volume",
        volume_id="v",
        device_name="/dev/vdc",
        tag="data",
    )
    untagged = msgspec.structs.replace(device, volume_id="w", tag=None)
    instance = make_instance(block_devices=[device, untagged])
    (told,) = documents._devices(instance)
    assert (told["type"], told["serial"], told["path"], told["tags"]) == ("disk", "v", "/dev/vdc", ["data"])


def test_network_data_has_ipv6_beside_ipv4() -> None:
    network = make_network(cidr6="fd00:76::/64")
    vif = make_vif(network=network, more=ipv6.further(network, "fd00:76::f816:3eff:fe00:7601"))
    (link,), (first, second) = (documents.network_data([vif])[name] for name in ("links", "networks"))
    assert (first["type"], second["type"]) == ("ipv4", "ipv6")
    assert (second["link"], second["ip_address"]) == (link["id"], "fd00:76::f816:3eff:fe00:7601")
    assert second["netmask"] == "ffff:ffff:ffff:ffff::"
    assert second["routes"] == [{"network": "::", "netmask": "::", "gateway": "fd00:76::1"}]
