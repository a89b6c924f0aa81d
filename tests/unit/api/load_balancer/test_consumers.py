"""Requests of Cluster API's provider and of Kubernetes' cloud controller manager, in the order of their sources.

Both use Gophercloud: bodies have what its options send, and lists are filtered as it filters them.
"""

from __future__ import annotations

from typing import Any

import webob

from tests.support.load_balancers import World


def waited(world: World, balancer_id: str) -> dict[str, Any]:
    """Wait for ACTIVE, as both do after each change."""
    world.tick()
    shown: dict[str, Any] = world.get(f"/loadbalancers/{balancer_id}")["loadbalancer"]
    assert shown["provisioning_status"] == "ACTIVE"
    return shown


def sent(world: World, method: str, path: str, body: Any = None, status: int = 201) -> Any:
    response = world(method, path, body, base="/v2.0")
    assert response.status_code == status, response.text
    return response.json if response.body else None


def features(world: World) -> list[str]:
    """Return the versions, of which the cloud controller manager derives what it may use."""
    found = webob.Request.blank("/", base_url="http://cloud:9876").get_response(world.app).json["versions"]
    return [version["id"] for version in found]


def test_cluster_api_makes_the_load_balancer_of_its_api_servers(world: World) -> None:
    world.add_host("host1")
    name = "k8s-clusterapi-cluster-default-one-kubeapi"
    assert world.get(f"/loadbalancers?name={name}")["loadbalancers"] == []
    assert {item["name"] for item in world.get("/providers")["providers"]} >= {"amphora", "octavia"}
    body: dict[str, Any] = {
        "name": name, "vip_subnet_id": world.subnet_id, "description": "Created by cluster-api-provider-openstack",
        "tags": ["one"], "provider": "amphora",
    }  # fmt: skip
    balancer = sent(world, "POST", "/loadbalancers", {"loadbalancer": body})["loadbalancer"]
    assert balancer["provider"] == "amphora"
    waited(world, balancer["id"])
    part = f"{name}-6443"
    assert world.get(f"/listeners?name={part}")["listeners"] == []
    listener = {
        "name": part, "protocol": "TCP", "protocol_port": 6443, "loadbalancer_id": balancer["id"], "tags": ["one"],
        "allowed_cidrs": ["10.0.0.0/24"],
    }  # fmt: skip
    listener = sent(world, "POST", "/listeners", {"listener": listener})["listener"]
    waited(world, balancer["id"])
    sent(world, "PUT", f"/listeners/{listener['id']}", {"listener": {"allowed_cidrs": ["10.0.0.0/16"]}}, 202)
    waited(world, balancer["id"])
    assert world.get(f"/pools?name={part}")["pools"] == []
    pool = {"name": part, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "listener_id": listener["id"]}
    pool = sent(world, "POST", "/pools", {"pool": pool | {"tags": ["one"]}})["pool"]
    waited(world, balancer["id"])
    assert world.get(f"/healthmonitors?name={part}")["healthmonitors"] == []
    monitor = {
        "name": part, "pool_id": pool["id"], "type": "TCP", "delay": 10, "max_retries": 5, "timeout": 5,
        "max_retries_down": 3,
    }  # fmt: skip
    sent(world, "POST", "/healthmonitors", {"healthmonitor": monitor})
    waited(world, balancer["id"])
    member_path = f"/pools/{pool['id']}/members"
    assert world.get(f"{member_path}?name=one-0")["members"] == []
    member = {"name": "one-0", "protocol_port": 6443, "address": "10.0.0.7", "tags": ["one"]}
    member = sent(world, "POST", member_path, {"member": member})["member"]
    waited(world, balancer["id"])
    sent(world, "DELETE", f"{member_path}/{member['id']}", status=204)
    waited(world, balancer["id"])
    sent(world, "DELETE", f"/loadbalancers/{balancer['id']}?cascade=true", status=204)
    world.tick()
    assert world("GET", f"/loadbalancers/{balancer['id']}").status_code == 404


def test_cloud_controller_manager_makes_and_changes_a_service(world: World) -> None:
    world.add_host("host1")
    assert "v2.12" in features(world) and "v2.5" in features(world)
    name = "kube_service_one_default_web"
    assert world.get(f"/loadbalancers?name={name}")["loadbalancers"] == []
    members = [{"address": f"10.0.0.{number}", "protocol_port": 30080, "name": f"node-{number}",
                "subnet_id": world.subnet_id} for number in (11, 12)]  # fmt: skip
    monitor = {"name": "monitor_0", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3}
    pool = {"name": "pool_0", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members,
            "healthmonitor": monitor}  # fmt: skip
    listener = {
        "name": "listener_0", "protocol": "TCP", "protocol_port": 80, "connection_limit": -1,
        "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0, "tags": [name], "default_pool": pool,
    }  # fmt: skip
    body = {"name": name, "description": "Kubernetes external service default/web from cluster one", "tags": [name],
            "provider": "octavia", "vip_subnet_id": world.subnet_id, "listeners": [listener]}  # fmt: skip
    balancer = sent(world, "POST", "/loadbalancers", {"loadbalancer": body})["loadbalancer"]
    waited(world, balancer["id"])
    (found,) = world.get(f"/listeners?loadbalancer_id={balancer['id']}")["listeners"]
    (pool,) = world.get(f"/pools?loadbalancer_id={balancer['id']}")["pools"]
    assert found["default_pool_id"] == pool["id"]
    assert {item["address"] for item in world.get(f"/pools/{pool['id']}/members")["members"]} == {
        "10.0.0.11", "10.0.0.12",
    }  # fmt: skip
    batch = {"members": [*members[1:], members[0] | {"address": "10.0.0.13", "name": "node-13"}]}
    sent(world, "PUT", f"/pools/{pool['id']}/members", batch, 202)
    waited(world, balancer["id"])
    sent(world, "PUT", f"/healthmonitors/{pool['healthmonitor_id']}", {"healthmonitor": {"delay": 7}}, 202)
    waited(world, balancer["id"])
    second = {
        "name": "listener_1", "protocol": "TCP", "protocol_port": 443, "loadbalancer_id": balancer["id"],
        "allowed_cidrs": ["0.0.0.0/0"], "tags": [name],
    }  # fmt: skip
    second = sent(world, "POST", "/listeners", {"listener": second})["listener"]
    waited(world, balancer["id"])
    pool = {"name": "pool_1", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "listener_id": second["id"]}
    sent(world, "POST", "/pools", {"pool": pool | {"session_persistence": {"type": "SOURCE_IP"}}})
    waited(world, balancer["id"])
    sent(world, "PUT", f"/loadbalancers/{balancer['id']}", {"loadbalancer": {"tags": [name, "other"]}}, 202)
    assert waited(world, balancer["id"])["tags"] == [name, "other"]
    sent(world, "DELETE", f"/loadbalancers/{balancer['id']}?cascade=true", status=204)
    world.tick()
    assert world.get(f"/loadbalancers?name={name}")["loadbalancers"] == []
