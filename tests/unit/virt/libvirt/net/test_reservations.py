"""Files that dnsmasq reads: reservations of guests, and settings that users change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions, files
from nova_lite.objects import FixedIp, Subnet6, ipv6
from nova_lite.virt.libvirt.net import dhcp, port_options, reservations
from tests.support.guests import make_network, make_vif

#: Options of names in a domain.
DOMAIN = "option:domain-name,cloud.test\noption6:domain-search,cloud.test\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of the reservations of `make_network`."""
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    path = Path(reservations.directory_for(make_network()))
    path.mkdir()
    return path


def test_reservation_is_one_line() -> None:
    vif = make_vif(mac_address="FA:16:3E:00:76:01")
    assert reservations.reservation(vif, "web-one") == "fa:16:3e:00:76:01,10.76.0.10,web-one,24h\n"


@pytest.mark.parametrize("hostname", ["", "-x", "a,b", "a\nb", "x" * 64, "a b"])
def test_ambiguous_host_name_is_left_out(hostname: str) -> None:
    assert reservations.reservation(make_vif(), hostname) == "fa:16:3e:00:76:01,10.76.0.10,24h\n"


def test_host_name_is_shortened_to_its_first_label() -> None:
    assert reservations.reservation(make_vif(), "web.example.org") == "fa:16:3e:00:76:01,10.76.0.10,web,24h\n"


def test_reservation_has_the_first_address_of_each_version_alone() -> None:
    subnet = Subnet6(ra_mode=ipv6.STATEFUL, address_mode=ipv6.STATEFUL, enable_dhcp=True)
    network = make_network(cidr6="fd00:76::/64", subnet6=subnet)
    more = ipv6.further_addresses(network, "fd00:76::9", ["fd00:76::5", "10.76.0.5"])
    line = reservations.reservation(make_vif(network=network, more=more), "web")
    assert line == "fa:16:3e:00:76:01,10.76.0.10,[fd00:76::9],web,24h\n"


@pytest.mark.parametrize("mode", [ipv6.STATEFUL, ipv6.STATELESS])
@pytest.mark.parametrize(("enable_dhcp", "address"), [(True, "10.76.0.10,"), (False, "")])
def test_reservation_names_ipv6_addresses_where_dhcpv6_is_answered(enable_dhcp: bool, address: str, mode: str) -> None:
    subnet = Subnet6(ra_mode=mode, address_mode=mode, enable_dhcp=True)
    network = make_network(cidr6="fd00:76::/64", subnet6=subnet, enable_dhcp=enable_dhcp)
    more = [FixedIp(address="fd00:76::5", subnet_id="s", cidr="fd00:76::/64")]
    line = reservations.reservation(make_vif(network=network, more=more), "web")
    assert line == f"fa:16:3e:00:76:01,{address}[fd00:76::5],web,24h\n"
    assert reservations.has_dhcp(network)


def test_reservation_of_an_ipv6_address_is_rejected() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="has an invalid address"):
        reservations.reservation(make_vif(address="fd00::1"), "web")


@pytest.mark.parametrize("mac_address", ["fa:16:3e:00:76", "ignore", "fa:16:3e:00:76:01,id:*"])
def test_malformed_mac_address_is_rejected(mac_address: str) -> None:
    with pytest.raises(exceptions.VirtDriverError):
        reservations.reservation(make_vif(mac_address=mac_address), "web")


def test_reservation_is_idempotent(directory: Path) -> None:
    vif = make_vif()
    reservations.reserve(vif, "web", "host")
    reservations.reserve(vif, "web", "host")
    (path,) = directory.iterdir()
    assert path.read_text() == reservations.reservation(vif, "web")
    assert path.stat().st_mode & 0o777 == 0o644


def test_outdated_reservation_of_the_address_is_removed(directory: Path) -> None:
    old, neighbour = make_vif(1), make_vif(2)
    reservations.reserve(old, "old", "host")
    reservations.reserve(neighbour, "neighbour", "host")
    new = make_vif(3, address=old.address)
    reservations.reserve(new, "new", "host")
    assert {path.name for path in directory.iterdir()} == {neighbour.id, new.id}


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".x"])
def test_ids_cannot_leave_the_directory(bad: str) -> None:
    with pytest.raises(exceptions.VirtDriverError):
        reservations.path_of(make_vif(id=bad))
    with pytest.raises(exceptions.VirtDriverError):
        reservations.directory_for(make_network(id=bad))


def test_settings_are_options_of_dnsmasq() -> None:
    assert reservations.settings(make_network(dns=["9.9.9.9", "9.9.9.10"]), "cloud.test") == {
        "options": f"option:router,10.76.0.1\n{DOMAIN}option:mtu,1500\n",
        "servers": "server=/cloud.test/\nserver=9.9.9.9\nserver=9.9.9.10\n",
    }
    route = {"destination": "10.5.0.0/16", "nexthop": "10.76.0.9"}
    words = "10.5.0.0/16,10.76.0.9"
    bad = {"destination": "10.5.0.0/16,x", "nexthop": "10.76.0.9"}
    without = make_network(gateway=None, host_routes=[route, bad])
    assert reservations.settings(without, "cloud.test")["options"] == (
        f"option:router\noption:classless-static-route,{words}\n249,{words}\n{DOMAIN}option:mtu,1500\n"
    )
    words += ",0.0.0.0/0,10.76.0.1"
    assert reservations.settings(make_network(host_routes=[route]), "cloud.test")["options"] == (
        f"option:router,10.76.0.1\noption:classless-static-route,{words}\n249,{words}\n{DOMAIN}option:mtu,1500\n"
    ), "a guest that gets routes ignores the gateway's own option"


def test_name_servers_are_those_of_the_subnets_or_the_machines() -> None:
    """A realm reaches no address of the machine but that of its resolver, so a user cannot name one."""
    assert reservations.name_servers(make_network()) == ["169.254.192.1#9053"]
    both = make_network(dns=["9.9.9.9", "x;y"], subnet6=Subnet6(dns=["2620:fe::fe", "fe80::1%lo"]))
    assert reservations.name_servers(both) == ["9.9.9.9", "2620:fe::fe"]


def test_settings_that_are_the_same_are_not_written_again(directory: Path) -> None:
    assert reservations.write_settings(make_network(), "host", "cloud.test")
    assert not reservations.write_settings(make_network(), "host", "cloud.test")
    path = directory.parent / f"nova-lite-{make_network().id}.servers"
    text = "server=/cloud.test/\nserver=169.254.192.1#9053\n"
    assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o644)
    assert reservations.write_settings(make_network(dns=["9.9.9.9"]), "host", "cloud.test")
    assert path.read_text() == "server=/cloud.test/\nserver=9.9.9.9\n"


def test_port_with_options_has_a_tag_and_a_file(directory: Path) -> None:
    """dnsmasq 2.90 crashes when it reads a reservation with a tag again, so no reservation has one."""
    vif = make_vif()
    name = f"nova-lite-{vif.network.id}"
    assert port_options.tags(name) == []
    assert not port_options.write(vif, "host")
    option = {"opt_name": "classless-static-route", "opt_value": "10.9.0.0/16,10.76.0.9", "ip_version": 4}
    vif = msgspec.structs.replace(vif, dhcp_options=[option, {**option, "opt_name": "x\noption:router"}])
    assert port_options.write(vif, "host") and not port_options.write(vif, "host")
    tag = f"fa163e007601-{vif.id}"
    path = directory.parent / f"{name}.opts" / tag
    routes = "10.9.0.0/16,10.76.0.9"
    assert path.read_text() == f"tag:{tag},option:classless-static-route,{routes}\ntag:{tag},249,{routes}\n"
    assert path.stat().st_mode & 0o777 == 0o644
    (path.parent / f"{files.TEMPORARY}x").touch()
    assert port_options.tags(name) == [f"dhcp-mac=set:{tag},fa:16:3e:00:76:01"]
    assert reservations.reservation(vif, "web") == "fa:16:3e:00:76:01,10.76.0.10,web,24h\n"
    assert port_options.write(msgspec.structs.replace(vif, dhcp_options=None), "host")
    assert path.read_text() == "" and len(port_options.tags(name)) == 1
    port_options.remove(vif)
    assert not path.exists() and port_options.tags(name) == []


@pytest.mark.parametrize("wrong", [{"id": "../x"}, {"id": "x,y"}, {"id": "x\ny"}, {"mac_address": "fa:16:3e:00:76"}])
def test_port_without_plain_names_has_no_options(directory: Path, wrong: dict[str, str]) -> None:
    option = {"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}
    with pytest.raises(exceptions.VirtDriverError, match="has no plain names"):
        port_options.write(make_vif(dhcp_options=[option], **wrong), "host")


def test_reservations_without_dhcp_are_where_dnsmasq_does_not_read_them(directory: Path) -> None:
    served, unserved = make_network(), make_network(enable_dhcp=False)
    vif = make_vif(network=unserved)
    reservations.reserve(vif, "web", "host")
    off = Path(reservations.directory_for(served, is_served=False))
    assert [path.name for path in off.iterdir()] == [vif.id] and not list(directory.iterdir())
    assert reservations.place(served)
    assert [path.name for path in directory.iterdir()] == [vif.id] and not list(off.iterdir())
    assert not reservations.place(served)
    assert reservations.place(unserved)
    assert [path.name for path in off.iterdir()] == [vif.id] and not list(directory.iterdir())
