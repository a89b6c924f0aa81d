"""Security groups with all daemons: what becomes of rows reaches every host that has members, whatever it missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nova_lite.objects import PortFilters, security_group
from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.listener import Listener
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("groups"), computes=2) as ready:
        yield ready


def told(running: Cloud, host: str) -> PortFilters:
    """Return the filter rules that the host received last."""
    path = running._domains_of(host).parent / "port-filters.json"
    return msgspec.json.decode(path.read_bytes(), type=PortFilters) if path.exists() else PortFilters()


def ports(running: Cloud, host: str, server_id: str) -> dict[str, list[int]] | None:
    """Return, by group of the server, the first ports of its rules, as the host knows them."""
    found = told(running, host)
    if server_id not in found.instances:
        return None
    groups = [found.groups[instance] for instance in found.instances[server_id]]
    return {
        group.name: sorted(rule.port_range_min for rule in group.rules if rule.port_range_min is not None)
        for group in groups
    }


def wait_until_told(running: Cloud, host: str, server_id: str, **groups: list[int]) -> None:
    wait_for(f"{host} filters by {groups}", lambda: ports(running, host, server_id) == groups)


def members(running: Cloud, host: str, name: str) -> list[str]:
    groups = [group for group in told(running, host).groups.values() if group.name == name]
    lists = [item for group in groups for item in (group.members_by_network or {}).values()]
    return [address for item in lists for address in item.members]


def asked(running: Cloud, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = running.request(method, path, body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.text else None


def rule(running: Cloud, group: str, port: int) -> str:
    values = {"parent_group_id": group, "ip_protocol": "tcp", "from_port": port, "to_port": port}
    made = asked(running, "POST", "/os-security-group-rules", {"security_group_rule": values})
    rule_id: str = made["security_group_rule"]["id"]
    return rule_id


def address(running: Cloud, server_id: str) -> str:
    shown = running.show(server_id)
    assert shown is not None
    found: str = next(iter(shown["addresses"].values()))[0]["addr"]
    return found


def test_rules_and_members_reach_every_host(running: Cloud) -> None:
    """An absent host receives the changes when it returns."""
    group = asked(running, "POST", "/os-security-groups", {"security_group": {"name": "web", "description": ""}})
    group_id = group["security_group"]["id"]
    hosts = running.computes
    ids = {
        host: running.create(availability_zone=f"nova:{host}", security_groups=[{"name": "web"}])[0] for host in hosts
    }
    running.wait_active(list(ids.values()))
    shown = running.show(ids[hosts[0]])
    assert shown is not None
    assert shown["security_groups"] == [{"name": "web"}]
    for host in hosts:
        wait_until_told(running, host, ids[host], web=[])
    first = rule(running, group_id, 80)
    for host in hosts:
        wait_until_told(running, host, ids[host], web=[80])
    assert running.action(ids[hosts[0]], {"addSecurityGroup": {"name": "default"}}).status_code == 202
    wait_until_told(running, hosts[0], ids[hosts[0]], web=[80], default=[])
    assert members(running, hosts[0], "default") == [address(running, ids[hosts[0]])]

    running.kill(hosts[1])
    asked(running, "DELETE", f"/os-security-group-rules/{first}", status=202)
    rule(running, group_id, 443)
    wait_until_told(running, hosts[0], ids[hosts[0]], web=[443], default=[])
    assert ports(running, hosts[1], ids[hosts[1]]) == {"web": [80]}
    running.start(hosts[1])
    wait_until_told(running, hosts[1], ids[hosts[1]], web=[443])

    assert running.action(ids[hosts[0]], {"removeSecurityGroup": {"name": "web"}}).status_code == 202
    wait_until_told(running, hosts[0], ids[hosts[0]], default=[])
    answer = running.request("DELETE", f"/os-security-groups/{group_id}")
    assert (answer.status_code, ids[hosts[1]] in answer.text) == (400, True)
    running.delete_all()
    asked(running, "DELETE", f"/os-security-groups/{group_id}", status=202)
    running.audit()


def test_members_come_and_go(running: Cloud) -> None:
    """The default group lets its members in, so each host has to know those of others."""
    first, second = running.computes
    mine = running.create(availability_zone=f"nova:{first}")[0]
    running.wait_active([mine])
    other = running.create(availability_zone=f"nova:{second}")[0]
    running.wait_active([other])
    both = sorted([address(running, mine), address(running, other)])
    wait_for("the first host knows both", lambda: sorted(members(running, first, "default")) == both)
    assert running.request("DELETE", f"/servers/{other}").status_code == 204
    wait_for("it is no member any more", lambda: members(running, first, "default") == [address(running, mine)])
    running.delete_all()


def test_orders_that_go_out_together_say_what_to_filter(running: Cloud) -> None:
    """Commands carry the rules for hosts that filter, which have queried before."""
    for host in running.computes:
        guest = running.create(availability_zone=f"nova:{host}")
        running.wait_active(guest)
        wait_until_told(running, host, guest[0], default=[])
    with Listener(running.vhost) as heard:
        ids = running.create(count=6)
        at = {server: shown["OS-EXT-SRV-ATTR:host"] for server, shown in running.wait_active(ids).items()}

        def ordered() -> list[dict[str, Any]]:
            builds = [args for method, args in heard.arguments if method.startswith("build_and_run_instance")]
            return [request for args in builds for request in args.get("requests") or [args["request"]]]

        wait_for("all orders are heard", lambda: len(ordered()) == len(ids))
    for host in set(at.values()):
        mine = [request for request in ordered() if at[request["instance"]["uuid"]] == host]
        told_here = [request["filters"] for request in mine if request.get("filters")]
        assert len(told_here) == 1
        assert told_here[0]["instances"].keys() >= {request["instance"]["uuid"] for request in mine}
    for server, host in at.items():
        wait_until_told(running, host, server, default=[])
    running.delete_all()


def test_groups_that_cannot_be_asked_for(running: Cloud) -> None:
    body = {"name": "vm", "imageRef": running.image_id, "flavorRef": "1", "security_groups": [{"name": "nosuch"}]}
    answer = running.request("POST", "/servers", {"server": body})
    assert (answer.status_code, "nosuch" in answer.text) == (400, True)
    default = security_group.default_id("nobody's")
    assert running.request("GET", f"/os-security-groups/{default}").status_code == 404


def test_a_floating_address_is_told_to_the_host_of_its_server_alone(running: Cloud) -> None:
    """And to the next one when the server moves."""
    running.manage("floating-pool", "create", "public", "192.0.2.0/30")
    first, second = running.computes
    server = running.create(availability_zone=f"nova:{first}")[0]
    running.wait_active([server])
    other = running.create(availability_zone=f"nova:{second}")[0]
    running.wait_active([other])
    found = asked(running, "POST", "/os-floating-ips", {"pool": "public"})["floating_ip"]
    address = found["ip"]
    assert running.action(server, {"addFloatingIp": {"address": address}}).status_code == 202
    wait_for("the host leads it there", lambda: list(told(running, first).floating.values()) == [address])
    assert not told(running, second).floating
    body = {"os-migrateLive": {"host": second, "block_migration": "auto"}}
    answer = running.request("POST", f"/servers/{server}/action", body, version="2.30")
    assert answer.status_code == 202, answer.text
    wait_for("the other host does", lambda: list(told(running, second).floating.values()) == [address])
    running.wait_active([server])
    assert asked(running, "GET", f"/os-floating-ips/{found['id']}")["floating_ip"]["instance_id"] == server
    running.delete_all()
    assert asked(running, "GET", f"/os-floating-ips/{found['id']}")["floating_ip"]["instance_id"] is None
    asked(running, "DELETE", f"/os-floating-ips/{found['id']}", status=202)
    running.audit()
