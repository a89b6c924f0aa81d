"""Floating addresses in the compute API, with the rows of a real conductor and a pool of its own."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.objects import FloatingIp, FloatingIpPool
from tests.support.api_client import Client, fault

FOUND = FloatingIp(
    id="11111111-2222-4333-8444-555555555555",
    address="192.0.2.1",
    pool="public",
    project_id="demo",
    port_id="p",
    fixed_address="10.0.0.5",
    instance_uuid="i",
)
SHOWN = {"id": FOUND.id, "ip": "192.0.2.1", "pool": "public", "fixed_ip": "10.0.0.5", "instance_id": "i"}


@pytest.fixture
def calls(api: Client) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    results = {
        "floating_ip_pool_list": [FloatingIpPool(id="x", name="public", cidr="192.0.2.0/24")],
        "floating_ip_list": [FOUND],
        "floating_ip_get": FOUND,
        "floating_ip_create": FOUND,
        "floating_ip_delete": None,
        "floating_ip_associate": None,
        "floating_ip_disassociate": None,
    }
    for name, result in results.items():

        def record(context: Any, *arguments: Any, name: str = name, result: Any = result) -> Any:
            calls.append((name, *arguments))
            return result

        api.conductor.script(name, record)
    return calls


def test_floating_ips_and_pools_are_listed(api: Client, calls: list[tuple[Any, ...]]) -> None:
    assert api.json("GET", "/os-floating-ip-pools") == {"floating_ip_pools": [{"name": "public"}]}
    assert api.json("GET", "/os-floating-ips") == {"floating_ips": [SHOWN]}
    assert api.json("GET", f"/os-floating-ips/{FOUND.id}") == {"floating_ip": SHOWN}
    assert api("DELETE", f"/os-floating-ips/{FOUND.id}").status_code == 202
    assert calls[-1] == ("floating_ip_delete", FOUND.id)


@pytest.mark.parametrize(("body", "pool"), [({"pool": "public"}, "public"), ({}, None), ({"pool": None}, None)])
def test_floating_ip_is_allocated_and_released(
    api: Client, calls: list[tuple[Any, ...]], body: Any, pool: str | None
) -> None:
    assert api.json("POST", "/os-floating-ips", body) == {"floating_ip": SHOWN}
    assert calls == [("floating_ip_create", pool, None)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"addFloatingIp": {"address": "192.0.2.1"}}, ("floating_ip_associate", "1", "192.0.2.1", None)),
        (
            {"addFloatingIp": {"address": "192.0.2.1", "fixed_address": "10.0.0.5"}},
            ("floating_ip_associate", "1", "192.0.2.1", "10.0.0.5"),
        ),
        ({"removeFloatingIp": {"address": "192.0.2.1"}}, ("floating_ip_disassociate", "1", "192.0.2.1")),
    ],
)
def test_floating_ip_is_associated_and_disassociated(
    api: Client, calls: list[tuple[Any, ...]], body: Any, expected: Any
) -> None:
    assert api("POST", "/servers/1/action", body, version="2.43").status_code == 202
    assert calls == [expected]
    fault(api("POST", "/servers/1/action", body, version="2.44"), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/os-floating-ips", {"other": 1}),
        ("/servers/1/action", {"addFloatingIp": {}}),
        ("/servers/1/action", {"addFloatingIp": {"address": "x"}}),
        ("/servers/1/action", {"removeFloatingIp": {"address": "192.0.2.1", "fixed_address": "10.0.0.5"}}),
    ],
)
def test_malformed_floating_ip_bodies_are_refused(
    api: Client, calls: list[tuple[Any, ...]], path: str, body: Any
) -> None:
    fault(api("POST", path, body), "badRequest", 400)
    assert calls == []


@pytest.mark.parametrize("path", ["/os-floating-ip-pools", "/os-floating-ips", f"/os-floating-ips/{FOUND.id}"])
def test_floating_ips_end_with_2_35(api: Client, path: str) -> None:
    fault(api("GET", path, version="2.36"), "itemNotFound", 404)


def test_floating_ips_without_pool_are_empty(api: Client) -> None:
    assert api.json("GET", "/os-floating-ips") == {"floating_ips": []}
    fault(api("POST", "/os-floating-ips", {"pool": "x"}), "itemNotFound", 404)
    fault(api("GET", f"/os-floating-ips/{FOUND.id}"), "itemNotFound", 404)


def test_server_shows_floating_and_fixed_address(api: Client) -> None:
    server = api.conductor.add()
    server.vifs[0].floating_address = "192.0.2.1"
    ((fixed, floating),) = api.json("GET", f"/servers/{server.uuid}")["server"]["addresses"].values()
    assert [item["OS-EXT-IPS:type"] for item in (fixed, floating)] == ["fixed", "floating"]
    assert floating["addr"] == "192.0.2.1"
