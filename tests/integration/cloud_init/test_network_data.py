"""The network configuration that the real cloud-init makes of ``network_data.json``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.metadata.documents import LATEST, NETWORK_DATA, OPENSTACK_VERSIONS, MetadataDocuments
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import VIF, FixedIp, ipv6
from nova_lite.objects.instance import AddressMode
from nova_lite.virt.configdrive import files_of
from tests.integration.cloud_init import render
from tests.support.guests import make_instance, make_network, make_spec, make_vif

PACKAGES = ("cloud-init", "python3-configobj")
DNS, DNS6 = "192.0.2.53", "2001:db8::53"
GLOBAL6 = "fd00:76::f816:3eff:fe00:7601"


@pytest.fixture(scope="session")
def dist_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the distribution's cloud-init. It is not installed: it would configure this machine."""
    path = tmp_path_factory.mktemp("cloud-init")
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
    fetched = subprocess.run(command, cwd=path, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"cloud-init cannot be fetched: {fetched.stderr.strip()}")
    for package in path.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, path / "root"], check=True)
    return path / "root/usr/lib/python3/dist-packages"


@pytest.fixture
def vendor() -> VendorData:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    return VendorData(conf)


def document(vifs: list[VIF], source: str, vendor: VendorData) -> dict[str, Any]:
    """Return the document of the metadata service or of the config drive."""
    instance = make_instance()
    if source == "service":
        text = MetadataDocuments(instance, vifs, vendor).document(OPENSTACK_VERSIONS[-1], NETWORK_DATA)
    else:
        spec = make_spec(instance=instance, vifs=vifs)
        text = files_of(spec, vendor)[f"openstack/{LATEST}/{NETWORK_DATA}"]
    data: dict[str, Any] = json.loads(text)
    return data


def rendered(dist_packages: Path, target: Path, data: dict[str, Any], vifs: list[VIF]) -> dict[str, str]:
    devices = {vif.mac_address: f"eth{number}" for number, vif in enumerate(vifs)}
    command = [sys.executable, render.__file__, str(dist_packages), str(target)]
    made = subprocess.run(
        command, input=json.dumps({"data": data, "devices": devices}), capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    files: dict[str, str] = json.loads(made.stdout)
    return files


def port(*addresses: FixedIp) -> VIF:
    """Return a port of Neutron with these addresses."""
    first, *more = addresses
    network = make_network(cidr=first.cidr, gateway=first.gateway, dns=first.dns, address_mode=first.address_mode)
    version = 6 if ":" in first.address else 4
    return make_vif(network=network, address=first.address, version=version, vif_type="ovs", more=more)


def subnet4(mode: str) -> FixedIp:
    return FixedIp(
        address="10.76.0.9", subnet_id="s", cidr="10.76.0.0/24", gateway="10.76.0.1", dns=[DNS], address_mode=mode
    )


def subnet6(mode: str) -> FixedIp:
    return FixedIp(
        address="2001:db8::9", subnet_id="t", cidr="2001:db8::/64", gateway="2001:db8::1", dns=[DNS6], address_mode=mode
    )


@pytest.mark.parametrize("source", ["service", "config drive"])
def test_guest_of_a_built_in_network_asks_dhcp_for_its_name_server(
    dist_packages: Path, tmp_path: Path, vendor: VendorData, source: str
) -> None:
    vifs = [make_vif()]
    files = rendered(dist_packages, tmp_path, document(vifs, source, vendor), vifs)
    (device,) = yaml.safe_load(files["netplan"])["network"]["ethernets"].values()
    assert device["dhcp4"] is True
    assert "addresses" not in device
    assert device["mtu"] == 1500
    assert "DHCP=ipv4" in files["networkd"]
    assert "\nAddress=" not in files["networkd"]
    assert "iface eth0 inet dhcp" in files["ifupdown"]


@pytest.mark.parametrize("source", ["service", "config drive"])
def test_guest_of_a_built_in_network_with_ipv6_uses_router_advertisements(
    dist_packages: Path, tmp_path: Path, vendor: VendorData, source: str
) -> None:
    network = make_network(cidr6="fd00:76::/64")
    vifs = [make_vif(network=network, more=ipv6.further_addresses(network, GLOBAL6))]
    files = rendered(dist_packages, tmp_path, document(vifs, source, vendor), vifs)
    (device,) = yaml.safe_load(files["netplan"])["network"]["ethernets"].values()
    assert (device["dhcp4"], device["dhcp6"]) == (True, True), "netplan has one switch for both kinds of IPv6"
    assert "addresses" not in device
    assert "DHCP=ipv4" in files["networkd"], "it accepts router advertisements by default"
    assert "fd00:76:" not in files["networkd"] + files["netplan"]
    assert "iface eth0 inet dhcp" in files["ifupdown"]
    assert "iface eth0 inet6 auto" in files["ifupdown"]


@pytest.mark.parametrize("source", ["service", "config drive"])
def test_guest_of_subnets_without_dhcp_gets_addresses_routes_and_name_servers(
    dist_packages: Path, tmp_path: Path, vendor: VendorData, source: str
) -> None:
    vifs = [port(subnet4(AddressMode.STATIC), subnet6(AddressMode.STATIC))]
    data = document(vifs, source, vendor)
    assert data["services"] == [{"type": "dns", "address": DNS}, {"type": "dns", "address": DNS6}]
    files = rendered(dist_packages, tmp_path, data, vifs)
    (device,) = yaml.safe_load(files["netplan"])["network"]["ethernets"].values()
    assert device["addresses"] == ["10.76.0.9/24", "2001:db8::9/64"]
    assert {DNS, DNS6} <= set(device["nameservers"]["addresses"])
    assert "10.76.0.1" in files["netplan"]
    assert "2001:db8::1" in files["netplan"]
    for text in (files["networkd"], files["ifupdown"]):
        for expected in (DNS, DNS6, "10.76.0.9", "2001:db8::9", "10.76.0.1", "2001:db8::1"):
            assert expected in text


@pytest.mark.parametrize(
    ("mode", "ifupdown"),
    [
        (AddressMode.SLAAC, "iface eth0 inet6 auto"),
        (AddressMode.DHCPV6_STATEFUL, "iface eth0 inet6 dhcp"),
        (AddressMode.DHCPV6_STATELESS, "iface eth0 inet6 auto"),
    ],
)
def test_guest_of_a_dynamic_ipv6_subnet_configures_itself(
    dist_packages: Path, tmp_path: Path, vendor: VendorData, mode: AddressMode, ifupdown: str
) -> None:
    vifs = [port(subnet6(mode))]
    files = rendered(dist_packages, tmp_path, document(vifs, "service", vendor), vifs)
    (device,) = yaml.safe_load(files["netplan"])["network"]["ethernets"].values()
    assert device["dhcp6"] is True
    assert ifupdown in files["ifupdown"]
    assert "2001:db8::9" not in files["networkd"] + files["ifupdown"]


def test_second_address_of_a_subnet_with_dhcp_is_static(
    dist_packages: Path, tmp_path: Path, vendor: VendorData
) -> None:
    second = FixedIp(address="10.77.0.9", subnet_id="u", cidr="10.77.0.0/24", dns=[DNS], address_mode=AddressMode.DHCP)
    vifs = [port(subnet4(AddressMode.DHCP), second)]
    files = rendered(dist_packages, tmp_path, document(vifs, "service", vendor), vifs)
    (device,) = yaml.safe_load(files["netplan"])["network"]["ethernets"].values()
    assert (device["dhcp4"], device["addresses"]) == (True, ["10.77.0.9/24"])
