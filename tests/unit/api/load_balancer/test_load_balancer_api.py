"""Load balancers, listeners, pools, members and health monitors, as clients see them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import webob

from nova_lite.api.load_balancer.app import LoadBalancerApp
from nova_lite.base.context import RequestContext
from nova_lite.db.network import ports
from nova_lite.objects import Port
from tests.support.api_client import ADMIN, STRANGER
from tests.support.load_balancers import World

PATHS = {
    "loadbalancer": "/loadbalancers",
    "listener": "/listeners",
    "pool": "/pools",
    "member": "/pools/{pool}/members",
    "healthmonitor": "/healthmonitors",
}
NOBODY = "00000000-0000-4000-8000-00000000dead"


def test_load_balancer_is_pending_until_its_host_reports(world: World) -> None:
    world.add_host("host1")
    response = world("POST", "/loadbalancers", {"loadbalancer": {"vip_network_id": world.network.id, "name": "one"}})
    made = response.json["loadbalancer"]
    assert (response.status_code, made["provisioning_status"], made["operating_status"]) == (
        201,
        "PENDING_CREATE",
        "OFFLINE",
    )
    assert made["vip_address"].startswith("10.0.0.") and made["provider"] == "haproxy"
    path = f"/loadbalancers/{made['id']}"
    world.refused("PUT", path, {"loadbalancer": {"name": "two"}}, 409, "is immutable and cannot be updated")
    world.refused("DELETE", path, None, 409, "is immutable")
    world.tick()
    shown = world.get(path)["loadbalancer"]
    assert (shown["provisioning_status"], shown["operating_status"]) == ("ACTIVE", "ONLINE")
    assert made["updated_at"] is None and shown["updated_at"] >= shown["created_at"]
    port = world.port(made["vip_port_id"])
    assert port is not None
    assert (port.device_owner, port.device_id, port.bound_host) == ("Octavia", f"lb-{made['id']}", "host1")


def test_load_balancer_without_hosts_is_in_error_until_one_comes(world: World) -> None:
    made = world.balancer()
    assert made["provisioning_status"] == "ERROR"
    world.add_host("host1")
    world.manager.wings.loaded["load_balancer"].sweep()  # type: ignore[attr-defined]
    world.tick()
    assert world.status(made["id"]) == "ACTIVE"


def test_every_kind_is_listed_shown_and_changed(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    for kind, path in PATHS.items():
        path = path.format(**ids)
        (listed,) = world.get(path)[f"{kind}s"]
        assert listed["id"] == ids[kind] and listed["provisioning_status"] == "ACTIVE"
        assert world.get(f"{path}?name=other")[f"{kind}s"] == []
        assert world.get(f"{path}?fields=id")[f"{kind}s"] == [{"id": ids[kind]}]
        response = world("PUT", f"{path}/{ids[kind]}", {kind: {"name": "changed", "tags": ["b", "a"]}}, base="/v2.0")
        assert (response.status_code, response.json[kind]["provisioning_status"]) == (200, "PENDING_UPDATE")
        world.tick()
        shown = world.get(f"{path}/{ids[kind]}")[kind]
        assert (shown["name"], shown["tags"], shown["provisioning_status"]) == ("changed", ["a", "b"], "ACTIVE")
        assert world.get(f"{path}?tags=a")[f"{kind}s"][0]["id"] == ids[kind]
    pool = world.get(f"/pools/{ids['pool']}")["pool"]
    assert pool["members"] == [{"id": ids["member"]}] and pool["healthmonitor_id"] == ids["healthmonitor"]
    assert pool["listeners"] == [{"id": ids["listener"]}] and pool["loadbalancers"] == [{"id": ids["loadbalancer"]}]
    listener = world.get(f"/listeners/{ids['listener']}")["listener"]
    assert (listener["default_pool_id"], listener["connection_limit"]) == (ids["pool"], -1)


def test_load_balancer_has_up_to_200_tags(world: World) -> None:
    world.add_host("host1")
    assert len(world.balancer(tags=[str(number) for number in range(200)])["tags"]) == 200
    body = {"vip_network_id": world.network.id, "tags": [str(number) for number in range(201)]}
    world.refused("POST", "/loadbalancers", {"loadbalancer": body}, 400, "at most 200")


def test_list_is_sorted_in_both_ways_of_octavia(world: World) -> None:
    world.add_host("host1")
    for name, description in (("b", "x"), ("a", "x"), ("c", "w")):
        world.balancer(name=name, description=description)

    def names(query: str) -> str:
        return "".join(one["name"] for one in world.get(f"/loadbalancers?{query}")["loadbalancers"])

    assert names("sort=name") == names("sort_key=name") == "abc"
    assert names("sort=name:desc") == "cba"
    assert names("sort=description:desc,name:asc") == "abc"
    world.refused("GET", "/loadbalancers?sort=evil", None, 400, "evil")


def test_list_is_in_the_order_of_creation(world: World) -> None:
    world.add_host("host1")
    path = f"/pools/{world.whole()['pool']}/members"
    made = [world.get(path)["members"][0]["address"]]
    made += [world.make(path, "member", address=f"10.0.0.{end}", protocol_port=1)["address"] for end in (30, 10, 20)]
    assert [one["address"] for one in world.get(path)["members"]] == made
    assert len(world.get(f"{path}?limit=2")["members"]) == 2


def test_other_projects_see_and_change_nothing(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    for kind, path in PATHS.items():
        path = path.format(**ids)
        one = f"{path}/{ids[kind]}"
        assert world("GET", one, token=STRANGER).status_code == 403
        assert world("PUT", one, {kind: {"name": "x"}}, STRANGER).status_code == 403
        assert world("DELETE", one, token=STRANGER).status_code == 403
        if kind != "member":
            assert world.get(path, STRANGER)[f"{kind}s"] == []
    for path in ("status", "statuses", "stats"):
        assert world("GET", f"/loadbalancers/{ids['loadbalancer']}/{path}", token=STRANGER).status_code == 403
    assert world("GET", PATHS["member"].format(**ids), token=STRANGER).status_code == 403
    assert world("PUT", PATHS["member"].format(**ids), {"members": []}, STRANGER).status_code == 403
    assert world("PUT", f"/loadbalancers/{ids['loadbalancer']}/failover", token=STRANGER).status_code == 403


def test_every_route_has_a_rule_that_strangers_do_not_pass(world: World) -> None:
    world.add_host("host1")
    ids = world.whole() | {"project_id": "demo"}
    names = {"loadbalancers": "loadbalancer", "listeners": "listener", "pools": "pool", "members": "member",
             "healthmonitors": "healthmonitor"}  # fmt: skip
    tried = set()
    for route in LoadBalancerApp.routes:
        assert route.policy.startswith("os_load-balancer_api:") and route.resource is not None
        path = route.path.removeprefix("/lbaas")
        if "{" not in path:
            continue
        kind = names.get(path.split("/{id}")[0].split("/")[-1])
        path = path.format(id=ids.get(kind or "", ""), pool_id=ids["pool"], project_id="demo")
        body = {route.key or "members": [] if route.key is None else {"name": "x"}} if route.method == "PUT" else None
        if route.method == "POST":
            body = {"member": {"address": "10.0.0.77", "protocol_port": 1}}
        response = world(route.method, path, body, STRANGER)
        assert response.status_code in (403, 404), (route, response.text)
        tried.add((route.method, route.path))
    assert len(tried) > 20
    for kind, path in PATHS.items():
        assert world.get(f"{path.format(**ids)}/{ids[kind]}")[kind]["provisioning_status"] == "ACTIVE"


def test_parts_are_deleted_once_the_host_reports(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    world.refused("DELETE", f"/loadbalancers/{ids['loadbalancer']}", None, 400, "it has children")
    assert world("DELETE", f"/healthmonitors/{ids['healthmonitor']}").status_code == 204
    monitor = world.get(f"/healthmonitors/{ids['healthmonitor']}")["healthmonitor"]
    assert monitor["provisioning_status"] == "PENDING_DELETE"
    world.tick()
    assert world("GET", f"/healthmonitors/{ids['healthmonitor']}").status_code == 404
    assert world("DELETE", f"/pools/{ids['pool']}").status_code == 204
    world.tick()
    assert world("GET", f"/pools/{ids['pool']}/members/{ids['member']}").status_code == 404
    assert world.get(f"/listeners/{ids['listener']}")["listener"]["default_pool_id"] is None


@pytest.mark.parametrize("given", [False, True])
def test_deleted_load_balancer_ends_with_its_port_unless_that_was_given(world: World, given: bool) -> None:
    world.add_host("host1")
    values = {}
    if given:
        values["vip_port_id"] = make_port(world)
    made = world.balancer(**values)
    world.make("/listeners", "listener", loadbalancer_id=made["id"], protocol="TCP", protocol_port=1)
    assert world("DELETE", f"/loadbalancers/{made['id']}?cascade=true").status_code == 204
    assert world.status(made["id"]) == "PENDING_DELETE"
    world.tick()
    assert world("GET", f"/loadbalancers/{made['id']}").status_code == 404
    port = world.port(made["vip_port_id"])
    assert (port is not None) is given
    if port is not None:
        assert (port.device_owner, port.device_id, port.bound_host) == ("", "", None)


def make_port(world: World) -> str:
    context = RequestContext(user_id="alice", project_id="demo", roles=["member"])
    wanted = Port(id=str(uuid.uuid4()), project_id="demo", network_id=world.network.id, address="", mac_address="")
    return world.db.write(ports.create, world.conf, context, wanted).id


def test_port_in_use_is_refused(world: World) -> None:
    world.add_host("host1")
    port_id = make_port(world)
    world.balancer(vip_port_id=port_id)
    body = {"loadbalancer": {"vip_port_id": port_id}}
    world.refused("POST", "/loadbalancers", body, 400, "is in use")


LISTENER: dict[str, Any] = {"loadbalancer_id": "{loadbalancer}", "protocol": "TCP", "protocol_port": 81}
POOL: dict[str, Any] = {"loadbalancer_id": "{loadbalancer}", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
MEMBER_: dict[str, Any] = {"address": "10.0.0.10", "protocol_port": 80}
MONITOR: dict[str, Any] = {"pool_id": "{pool}", "type": "TCP", "delay": 5, "timeout": 5, "max_retries": 1}


@pytest.mark.parametrize(
    ("kind", "values", "status", "text"),
    [
        ("loadbalancer", {}, 400, "VIP must contain one of"),
        ("loadbalancer", {"vip_network_id": NOBODY}, 404, ""),
        ("loadbalancer", {"vip_subnet_id": NOBODY}, 400, "not found"),
        ("loadbalancer", {"vip_subnet_id": NOBODY, "vip_qos_policy_id": NOBODY}, 400, "vip_qos_policy_id"),
        ("loadbalancer", {"vip_subnet_id": NOBODY, "flavor_id": NOBODY}, 400, "no flavors"),
        ("loadbalancer", {"vip_subnet_id": NOBODY, "provider": "f5"}, 400, "haproxy"),
        ("loadbalancer", {"vip_network_id": "{network}", "listeners": [{"protocol": "UDP"}]}, 501, "TCP only"),
        ("loadbalancer", {"vip_network_id": "{network}", "pools": [{"evil": 1}]}, 400, "evil"),
        ("listener", LISTENER | {"protocol": "UDP"}, 501, "does not support a requested option: protocol UDP. Load"),
        ("pool", POOL | {"protocol": "UDP"}, 501, "pass TCP only"),
        ("listener", LISTENER | {"protocol": "QUIC"}, 400, "must be one of"),
        ("listener", LISTENER | {"protocol": "TERMINATED_HTTPS"}, 400, "default_tls_container_ref"),
        ("listener", LISTENER | {"protocol_port": 80}, 409, "already using protocol_port 80"),
        ("listener", LISTENER | {"protocol_port": 0}, 400, "protocol_port"),
        ("listener", LISTENER | {"insert_headers": {"X-Forwarded-For": "true"}}, 400, "protocols HTTP"),
        ("listener", LISTENER | {"protocol": "HTTP", "insert_headers": {"X-Evil": "true"}}, 400, "insert_headers"),
        ("listener", LISTENER | {"allowed_cidrs": ["10.0.0.1; drop"]}, 400, "allowed_cidrs"),
        ("listener", LISTENER | {"default_pool_id": NOBODY}, 404, "pool"),
        ("listener", LISTENER | {"protocol": "HTTPS", "default_pool_id": "{pool}"}, 400, "not compatible"),
        ("listener", LISTENER | {"loadbalancer_id": NOBODY}, 404, "loadbalancer"),
        ("pool", POOL | {"lb_algorithm": "RANDOM"}, 400, "ROUND_ROBIN"),
        ("pool", {**POOL, "loadbalancer_id": None}, 400, "at least one of"),
        ("pool", POOL | {"loadbalancer_id": None, "listener_id": "{listener}"}, 409, "default pool"),
        ("pool", POOL | {"session_persistence": {"type": "APP_COOKIE"}}, 400, "cookie_name"),
        ("pool", POOL | {"session_persistence": {"type": "APP_COOKIE", "cookie_name": "a b"}}, 400, "cookie_name"),
        ("pool", POOL | {"session_persistence": {"type": "X"}}, 400, "SOURCE_IP"),
        ("member", MEMBER_ | {"address": "127.0.0.1"}, 400, "127.0.0.1"),
        ("member", MEMBER_ | {"address": "169.254.169.254"}, 400, "169.254"),
        ("member", MEMBER_ | {"address": "fd00::1"}, 400, "IPv4"),
        ("member", MEMBER_ | {"weight": 257}, 400, "weight"),
        ("member", MEMBER_ | {"subnet_id": NOBODY}, 400, "subnet"),
        ("member", {"address": "10.0.0.9", "protocol_port": 8080}, 409, "already using ip 10.0.0.9"),
        ("healthmonitor", MONITOR, 409, "already has a health monitor"),
        ("healthmonitor", MONITOR | {"type": "PING"}, 501, "use TCP"),
        ("healthmonitor", MONITOR | {"delay": 0}, 400, "delay"),
        ("healthmonitor", MONITOR | {"url_path": "/ 'x"}, 400, "url_path"),
        ("healthmonitor", MONITOR | {"expected_codes": "2xx"}, 400, "expected_codes"),
        ("healthmonitor", MONITOR | {"domain_name": "a\nb"}, 400, "domain_name"),
    ],
)
def test_invalid_request_is_refused(
    shared: tuple[World, dict[str, str]], kind: str, values: dict[str, Any], status: int, text: str
) -> None:
    world, ids = shared
    ids["network"] = world.network.id
    body = {name: value.format(**ids) if isinstance(value, str) and value[:1] == "{" else value
            for name, value in values.items()}  # fmt: skip
    world.refused("POST", PATHS[kind].format(**ids), {kind: body}, status, text)
    assert world.status(ids["loadbalancer"]) == "ACTIVE"


def test_members_are_replaced_together(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    path = PATHS["member"].format(**ids)
    new = [{"address": "10.0.0.9", "protocol_port": 8080, "weight": 7}, {"address": "10.0.0.10", "protocol_port": 80}]
    assert world("PUT", path, {"members": new}).status_code == 202
    world.tick()
    found = {item["address"]: item for item in world.get(path)["members"]}
    assert found["10.0.0.9"]["id"] == ids["member"] and found["10.0.0.9"]["weight"] == 7
    assert world("PUT", path, {"members": new[1:]}).status_code == 202
    world.tick()
    assert [item["address"] for item in world.get(path)["members"]] == ["10.0.0.10"]
    assert world("PUT", f"{path}?additive_only=true", {"members": new[:1]}).status_code == 202
    world.tick()
    assert len(world.get(path)["members"]) == 2
    world.refused("PUT", path, {"members": [new[0], new[0]]}, 400, "same address and port")


def test_load_balancer_is_made_with_all_its_parts(world: World) -> None:
    world.add_host("host1")
    member = {"address": "10.0.0.9", "protocol_port": 80}
    monitor = {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2}
    own = {"name": "own", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": [member],
           "healthmonitor": monitor}  # fmt: skip
    listeners = [
        {"protocol": "TCP", "protocol_port": 80, "default_pool": own},
        {"protocol": "TCP", "protocol_port": 81, "default_pool": {"name": "common"}},
    ]
    pools = [{"name": "common", "protocol": "TCP", "lb_algorithm": "SOURCE_IP"}]
    made = world.balancer(listeners=listeners, pools=pools)
    assert world.status(made["id"]) == "ACTIVE"
    by_name = {pool["name"]: pool for pool in world.get(f"/pools?loadbalancer_id={made['id']}")["pools"]}
    found = {one["protocol_port"]: one for one in world.get(f"/listeners?load_balancer_id={made['id']}")["listeners"]}
    assert found[80]["default_pool_id"] == by_name["own"]["id"] and "loadbalancer_id" not in found[80]
    assert found[81]["default_pool_id"] == by_name["common"]["id"]
    assert len(world.get(f"/pools/{by_name['own']['id']}/members")["members"]) == 1
    (shown,) = world.get(f"/healthmonitors?pool_id={by_name['own']['id']}")["healthmonitors"]
    assert shown["provisioning_status"] == "ACTIVE" and shown["id"] == by_name["own"]["healthmonitor_id"]
    assert [pool["name"] for pool in world.get(f"/pools?listener_id={found[80]['id']}")["pools"]] == ["own"]
    assert world.get(f"/pools?loadbalancer_id={NOBODY}")["pools"] == []
    assert world("PUT", "/quotas/demo", {"quota": {"listener": 3}}, ADMIN).status_code == 202
    body = {"loadbalancer": {"vip_network_id": world.network.id, "listeners": listeners, "pools": pools}}
    world.refused("POST", "/loadbalancers", body, 403, "Quota has been met for resources: listener")


def test_statuses_and_statistics_have_all_parts(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    tree = world.get(f"/loadbalancers/{ids['loadbalancer']}/status")["statuses"]["loadbalancer"]
    (listener,) = tree["listeners"]
    (pool,) = listener["pools"]
    assert (pool["id"], pool["members"][0]["id"]) == (ids["pool"], ids["member"])
    assert pool["healthmonitor"]["type"] == "HTTP" and "pools" not in tree
    zero = {"active_connections": 0, "bytes_in": 0, "bytes_out": 0, "request_errors": 0, "total_connections": 0}
    assert world.get(f"/loadbalancers/{ids['loadbalancer']}/stats")["stats"] == zero
    assert world.get(f"/listeners/{ids['listener']}/stats")["stats"] == zero


def test_catalogue_names_the_provider_and_nothing_else(world: World) -> None:
    assert [item["name"] for item in world.get("/providers")["providers"]] == ["haproxy", "amphora", "octavia"]
    assert world.get("/providers?fields=name")["providers"] == [
        {"name": name} for name in ("haproxy", "amphora", "octavia")
    ]
    for path, key in (
        ("flavors", "flavors"),
        ("availabilityzones", "availability_zones"),
        ("l7policies", "l7policies"),
    ):
        assert world.get(f"/{path}") == {key: []}
    world.refused("POST", "/l7policies", {"l7policy": {}}, 501, "L7 policies")


def test_quota_refuses_more_parts(world: World) -> None:
    world.add_host("host1")
    assert world.get("/quotas/demo")["quota"]["listener"] == 200
    assert world("GET", "/quotas/demo", token=STRANGER).status_code == 403
    assert world("PUT", "/quotas/demo", {"quota": {"load_balancer": 1}}).status_code == 403
    changed = world("PUT", "/quotas/demo", {"quota": {"load_balancer": 1, "pool": 0}}, ADMIN)
    assert (changed.status_code, changed.json["quota"]["loadbalancer"]) == (202, 1)
    made = world.balancer()
    body: dict[str, Any] = {"loadbalancer": {"vip_network_id": world.network.id}}
    world.refused("POST", "/loadbalancers", body, 403, "Quota has been met for resources: loadbalancer")
    body = {"pool": POOL | {"loadbalancer_id": made["id"]}}
    world.refused("POST", "/pools", body, 403, "Quota has been met for resources: pool")
    assert world("DELETE", "/quotas/demo", token=ADMIN).status_code == 204
    assert world.get("/quotas/demo")["quota"]["pool"] == 200


def test_versions_need_no_token(world: World) -> None:
    for path in ("/", "/v2", "/v2.0/"):
        response = webob.Request.blank(path, base_url="http://cloud:9876").get_response(world.app)
        found = response.json["versions"]
        assert found[-1]["id"] == "v2.12" and found[-1]["status"] == "CURRENT"
        assert found[0]["links"] == [{"rel": "self", "href": "http://cloud:9876/v2"}]
