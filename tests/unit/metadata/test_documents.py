"""Documents of the metadata service."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.metadata import documents
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import BlockDevice, FixedIp, GuestDevice, GuestDevices, Instance, ipv6
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
    (found,) = meta_data(instance, "2016-06-30")["devices"]
    assert found == {
        "type": "disk", "serial": "v", "path": "/dev/vdc", "bus": "none", "address": "none", "tags": ["data"]
    }  # fmt: skip
    assert "devices" not in meta_data(instance, "2015-10-15")


def meta_data(instance: Instance, version: str) -> dict[str, Any]:
    made = documents.MetadataDocuments(instance, instance.vifs, VendorData(make.conf("sqlite://")))
    data: dict[str, Any] = msgspec.json.decode(made.document(version, documents.META_DATA))
    return data


def test_devices_with_tags_or_vlans_have_their_places() -> None:
    """Disks come before interfaces; VLANs since 2017-02-22, and trust of virtual functions since 2018-08-27."""
    blank = {"source_type": DeviceSource.BLANK, "destination_type": "local"}
    devices = [
        BlockDevice(uuid="r", source_type=DeviceSource.IMAGE, destination_type="local", boot_index=0, tag="system"),
        BlockDevice(uuid="e", volume_size=1, tag="scratch", **blank),
        BlockDevice(uuid="s", volume_size=64, guest_format="swap", **blank),
    ]
    vifs = [
        make_vif(1, tag="inside"),
        make_vif(2, vif_type="ovs", vif_details={"vlan": "12"}),
        make_vif(3),
        make_vif(4, tag="unplaced", mac_address="FA:16:3E:00:76:AA"),
    ]
    places = GuestDevices(
        devices=[
            GuestDevice("root", "scsi", "0:0:0:0"),
            GuestDevice("ephemeral0", "pci", "0000:00:05.0"),
            GuestDevice(vifs[0].mac_address, "pci", "0000:00:03.0"),
            GuestDevice(vifs[1].mac_address, "pci", "0000:00:04.0"),
        ]
    )
    instance = make_instance(
        flavor=make_flavor(ephemeral_gb=2, swap=64),
        block_devices=devices,
        vifs=vifs,
        guest_devices=places,
        root_device_name="/dev/vda",
    )
    disks = [
        {"type": "disk", "serial": None, "path": "/dev/vda", "bus": "scsi", "address": "0:0:0:0", "tags": ["system"]},
        {
            "type": "disk",
            "serial": None,
            "path": "/dev/vdb",
            "bus": "pci",
            "address": "0000:00:05.0",
            "tags": ["scratch"],
        },
    ]
    inside = {"type": "nic", "mac": vifs[0].mac_address, "bus": "pci", "address": "0000:00:03.0", "tags": ["inside"]}
    vlan = {"type": "nic", "mac": vifs[1].mac_address, "bus": "pci", "address": "0000:00:04.0", "vlan": 12}
    last = {"type": "nic", "mac": "FA:16:3E:00:76:AA", "bus": "none", "address": "none", "tags": ["unplaced"]}
    assert meta_data(instance, "2016-06-30")["devices"] == [*disks, inside, last]
    assert meta_data(instance, "2017-02-22")["devices"] == [*disks, inside, vlan, last]
    trust = {"vf_trusted": False}
    newest = [*disks, inside | trust, vlan | trust, last | trust]
    assert meta_data(instance, documents.OPENSTACK_VERSIONS[-1])["devices"] == newest
    instance.vifs = [msgspec.structs.replace(vifs[0], tag=None)]
    instance.block_devices = []
    assert meta_data(instance, documents.OPENSTACK_VERSIONS[-1])["devices"] == []


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


def test_network_data_have_further_addresses_without_further_routes() -> None:
    """DHCP assigns the first address, and the guest configures the others."""
    network = make_network(host_routes=[{"destination": "10.9.0.0/16", "nexthop": "10.76.0.9"}])
    vif = make_vif(network=network, more=ipv6.further_addresses(network, None, ["10.76.0.51", "10.76.0.50"]))
    first, *others = documents.network_data([vif])["networks"]
    assert first["type"] == "ipv4_dhcp"
    shown = [(item["type"], item["ip_address"], item["netmask"], item["routes"], item["link"]) for item in others]
    assert shown == [("ipv4", f"10.76.0.{number}", "255.255.255.0", [], first["link"]) for number in (50, 51)]
