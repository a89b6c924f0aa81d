from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import dhcp, networks
from tests.support.guests import make_network, make_vif

#: Options of names in a domain.
DOMAIN = "option:domain-name,cloud.test\noption6:domain-search,cloud.test\n"
OPTION = "{http://libvirt.org/schemas/network/dnsmasq/1.0}option"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of the reservations of `make_network`."""
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    path = Path(networks.reservations_directory(make_network()))
    path.mkdir()
    return path


def options(vif_network_xml: str) -> list[str | None]:
    return [option.get("value") for option in ET.fromstring(vif_network_xml).iter(OPTION)]


def test_network_has_its_gateway_on_the_bridge_and_no_dynamic_range() -> None:
    network = make_network(dns=["9.9.9.9"], mtu=1450)
    root = ET.fromstring(networks.network_xml(network))
    assert root.findtext("name") == f"nova-lite-{network.id}"
    assert root.findtext("uuid") == network.id
    assert root.find("forward[@mode='nat']") is not None
    assert root.find("bridge[@name='nltest0']") is not None
    assert root.find("ip[@address='10.76.0.1'][@netmask='255.255.255.0']") is not None
    assert root.find("dns") is None, "name servers change, and libvirt cannot change them while the network runs"
    assert "dhcp-range=10.76.0.0,static,255.255.255.0" in options(ET.tostring(root, encoding="unicode"))


def test_network_xml_is_equal_on_all_hosts() -> None:
    network = make_network(id="net-1")
    assert networks.network_xml(network) == networks.network_xml(make_network(id="net-1"))


@pytest.mark.parametrize(
    ("start", "end", "address"),
    [("10.76.0.10", "10.76.0.250", "10.76.0.1"), ("10.76.0.1", "10.76.0.250", "10.76.0.254")],
)
def test_network_without_a_gateway_has_the_host_outside_of_its_pool(start: str, end: str, address: str) -> None:
    """The network has NAT, so that it can get a gateway. Until then its firewall lets nothing out."""
    root = ET.fromstring(networks.network_xml(make_network(gateway=None, start=start, end=end)))
    assert root.find("forward[@mode='nat']") is not None
    assert root.find(f"ip[@address='{address}']") is not None


def test_network_without_a_gateway_has_the_host_where_the_conductor_says() -> None:
    network = make_network(gateway=None, start="10.76.0.1", end="10.76.0.254", host_address="10.76.0.254")
    assert ET.fromstring(networks.network_xml(network)).find("ip[@address='10.76.0.254']") is not None


def test_pool_without_an_address_for_the_host_is_rejected() -> None:
    network = make_network(gateway=None, start="10.76.0.1", end="10.76.0.254")
    with pytest.raises(exceptions.VirtDriverError, match="no address for the host"):
        networks.network_xml(network)


def test_reservation_is_one_line() -> None:
    vif = make_vif(mac_address="FA:16:3E:00:76:01")
    assert networks.reservation(vif, "web-one") == "fa:16:3e:00:76:01,10.76.0.10,web-one,24h\n"


@pytest.mark.parametrize("hostname", ["", "-x", "a,b", "a\nb", "x" * 64, "a b"])
def test_ambiguous_host_name_is_left_out(hostname: str) -> None:
    assert networks.reservation(make_vif(), hostname) == "fa:16:3e:00:76:01,10.76.0.10,24h\n"


def test_host_name_is_shortened_to_its_first_label() -> None:
    assert networks.reservation(make_vif(), "web.example.org") == "fa:16:3e:00:76:01,10.76.0.10,web,24h\n"


def test_reservation_of_an_ipv6_address_is_rejected() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="has an invalid address"):
        networks.reservation(make_vif(address="fd00::1"), "web")


@pytest.mark.parametrize("mac_address", ["fa:16:3e:00:76", "ignore", "fa:16:3e:00:76:01,id:*"])
def test_malformed_mac_address_is_rejected(mac_address: str) -> None:
    with pytest.raises(exceptions.VirtDriverError):
        networks.reservation(make_vif(mac_address=mac_address), "web")


def test_reservation_is_idempotent(directory: Path) -> None:
    vif = make_vif()
    networks._reserve(vif, "web", "host")
    networks._reserve(vif, "web", "host")
    (path,) = directory.iterdir()
    assert path.read_text() == networks.reservation(vif, "web")
    assert path.stat().st_mode & 0o777 == 0o644


def test_outdated_reservation_of_the_address_is_removed(directory: Path) -> None:
    old, neighbour = make_vif(1), make_vif(2)
    networks._reserve(old, "old", "host")
    networks._reserve(neighbour, "neighbour", "host")
    new = make_vif(3, address=old.address)
    networks._reserve(new, "new", "host")
    assert {path.name for path in directory.iterdir()} == {neighbour.id, new.id}


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".x"])
def test_ids_cannot_leave_the_directory(bad: str) -> None:
    with pytest.raises(exceptions.VirtDriverError):
        networks._reservation_path(make_vif(id=bad))
    with pytest.raises(exceptions.VirtDriverError):
        networks.reservations_directory(make_network(id=bad))


def test_network_with_ipv6_has_a_bridge_address_and_a_router() -> None:
    network = make_network(cidr6="fd00:76::/64")
    root = ET.fromstring(networks.network_xml(network))
    assert root.find("ip[@family='ipv6'][@address='fd00:76::1'][@prefix='64']") is not None
    assert root.find("forward[@mode='nat']/nat[@ipv6='yes']") is not None
    alone = ET.fromstring(networks.network_xml(make_network(cidr6="fd00:76::/64", gateway=None)))
    assert alone.find("forward") is None
    plain = ET.fromstring(networks.network_xml(make_network()))
    assert plain.find("ip[@family='ipv6']") is None and plain.find("forward/nat") is None


def test_name_server_on_this_machine_is_not_queried_for_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version accepted them. Only the operator, who makes shared networks, may name an own address."""
    links = b'[{"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}, {"local": "192.0.2.7"}]}, {"ifname": "x"}]'
    monkeypatch.setattr(networks.images, "run", lambda *command: links)
    stored = ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1%lo", "192.0.2.7", "9.9.9.9"]

    def servers(project_id: str | None) -> list[str | None]:
        return [*networks._name_servers(make_network(dns=stored, project_id=project_id))]

    assert servers("p") == ["9.9.9.9"]
    assert servers(None) == ["192.0.2.7", "9.9.9.9"]


def test_settings_are_options_of_dnsmasq() -> None:
    assert networks.settings(make_network(), ["9.9.9.9", "9.9.9.10"], "cloud.test") == {
        "options": f"option:router,10.76.0.1\n{DOMAIN}option:mtu,1500\n",
        "servers": "server=/cloud.test/\nserver=9.9.9.9\nserver=9.9.9.10\n",
    }
    route = {"destination": "10.5.0.0/16", "nexthop": "10.76.0.9"}
    words = "10.5.0.0/16,10.76.0.9"
    bad = {"destination": "10.5.0.0/16,x", "nexthop": "10.76.0.9"}
    without = make_network(gateway=None, host_routes=[route, bad])
    assert networks.settings(without, [], "cloud.test")["options"] == (
        f"option:router\noption:classless-static-route,{words}\n249,{words}\n{DOMAIN}option:mtu,1500\n"
    )
    words += ",0.0.0.0/0,10.76.0.1"
    assert networks.settings(make_network(host_routes=[route]), [], "cloud.test")["options"] == (
        f"option:router,10.76.0.1\noption:classless-static-route,{words}\n249,{words}\n{DOMAIN}option:mtu,1500\n"
    ), "a guest that gets routes ignores the gateway's own option"


def test_settings_that_are_the_same_are_not_written_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "RESOLV_CONF", str(directory / "resolv.conf"))
    (directory / "resolv.conf").write_text("# mine\nnameserver 192.0.2.53\nnameserver x;y\nsearch example.org\n")
    assert networks._write_settings(make_network(), "host", "cloud.test")
    assert not networks._write_settings(make_network(), "host", "cloud.test")
    path = Path(networks._settings_path(make_network(), "servers"))
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("server=/cloud.test/\nserver=192.0.2.53\n", 0o644)
    assert networks._write_settings(make_network(dns=["9.9.9.9"]), "host", "cloud.test")
    assert path.read_text() == "server=/cloud.test/\nserver=9.9.9.9\n"


def test_reservations_without_dhcp_are_where_dnsmasq_does_not_read_them(directory: Path) -> None:
    served, unserved = make_network(), make_network(enable_dhcp=False)
    vif = make_vif(network=unserved)
    networks._reserve(vif, "web", "host")
    off = Path(networks.reservations_directory(served, is_served=False))
    assert [path.name for path in off.iterdir()] == [vif.id] and not list(directory.iterdir())
    assert networks._place_reservations(served)
    assert [path.name for path in directory.iterdir()] == [vif.id] and not list(off.iterdir())
    assert not networks._place_reservations(served)
    assert networks._place_reservations(unserved)
    assert [path.name for path in off.iterdir()] == [vif.id] and not list(directory.iterdir())


def test_network_without_dhcp_ignores_guests_without_a_reservation() -> None:
    """A refusal of an authoritative server would reach guests of a DHCP server that a user runs."""
    assert "dhcp-ignore=tag:!known" in options(networks.network_xml(make_network(enable_dhcp=False)))
