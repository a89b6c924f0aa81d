"""DHCP options of ports."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.objects import dhcp_options
from nova_lite.objects.dhcp_options import MAX_OPTIONS
from tests.support import make
from tests.unit.api.network.conftest import Api

MTU = {"opt_name": "mtu", "opt_value": "1400"}


def change(api: Api, port: dict[str, Any], *options: dict[str, Any]) -> list[dict[str, Any]]:
    response = api("PUT", f"/ports/{port['id']}", {"port": {"extra_dhcp_opts": list(options)}})
    assert response.status_code == 200, response.text
    changed: list[dict[str, Any]] = response.json["port"]["extra_dhcp_opts"]
    return changed


def test_port_has_the_options_of_its_request(api: Api) -> None:
    assert api.port()["extra_dhcp_opts"] == api.port(extra_dhcp_opts=None)["extra_dhcp_opts"] == []
    dns6 = {"opt_name": "dns-server", "opt_value": "fd00::53", "ip_version": 6}
    unset = {"opt_name": "ntp-server", "opt_value": None}
    port = api.port(extra_dhcp_opts=[MTU, dns6, unset])
    assert port["extra_dhcp_opts"] == [MTU | {"ip_version": 4}, dns6]
    assert api.get(f"/ports/{port['id']}")["port"]["extra_dhcp_opts"] == port["extra_dhcp_opts"]
    router = {"opt_name": "router", "opt_value": ""}
    assert api.port(extra_dhcp_opts=[router])["extra_dhcp_opts"] == [router | {"ip_version": 4}]


def test_change_keeps_options_that_it_does_not_name(api: Api) -> None:
    """A value of null removes an option, and a number names the same option as its name."""
    port = api.port(extra_dhcp_opts=[MTU])
    file = {"opt_name": "bootfile-name", "opt_value": "a", "ip_version": 4}
    assert change(api, port, file) == [MTU | {"ip_version": 4}, file]
    assert change(api, port) == [MTU | {"ip_version": 4}, file]
    other = {"opt_name": "67", "opt_value": "b", "ip_version": 4}
    assert change(api, port, other) == [MTU | {"ip_version": 4}, other]
    assert change(api, port, {"opt_name": "mtu", "opt_value": None}) == [other]
    assert change(api, port, {"opt_name": "bootfile-name", "opt_value": None}) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("x", "must be a list of objects"),
        ([1], "must be a list of objects"),
        ([{}], "opt_name"),
        ([{"opt_name": 26, "opt_value": "1400"}], "opt_name"),
        ([{**MTU, "x": 1}], "Unrecognized attribute(s) 'x'"),
        ([{**MTU, "opt_value": 1400}], "opt_value"),
        ([{**MTU, "opt_value": ""}], "must be a number from 0 to 65535"),
        ([{**MTU, "opt_value": "65536"}], "must be a number from 0 to 65535"),
        ([{**MTU, "opt_value": "1400\ntag:x"}], "opt_value"),
        ([{**MTU, "ip_version": 5}], "It must be 4 or 6"),
        ([{**MTU, "ip_version": 6}], "'mtu' of IPv6 is none of sip-server"),
        ([{"opt_name": "lease-time", "opt_value": "1"}], "'lease-time' of IPv4 is none of router"),
        ([{"opt_name": "51", "opt_value": "1"}], "'51' of IPv4 is none of"),
        ([{"opt_name": "mtu,1\noption:router", "opt_value": "1"}], "opt_name"),
        ([{"opt_name": "tag:x,mtu", "opt_value": "1"}], "is none of"),
        ([{"opt_name": "router", "opt_value": "10.0.0.1,x"}], "must be IPv4 addresses"),
        ([{"opt_name": "router", "opt_value": "10.0.0.01"}], "must be IPv4 addresses"),
        ([{"opt_name": "dns-server", "opt_value": "10.0.0.1", "ip_version": 6}], "must be IPv6 addresses"),
        ([{"opt_name": "classless-static-route", "opt_value": "10.0.0.0/8"}], "must be pairs of an IPv4 prefix"),
        ([{"opt_name": "domain-search", "opt_value": "a b"}], "must be domain names"),
        ([{"opt_name": "bootfile-name", "opt_value": 'a"b'}], "printable ASCII characters without quotes"),
        ([{"opt_name": "bootfile-name", "opt_value": "a\\nb"}], "printable ASCII characters without quotes"),
        ([{"opt_name": "bootfile-name", "opt_value": "ä"}], "printable ASCII characters without quotes"),
        ([{"opt_name": "bootfile-name", "opt_value": "a\r\nb"}], "printable characters"),
        ([{"opt_name": "bootfile-name", "opt_value": "x" * 256}], "at most 255"),
        ([MTU, MTU], "Option mtu is there twice"),
        ([MTU, {"opt_name": "26", "opt_value": "1"}], "Option 26 is there twice"),
        ([MTU] * (2 * MAX_OPTIONS + 1), f"At most {2 * MAX_OPTIONS} are allowed"),
    ],
)
def test_wrong_option_is_refused(api: Api, options: Any, text: str) -> None:
    port = api.port()
    values = {"extra_dhcp_opts": options}
    api.refused("PUT", f"/ports/{port['id']}", {"port": values}, 400, "HTTPBadRequest", text)
    api.refused("POST", "/ports", {"port": {"network_id": api.shared.id, **values}}, 400, "HTTPBadRequest", text)


def valid(name: str) -> dict[str, Any]:
    """Return an option of IPv4 with a value that it may have."""
    for value in ("1", "10.0.0.1", "a.example", "10.0.0.0/8,10.0.0.1"):
        with contextlib.suppress(ValueError):
            dhcp_options.words(name, value, 4)
            return {"opt_name": name, "opt_value": value, "ip_version": 4}
    raise AssertionError(name)


def test_port_has_a_limited_number_of_options(api: Api) -> None:
    """A change counts the options that the port has already, unless it removes or replaces them."""
    every = [valid(name) for name in dhcp_options.names(4)]
    body = {"port": {"network_id": api.shared.id, "extra_dhcp_opts": every[: MAX_OPTIONS + 1]}}
    refusal = (400, "InvalidInput", f"at most {MAX_OPTIONS} DHCP options")
    api.refused("POST", "/ports", body, *refusal)
    port = api.port(extra_dhcp_opts=every[:MAX_OPTIONS])
    api.refused("PUT", f"/ports/{port['id']}", {"port": {"extra_dhcp_opts": [every[MAX_OPTIONS]]}}, *refusal)
    assert change(api, port, {**every[0], "opt_value": None}, every[MAX_OPTIONS]) == every[1 : MAX_OPTIONS + 1]


def test_server_and_its_host_get_the_options_of_a_port(api: Api) -> None:
    port = api.port(extra_dhcp_opts=[MTU])
    wanted = [MTU | {"ip_version": 4}]
    db = api.manager.db
    uuid = db.write(lambda uow: make.instance(uow, project_id="demo", host="c1"))
    assert db.write(lambda uow: builtin_networks.Store(uow).bind_port(port["id"], uuid, 0, None))
    (vif,) = db.read(lambda uow: builtin_networks.Store(uow).vifs(uuid))
    assert vif.dhcp_options == wanted
    found = db.read(security_groups.filters, "c1", [uuid])
    assert found.dhcp_options == {port["id"]: wanted}
    assert found.current(vif) == vif
    change(api, port, {"opt_name": "mtu", "opt_value": None})
    found = db.read(security_groups.filters, "c1", [uuid])
    assert found.dhcp_options == {}
    assert found.current(vif).dhcp_options is None
