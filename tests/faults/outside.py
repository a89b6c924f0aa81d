"""Ways to the outside in the fault matrix: port forwardings, and addresses of routers. Whatever dies, one host has each
in the end: that of the guest.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import requests

from nova_lite.objects import PortFilters
from tests.faults.arena import SETTLE_SECONDS, Arena
from tests.faults.points import API, COMPUTE, CONDUCTOR, REFRESH, Points, Story, around, join
from tests.support.waiting import wait_for

_FILTERED: Points = {
    CONDUCTOR: around(f"send/{REFRESH}", "handle/port_filters_get"),
    COMPUTE: around(f"handle/{REFRESH}", "send/port_filters_get"),
}


def _changed(method: str, transaction: str) -> Points:
    return {API: around(f"send/{method}"), CONDUCTOR: around(f"handle/{method}", f"commit/{transaction}")}


_REFRESHED: Points = {COMPUTE: around(f"handle/{REFRESH}")}
FORWARDED = join(
    _changed("floating_ip_create", "allocate"), _changed("network_object_create", "create_object"), _FILTERED
)
UNFORWARDED = join(
    _changed("network_object_delete", "delete_object"), _changed("floating_ip_delete", "release"), _REFRESHED
)
ROUTED = join(_changed("router_update", "update"), _changed("router_interface_remove", "remove_interface"), _REFRESHED)


def network(arena: Arena, method: str, path: str, body: Any = None) -> requests.Response | None:
    """Send a request to the network API."""
    url = f"http://127.0.0.1:{arena.cloud.network_port}/v2.0{path}"
    with contextlib.suppress(requests.RequestException):
        return requests.request(method, url, json=body, headers={"X-Auth-Token": arena.cloud.token}, timeout=30)
    return None


def _listed(arena: Arena, path: str, key: str) -> list[dict[str, Any]]:
    def read() -> list[list[dict[str, Any]]]:
        answer = network(arena, "GET", path)
        return [answer.json()[key]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = wait_for(f"{key} are listed", read, SETTLE_SECONDS)[0]
    return found


def _one(arena: Arena, key: str, path: str, **values: Any) -> dict[str, Any]:
    """Make a resource, unless there is one with these values. Return it."""
    query = f"/{path}?" + "&".join(f"{name}={value}" for name, value in values.items() if isinstance(value, str))
    arena.insist_until(
        lambda: network(arena, "POST", f"/{path}", {key: values}), lambda: bool(_listed(arena, query, path))
    )
    return _listed(arena, query, path)[0]


def _gone(arena: Arena, path: str, key: str) -> None:
    """Delete all resources at a path."""

    def ask() -> None:
        for item in _listed(arena, path, key):
            network(arena, "DELETE", f"{path}/{item['id']}")

    arena.insist_until(ask, lambda: not _listed(arena, path, key))


def wired(arena: Arena) -> None:
    """Make a server on a network whose router leads to an external network, both new in the cloud's first case."""
    public = _one(arena, "network", "networks", **{"name": "public", "router:external": True})
    _one(arena, "subnet", "subnets", network_id=public["id"], cidr="192.0.2.0/28", ip_version=4)
    inner = _one(arena, "network", "networks", name="inner")
    subnet = _one(arena, "subnet", "subnets", network_id=inner["id"], cidr="10.98.0.0/24", ip_version=4)
    gateway = {"network_id": public["id"]}
    router = _one(arena, "router", "routers", name="main", external_gateway_info=gateway)
    _set_interface(arena, router["id"], subnet["id"], True)
    arena.create(1, networks=[{"uuid": inner["id"]}])
    arena.settle("ACTIVE", 1)


def _set_interface(arena: Arena, router_id: str, subnet_id: str, is_there: bool) -> None:
    verb = "add" if is_there else "remove"
    ports = f"/ports?device_id={router_id}"
    arena.insist_until(
        lambda: network(arena, "PUT", f"/routers/{router_id}/{verb}_router_interface", {"subnet_id": subnet_id}),
        lambda: bool(_listed(arena, ports, "ports")) == is_there,
    )


def _unwire(arena: Arena) -> None:
    """Remove the interface of the router, which is a port. The rest stays for the next case."""
    (router,) = _listed(arena, "/routers?name=main", "routers")
    (subnet,) = _listed(arena, "/subnets?cidr=10.98.0.0/24", "subnets")
    _set_interface(arena, router["id"], subnet["id"], False)


Finder: TypeAlias = Callable[[PortFilters, set[str]], list[str]]


def _of_hosts(arena: Arena, found: Finder) -> list[tuple[str, str]]:
    """Return what is found in the filters of hosts, each with its host. A host without guests has nothing."""
    here = []
    for host in arena.cloud.computes:
        folder = arena.cloud.path / host / "instances" / f"fake-{host}"
        vifs = [json.loads(file.read_text()) for file in folder.glob("vifs/*.json")]
        with contextlib.suppress(FileNotFoundError):
            filters = msgspec.json.decode((folder / "port-filters.json").read_bytes(), type=PortFilters)
            here += [(host, item) for item in found(filters, {vif["id"] for mine in vifs for vif in mine}) if vifs]
    return here


def _wait_for(arena: Arena, found: Finder, wanted: list[str]) -> None:
    """Wait until the server's host, and no other one, has what is wanted."""

    def seen() -> bool:
        (server,) = arena.servers()
        host = server["OS-EXT-SRV-ATTR:host"]
        return _of_hosts(arena, found) == [(host, item) for item in wanted]

    wait_for(f"the guest's host has {wanted}", seen, SETTLE_SECONDS, 0.3)


def _forwardings(filters: PortFilters, ports: set[str]) -> list[str]:
    held = [item for item in filters.forwardings if item.is_held and item.port_id in ports]
    return [f"{item.floating}:{item.external[0]}" for item in held]


def _addresses(filters: PortFilters, ports: set[str]) -> list[str]:
    del ports
    return [router.address for router in filters.routers or () if router.address]


def forward(arena: Arena) -> None:
    """Lead a port of a floating address to the server."""
    (public,) = _listed(arena, "/networks?name=public", "networks")
    floating = _one(arena, "floatingip", "floatingips", floating_network_id=public["id"])
    (port,) = _listed(arena, f"/ports?device_id={arena.one()}", "ports")
    path = f"/floatingips/{floating['id']}/port_forwardings"
    body = {"internal_port_id": port["id"], "internal_ip_address": port["fixed_ips"][0]["ip_address"]}
    body |= {"internal_port": 80, "external_port": 8080, "protocol": "tcp"}
    arena.insist_until(
        lambda: network(arena, "POST", path, {"port_forwarding": body}),
        lambda: bool(_listed(arena, path, "port_forwardings")),
    )
    _is_forwarded(arena)


def _is_forwarded(arena: Arena) -> None:
    (floating,) = _listed(arena, "/floatingips", "floatingips")
    _wait_for(arena, _forwardings, [f"{floating['floating_ip_address']}:8080"])


def end_forwarding(arena: Arena) -> None:
    (floating,) = _listed(arena, "/floatingips", "floatingips")
    _gone(arena, f"/floatingips/{floating['id']}/port_forwardings", "port_forwardings")
    _wait_for(arena, _forwardings, [])
    _gone(arena, "/floatingips", "floatingips")
    _unwire(arena)


def forwarded(arena: Arena) -> None:
    wired(arena)
    forward(arena)


def then_end(run: Callable[[Arena], None]) -> Callable[[Arena], None]:
    """Return a scenario that ends the forwarding after it has seen it on the guest's host."""

    def both(arena: Arena) -> None:
        run(arena)
        _is_forwarded(arena)
        end_forwarding(arena)

    return both


def _set_address(arena: Arena, wanted: list[dict[str, str]]) -> None:
    """Give the router such addresses of its own. The guest's host has the one."""
    (router,) = _listed(arena, "/routers?name=main", "routers")
    gateway = {"network_id": router["external_gateway_info"]["network_id"], "external_fixed_ips": wanted}
    path = f"/routers/{router['id']}"

    def given() -> list[str]:
        (router,) = _listed(arena, "/routers?name=main", "routers")
        return [item["ip_address"] for item in router["external_gateway_info"]["external_fixed_ips"]]

    arena.insist_until(
        lambda: network(arena, "PUT", path, {"router": {"external_gateway_info": gateway}}),
        lambda: len(given()) == len(wanted),
    )
    _wait_for(arena, _addresses, given())


def address_of_router(arena: Arena) -> None:
    _set_address(arena, [{}])
    _set_address(arena, [])
    _unwire(arena)


def scenarios() -> Iterator[Story]:
    yield Story("port forwarding", wired, then_end(forward), FORWARDED)
    yield Story("port forwarding delete", forwarded, end_forwarding, UNFORWARDED, True)
    yield Story("address of a router", wired, address_of_router, ROUTED)
