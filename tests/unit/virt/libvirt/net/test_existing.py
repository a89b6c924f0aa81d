"""Networks and bridges that existed before, with the settings of another network."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import dhcp, existing, networks
from nova_lite.virt.libvirt.net.names import bridge_name, network_name
from tests.support.config_drives import make_conf
from tests.support.guests import make_network

OTHER = "nova-lite-a0000000-0000-4000-8000-000000000001"


class Connection:
    """libvirtd with networks. ``names``: of networks, with their bridges."""

    def __init__(self, **names: str) -> None:
        self._networks = [
            SimpleNamespace(name=lambda name=name: name.replace("_", "-"), bridgeName=lambda bridge=bridge: bridge)
            for name, bridge in names.items()
        ]

    def call(self, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def connect_call(self, name: str, *arguments: Any) -> Any:
        assert name == "listAllNetworks"
        return self._networks


def found(xml: str) -> Any:
    return SimpleNamespace(XMLDesc=lambda flags: xml)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[ipaddress.IPv4Interface]:
    """Addresses of the bridge."""
    made: list[ipaddress.IPv4Interface] = []
    monkeypatch.setattr(existing, "ipv4_addresses", lambda device: made)
    return made


def check_bridge(connection: Connection) -> None:
    existing.check_bridge(connection, make_network(bridge="nlbr0"))  # type: ignore[arg-type]


def test_network_as_it_was_defined_is_accepted() -> None:
    network = make_network(cidr6="fd00:76::/64")
    xml = networks.network_xml(network)
    existing.check_network(Connection(), network, found(xml))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bridge": "br7"}, "has bridge br7, and network private has nltest0"),
        (
            {"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"},
            "has subnet 10.1.0.0/24, and network private has 10.76.0.0/24",
        ),
        ({"cidr": "10.76.0.0/16"}, "has subnet 10.76.0.0/16, and network private has 10.76.0.0/24"),
    ],
)
def test_network_with_another_bridge_or_subnet_is_refused_in_one_line(changes: dict[str, str], text: str) -> None:
    xml = networks.network_xml(make_network(**changes))
    with pytest.raises(exceptions.VirtDriverError) as caught:
        existing.check_network(Connection(), make_network(), found(xml))  # type: ignore[arg-type]
    assert text in caught.value.message
    assert "virsh net-undefine nova-lite-" in caught.value.message
    assert "\n" not in caught.value.message


def test_bridge_of_another_network_of_ours_is_refused(addresses: list[ipaddress.IPv4Interface]) -> None:
    """A killed test leaves such a network, with the same subnet by chance."""
    addresses.append(ipaddress.IPv4Interface("10.76.0.1/24"))
    with pytest.raises(exceptions.VirtDriverError, match=f"belongs to libvirt's network {OTHER}") as caught:
        check_bridge(Connection(**{OTHER.replace("-", "_"): "nlbr0"}))
    assert f"virsh net-destroy {OTHER}" in caught.value.message


def test_bridge_with_another_subnet_is_refused(addresses: list[ipaddress.IPv4Interface]) -> None:
    addresses.append(ipaddress.IPv4Interface("10.1.0.1/24"))
    text = "bridge nlbr0 exists with 10.1.0.1/24, and network private has 10.76.0.0/24"
    with pytest.raises(exceptions.VirtDriverError, match=text):
        check_bridge(Connection())


@pytest.mark.parametrize("own", [[], ["10.76.0.1/24"], ["192.0.2.1/24", "10.76.0.1/16"]])
def test_bridge_of_the_operator_is_accepted(addresses: list[ipaddress.IPv4Interface], own: list[str]) -> None:
    """Operators give it no address, one of the subnet, or others."""
    addresses += map(ipaddress.IPv4Interface, own)
    check_bridge(Connection(default="virbr0"))


def test_addresses_of_a_device_are_read() -> None:
    assert ipaddress.IPv4Interface("127.0.0.1/8") in existing.ipv4_addresses("lo")


class Racing(Connection):
    """libvirtd in which another daemon defines and starts the network right after the first look."""

    def __init__(self, bridge: str, network: Any) -> None:
        super().__init__(**{network_name(network): bridge})
        self._found = SimpleNamespace(XMLDesc=lambda flags: networks.network_xml(network), isActive=lambda: True)
        self._looks = iter([None])

    def get(self) -> Any:
        return SimpleNamespace(networkLookupByName=lambda name: next(self._looks, self._found))

    def call_unless(self, codes: Any, method: Any, *arguments: Any) -> Any:
        return method(*arguments)


def test_network_that_another_daemon_starts_meanwhile_is_used(
    addresses: list[ipaddress.IPv4Interface], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    network = make_network()
    addresses.append(ipaddress.IPv4Interface(f"{network.gateway}/24"))
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(existing, "has_bridge", lambda network: True)
    hosts = networks.HostNetworks(make_conf(), Racing(bridge_name(network), network), "host1")  # type: ignore[arg-type]
    assert hosts._ensure(network)
