"""Documents of the metadata service."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.metadata import documents
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import BlockDevice, FixedIp, ipv6
from nova_lite.objects.block_device import DeviceSource
from tests.support import make
from tests.support.guests import make_flavor, make_instance, make_network, make_vif


def test_built_in_networks_are_configured_by_dhcp_and_router_advertisements() -> None:
    """Static addresses without a name server leave a guest without names."""
    network = make_network(cidr6="fd00:76::/64")
    vif = make_vif(network=network, more=ipv6.further_addresses(network, "fd00:76::f816:3eff:fe00:7601"))
    data = documents.network_data([vif])
    first, second = data["networks"]
    assert first == {"id": "network0", "type": "ipv4_dhcp", "link": "interface0", "network_id": network.id}
    assert (second["type"], second["link"]) == ("ipv6_slaac", "interface0")
    assert data["services"] == []


def test_network_data_suffice_for_a_static_configuration() -> None:
    vif = make_vif(network=make_network(dns=["9.9.9.9"], mtu=1450), vif_type="ovs")
    data = documents.network_data([vif])
    (link,), (network,) = data["links"], data["networks"]
    assert (link["ethernet_mac_address"], link["mtu"]) == (vif.mac_address, 1450)
    assert network["link"] == link["id"]
    assert (network["type"], network["ip_address"], network["netmask"]) == ("ipv4", vif.address, "255.255.255.0")
    assert network["routes"] == [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.76.0.1"}]
    assert data["services"] == [{"type": "dns", "address": "9.9.9.9"}]


def test_network_without_a_gateway_has_no_route() -> None:
    assert (
        documents.network_data([make_vif(network=make_network(gateway=None), vif_type="ovs")])["networks"][0]["routes"]
        == []
    )


def test_volume_with_a_tag_is_listed() -> None:
    """The guest finds volumes by serial number. Versions before 2016-06-30 do not have them."""
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
    (device,) = documents._devices(instance)
    assert (device["type"], device["serial"], device["path"], device["tags"]) == ("disk", "v", "/dev/vdc", ["data"])


def ec2(**changes: Any) -> dict[str, Any]:
    vifs = changes.get("vifs", [make_vif()])
    made = documents.MetadataDocuments(make_instance(**changes), vifs, VendorData(make.conf("sqlite://")))
    tree: dict[str, Any] = made.ec2(documents.EC2_VERSIONS[-1])["meta-data"]
    return tree


@pytest.mark.parametrize(("floating", "public"), [([None, None], ""), ([None, "203.0.113.7"], "203.0.113.7")])
def test_ec2_tree_has_the_first_floating_address(floating: list[str | None], public: str) -> None:
    vifs = [make_vif(floating_address=address) for address in floating]
    assert ec2(vifs=vifs)["public-ipv4"] == public


def test_ec2_tree_has_the_first_ipv4_address_of_any_interface() -> None:
    network = make_network()
    more = [FixedIp(address="10.76.0.9", subnet_id="s", cidr="10.76.0.0/24")]
    vifs = [make_vif(network=network, address="fd00::7", version=6, more=more)]
    assert (ec2(vifs=vifs)["local-ipv4"], ec2(vifs=[])["local-ipv4"]) == ("10.76.0.9", "")


def test_ec2_tree_maps_all_disks_of_the_guest() -> None:
    """The guest sees these names: local disks take what volumes leave free."""
    blank = {"source_type": DeviceSource.BLANK, "destination_type": "local"}
    volume = {"source_type": DeviceSource.VOLUME, "destination_type": "volume"}
    devices = [
        BlockDevice(uuid="e", volume_size=1, **blank),
        BlockDevice(uuid="s", volume_size=64, guest_format="swap", **blank),
        BlockDevice(uuid="v", device_name="/dev/vdf", volume_id="v", **volume),
        BlockDevice(uuid="w", device_name="/dev/vde", volume_id="w", **volume),
    ]
    local = make_flavor(ephemeral_gb=2, swap=128)
    assert ec2(flavor=local, block_devices=devices, root_device_name="/dev/vda")["block-device-mapping"] == {
        "ami": "vda",
        "root": "/dev/vda",
        "ephemeral0": "/dev/vdb",
        "swap": "/dev/vdc",
        "ebs0": "/dev/vde",
        "ebs1": "/dev/vdf",
    }
    scsi = ec2(flavor=local, root_device_name="/dev/sda")["block-device-mapping"]
    assert scsi == {"ami": "sda", "root": "/dev/sda", "ephemeral0": "/dev/sdb", "swap": "/dev/sdc"}
    root = BlockDevice(uuid="r", boot_index=0, device_name="/dev/vda", volume_id="r", **volume)
    from_volume = ec2(block_devices=[root], root_device_name="/dev/vda")["block-device-mapping"]
    assert from_volume == {"ami": "vda", "root": "/dev/vda", "ebs0": "/dev/vda"}


def test_network_data_have_ipv6_and_ipv4() -> None:
    network = make_network(cidr6="fd00:76::/64")
    more = ipv6.further_addresses(network, "fd00:76::f816:3eff:fe00:7601")
    vif = make_vif(network=network, more=more, vif_type="ovs")
    (link,), (first, second) = (documents.network_data([vif])[name] for name in ("links", "networks"))
    assert (first["type"], second["type"]) == ("ipv4", "ipv6")
    assert (second["link"], second["ip_address"]) == (link["id"], "fd00:76::f816:3eff:fe00:7601")
    assert second["netmask"] == "ffff:ffff:ffff:ffff::"
    assert second["routes"] == [{"network": "::", "netmask": "::", "gateway": "fd00:76::1"}]
