"""Networks and bridges that existed before, with the settings of another network."""

from __future__ import annotations

import ipaddress
import xml.etree.ElementTree as ET
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
    existing.check_network(network, ET.fromstring(xml))


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
        existing.check_network(make_network(), ET.fromstring(xml))
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


class Defined:
    """A network of libvirt. ``calls``: what was done with it."""

    def __init__(self, number: int, cidr: str, bridge: str = "nlbr9") -> None:
        network = make_network(
            id=f"a0000000-0000-4000-8000-{number:012}", cidr=cidr, gateway=cidr.replace(".0/24", ".1"), bridge=bridge
        )
        self.network, self.calls = network, []
        self._xml = networks.network_xml(network)

    def name(self) -> str:
        return network_name(self.network)

    def XMLDesc(self, flags: int) -> str:
        return self._xml

    def destroy(self) -> None:
        self.calls.append("destroy")

    def undefine(self) -> None:
        self.calls.append("undefine")


class Libvirt:
    def __init__(self, *defined: Defined) -> None:
        self._defined = list(defined)

    def connect_call(self, name: str, *arguments: Any) -> Any:
        return self._defined

    def call_unless(self, codes: tuple[int, ...], method: Any, *arguments: Any) -> Any:
        return method(*arguments)


def remove_overlapping(*defined: Defined, reserved: str = "") -> list[str]:
    network = make_network(cidr="10.76.0.0/24")
    return existing.remove_overlapping(Libvirt(*defined), network, lambda name: name == reserved)  # type: ignore[arg-type]


def test_idle_network_with_the_addresses_is_removed() -> None:
    """The cloud has deleted its network, and given the addresses to another one."""
    same, other = Defined(1, "10.76.0.0/24"), Defined(2, "10.77.0.0/24")
    own = Defined(3, "10.76.0.0/24")
    own.network = make_network(cidr="10.76.0.0/24")
    assert remove_overlapping(same, other, own) == [same.name()]
    assert same.calls == ["destroy", "undefine"]
    assert other.calls == own.calls == []


@pytest.mark.parametrize("by", ["reservation", "interface"])
def test_network_with_the_addresses_is_not_removed_while_guests_use_it(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "NET", str(tmp_path))
    (tmp_path / "nlbr9/brif").mkdir(parents=True)
    same = Defined(1, "10.76.0.0/24")
    (tmp_path / "nlbr9/brif" / ("nlvx7" if by == "reservation" else "tap0")).touch()
    with pytest.raises(exceptions.VirtDriverError, match="which guests use"):
        remove_overlapping(same, reserved=same.name() if by == "reservation" else "")
    assert same.calls == []
    (tmp_path / "nlbr9/brif/tap0").unlink(missing_ok=True)
    assert remove_overlapping(same) == [same.name()], "a tunnel device is no guest"
