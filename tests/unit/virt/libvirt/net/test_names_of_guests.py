"""Files of names of guests."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite.objects import HostRouter
from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.net import dhcp, names_of_guests, networks, plugging
from tests.support.api_client import make_conf
from tests.support.guests import make_network, make_vif


def named(**networks_: list[str]) -> dict[str, NetworkMembers]:
    return {name: NetworkMembers(members=members) for name, members in networks_.items()}


def router(*parts: tuple[str, str | None]) -> HostRouter:
    return HostRouter(id="r1", networks=[make_network(id=name, project_id=project) for name, project in parts])


def test_line_has_full_name_before_short_one() -> None:
    members = ["10.0.0.4 web ", "fd00::4 web net.org.", "10.0.0.5 db.cloud.test. ", "10.0.0.6 a.b x.org."]
    assert names_of_guests.texts(named(n1=members), [], "cloud.test")["n1"].splitlines() == [
        "10.0.0.4 web.cloud.test web",
        "fd00::4 web.net.org web",
        "10.0.0.5 db.cloud.test db",
        "10.0.0.6 a.b.x.org a.b",
    ]


@pytest.mark.parametrize("member", ["10.0.0.4 web", "x web ", "10.0.0.4 web\n10.0.0.5 x ", "10.0.0.4 a;b ", "1.1.1.1 "])
def test_invalid_member_has_no_line(member: str) -> None:
    assert names_of_guests.texts(named(n1=[member, "10.0.0.9 ok "]), [], "t")["n1"] == "10.0.0.9 ok.t ok\n"


def test_networks_of_a_router_know_their_names_if_one_project_has_them() -> None:
    names = named(n1=["10.0.1.4 a "], n2=["10.0.2.4 b "], n3=["10.0.3.4 c "])
    together = names_of_guests.texts(names, [router(("n1", "p1"), ("n2", "p1"), ("n4", "p1"))], "t")
    assert together["n1"] == together["n2"] == "10.0.1.4 a.t a\n10.0.2.4 b.t b\n"
    assert together["n3"] == "10.0.3.4 c.t c\n"
    for other in ("p2", None):
        apart = names_of_guests.texts(names, [router(("n1", "p1"), ("n2", other))], "t")
        assert (apart["n1"], apart["n2"]) == ("10.0.1.4 a.t a\n", "10.0.2.4 b.t b\n")


def test_domain_of_a_network_is_its_own_if_it_is_valid() -> None:
    for own, expected in (("net.org.", "net.org"), ("", "cloud.test"), ("a b", "cloud.test"), ("x\ny", "cloud.test")):
        assert names_of_guests.domain_of(make_network(dns_domain=own), "cloud.test.") == expected


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Networks of a host whose dnsmasq processes are not there. ``reloaded``: their names, once for each reload."""
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    made: Any = networks.HostNetworks(make_conf(tmp_path), None, "h1")  # type: ignore[arg-type]
    made.reloaded = []
    monkeypatch.setattr(dhcp, "reload", made.reloaded.append)
    return made


def test_host_reloads_only_networks_whose_names_changed(hosts: Any, tmp_path: Path) -> None:
    hosts.set_names(named(n1=["10.0.1.4 a "], n2=["10.0.2.4 b "]), [])
    assert sorted(hosts.reloaded) == ["nova-lite-n1", "nova-lite-n2"]
    hosts.set_names(named(n1=["10.0.1.4 a "], n2=["10.0.2.4 b "]), [])
    hosts.set_names(named(n1=["10.0.1.4 a "], n2=["10.0.2.5 b "]), [])
    assert hosts.reloaded[2:] == ["nova-lite-n2"]
    hosts.set_names(named(n1=["10.0.1.4 a "]), [])
    assert (tmp_path / "nova-lite-n2.names").read_text() == ""
    hosts.set_names(None, [])
    assert (tmp_path / "nova-lite-n1.names").read_text() == "10.0.1.4 a.openstacklocal a\n"


def test_names_that_did_not_come_keep_the_file(hosts: Any, tmp_path: Path) -> None:
    hosts.set_names(named(n1=["10.0.1.4 a "]), [])
    hosts.set_names({"n1": NetworkMembers(members=[], base="unknown")}, [])
    assert (tmp_path / "nova-lite-n1.names").read_text() == "10.0.1.4 a.openstacklocal a\n"


def test_network_id_is_no_path(hosts: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is not a plain name"):
        hosts.set_names(named(**{"../x": ["10.0.1.4 a "]}), [])
    assert os.listdir(tmp_path.parent).count("x") == 0


@pytest.mark.parametrize(("owner", "name"), [("p1", "web"), (None, "web"), ("p2", "")])
def test_guest_has_no_name_by_dhcp_on_a_network_of_another_project(owner: str | None, name: str) -> None:
    instance: Any = SimpleNamespace(project_id="p1", hostname="web")
    assert plugging._name_on(make_vif(network=make_network(project_id=owner)), instance) == name
