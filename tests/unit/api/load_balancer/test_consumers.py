"""Requests of Cluster API, of Kubernetes' cloud controller manager, Terraform and Heat, in the order of their sources.

All but Heat use Gophercloud: bodies have what its options send, and lists are filtered as it filters them.
"""

from __future__ import annotations

import base64
from typing import Any

import webob

from tests.support.certificates import make
from tests.support.load_balancers import World

CERTIFICATE = make("one.example.org")


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
    sent(world, "PUT", f"/listeners/{listener['id']}", {"listener": {"allowed_cidrs": ["10.0.0.0/16"]}}, 200)
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
    sent(world, "PUT", f"/healthmonitors/{pool['healthmonitor_id']}", {"healthmonitor": {"delay": 7}}, 200)
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
    sent(world, "PUT", f"/loadbalancers/{balancer['id']}", {"loadbalancer": {"tags": [name, "other"]}}, 200)
    assert waited(world, balancer["id"])["tags"] == [name, "other"]
    sent(world, "DELETE", f"/loadbalancers/{balancer['id']}?cascade=true", status=204)
    world.tick()
    assert world.get(f"/loadbalancers?name={name}")["loadbalancers"] == []


def test_cloud_controller_manager_makes_a_service_that_ends_tls(world: World) -> None:
    world.add_host("host1")
    parts = {"certificate": world.secret(CERTIFICATE.certificate), "private_key": world.secret(CERTIFICATE.key)}
    refs = [{"name": name, "secret_ref": reference} for name, reference in parts.items()]
    container = world.keys("POST", "/containers", {"type": "certificate", "secret_refs": refs}).json["container_ref"]
    assert world.keys("GET", container).json["container_ref"] == container
    pool = {"name": "pool_0", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN", "members": []}
    listener = {
        "name": "listener_0", "protocol": "TERMINATED_HTTPS", "protocol_port": 443, "connection_limit": -1,
        "default_tls_container_ref": container, "insert_headers": {"X-Forwarded-For": "true"}, "default_pool": pool,
    }  # fmt: skip
    body = {"name": "kube_service_one_default_tls", "vip_subnet_id": world.subnet_id, "listeners": [listener]}
    balancer = sent(world, "POST", "/loadbalancers", {"loadbalancer": body})["loadbalancer"]
    waited(world, balancer["id"])
    (found,) = world.get(f"/listeners?loadbalancer_id={balancer['id']}")["listeners"]
    assert (found["protocol"], found["default_tls_container_ref"]) == ("TERMINATED_HTTPS", container)


def test_terraform_reads_what_it_has_made_without_drift(world: World) -> None:
    """Terraform compares each attribute that it has set with the value that it reads, and waits by GET for ACTIVE."""
    world.add_host("host1")
    secret = terraform_secret(world)

    def made(path: str, key: str, **values: Any) -> dict[str, Any]:
        part = sent(world, "POST", path, {key: values})[key]
        world.tick()
        shown: dict[str, Any] = world.get(f"{path}/{part['id']}")[key]
        computed = {"loadbalancer_id", "listener_id", "pool_id"}
        assert {name: shown[name] for name in values.keys() - computed} == {
            name: value for name, value in values.items() if name not in computed
        }
        assert shown["provisioning_status"] == "ACTIVE"
        return shown

    balancer = made(
        "/loadbalancers", "loadbalancer", name="one", description="", vip_subnet_id=world.subnet_id,
        admin_state_up=True, provider="octavia", vip_address="10.0.0.77", tags=["a", "b"],
    )  # fmt: skip
    assert (balancer["vip_qos_policy_id"], balancer["availability_zone"], balancer["flavor_id"]) == (None, None, None)
    listener = made(
        "/listeners", "listener", name="tls", protocol="TERMINATED_HTTPS", protocol_port=443, admin_state_up=True,
        loadbalancer_id=balancer["id"], default_tls_container_ref=secret, sni_container_refs=[secret],
        connection_limit=100, timeout_client_data=1000, timeout_member_connect=1001, timeout_member_data=1002,
        timeout_tcp_inspect=1003, insert_headers={"X-Forwarded-For": "true"}, allowed_cidrs=["10.0.0.0/24"],
        tags=["a"],
    )  # fmt: skip
    assert listener["loadbalancers"] == [{"id": balancer["id"]}]
    pool = made(
        "/pools", "pool", name="one", description="", protocol="HTTP", lb_algorithm="LEAST_CONNECTIONS",
        admin_state_up=True, listener_id=listener["id"],
        session_persistence={"type": "APP_COOKIE", "cookie_name": "id"}, tags=["a"],
    )  # fmt: skip
    assert pool["loadbalancers"] == [{"id": balancer["id"]}] and pool["listeners"] == [{"id": listener["id"]}]
    monitor = made(
        "/healthmonitors", "healthmonitor", name="one", pool_id=pool["id"], type="HTTP", delay=20, timeout=10,
        max_retries=5, max_retries_down=4, url_path="/health", http_method="GET", expected_codes="200-202",
        admin_state_up=True,
    )  # fmt: skip
    assert monitor["pools"] == [{"id": pool["id"]}]
    path = f"/pools/{pool['id']}/members"
    member = made(
        path, "member", name="one", address="10.0.0.9", protocol_port=8080, weight=5, backup=True,
        subnet_id=world.subnet_id, monitor_address="10.0.0.10", monitor_port=81, admin_state_up=True,
    )  # fmt: skip
    for target, key, changes in (
        (f"/listeners/{listener['id']}", "listener", {"connection_limit": 50, "allowed_cidrs": []}),
        (f"/pools/{pool['id']}", "pool", {"lb_algorithm": "ROUND_ROBIN", "admin_state_up": False}),
        (f"/healthmonitors/{monitor['id']}", "healthmonitor", {"delay": 30, "timeout": 15}),
        (f"{path}/{member['id']}", "member", {"name": "", "weight": 0}),
        (f"/loadbalancers/{balancer['id']}", "loadbalancer", {"name": "two", "tags": []}),
    ):
        sent(world, "PUT", target, {key: changes}, 200)
        world.tick()
        shown = world.get(target)[key]
        assert {name: shown[name] for name in changes} == changes
    tree = world.get(f"/loadbalancers/{balancer['id']}/status")["statuses"]["loadbalancer"]
    assert [one["id"] for one in tree["listeners"]] == [listener["id"]]
    assert [one["id"] for one in tree["listeners"][0]["pools"]] == [pool["id"]]
    batch = [{"address": "10.0.0.21", "protocol_port": 80, "name": "", "weight": 1, "admin_state_up": True}]
    for members in (batch, []):
        sent(world, "PUT", path, {"members": members}, 202)
        world.tick()
        assert [one["address"] for one in world.get(path)["members"]] == [one["address"] for one in members]
    for target in (
        f"/healthmonitors/{monitor['id']}", f"/pools/{pool['id']}", f"/listeners/{listener['id']}",
        f"/loadbalancers/{balancer['id']}",
    ):  # fmt: skip
        sent(world, "DELETE", target, status=204)
        world.tick()
        assert world("GET", target).status_code == 404
    assert world.keys("DELETE", secret).status_code == 204


def terraform_secret(world: World) -> str:
    """Make a secret as Terraform does: first without its payload, then the payload by a request of its own."""
    reference = str(world.keys("POST", "/secrets", {"name": "one", "secret_type": "opaque"}).json["secret_ref"])
    assert world.keys("GET", reference).json["status"] == "ACTIVE"
    data, kind = base64.b64encode(CERTIFICATE.pkcs12), "application/octet-stream"
    response = world.keys("PUT", reference, data, kind=kind, Content_Encoding="base64")
    assert response.status_code == 204
    shown = world.keys("GET", reference).json
    assert (shown["content_types"], shown["secret_type"]) == ({"default": kind}, "opaque")
    assert world.keys("GET", f"{reference}/payload", Accept=kind).body == CERTIFICATE.pkcs12
    assert world.keys("GET", f"{reference}/metadata").json == {"metadata": {}}
    assert world.keys("GET", f"{reference}/acl").json["read"]["project-access"] is True
    return reference


def test_heat_makes_and_deletes_a_stack(world: World) -> None:
    """Heat sends a change again after a 409, and looks at the provisioning_status of each part."""
    world.add_host("host1")

    def retried(method: str, path: str, body: Any = None) -> Any:
        response = world(method, path, body)
        assert response.status_code == 409, "the load balancer is pending still"
        world.tick()
        response = world(method, path, body)
        assert response.status_code in (200, 201, 204), response.text
        return response.json if response.body else None

    body: dict[str, Any] = {"name": "s-lb", "description": "", "admin_state_up": True, "vip_subnet_id": world.subnet_id}
    balancer = sent(world, "POST", "/loadbalancers", {"loadbalancer": body})["loadbalancer"]
    body = {"name": "s-l", "description": "", "protocol": "HTTP", "protocol_port": 80, "connection_limit": -1,
            "admin_state_up": True, "loadbalancer_id": balancer["id"]}  # fmt: skip
    listener = retried("POST", "/listeners", {"listener": body})["listener"]
    body = {"name": "s-p", "description": "", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN", "admin_state_up": True,
            "listener_id": listener["id"], "session_persistence": {"type": "HTTP_COOKIE"}, "tls_enabled": False,
           }  # fmt: skip
    pool = retried("POST", "/pools", {"pool": body})["pool"]
    body = {"type": "HTTP", "delay": 3, "timeout": 3, "max_retries": 3, "http_method": "GET", "url_path": "/",
            "expected_codes": "200", "admin_state_up": True, "pool_id": pool["id"]}  # fmt: skip
    monitor = retried("POST", "/healthmonitors", {"healthmonitor": body})["healthmonitor"]
    path = f"/pools/{pool['id']}/members"
    body = {"address": "10.0.0.9", "protocol_port": 80, "weight": 1, "admin_state_up": True,
            "subnet_id": world.subnet_id}  # fmt: skip
    member = retried("POST", path, {"member": body})["member"]
    retried("PUT", f"{path}/{member['id']}", {"member": {"weight": 2}})
    retried("PUT", f"/listeners/{listener['id']}", {"listener": {"connection_limit": 9}})
    retried("DELETE", f"{path}/{member['id']}")
    retried("DELETE", f"/healthmonitors/{monitor['id']}")
    retried("DELETE", f"/pools/{pool['id']}")
    assert world.get(f"/pools/{pool['id']}")["pool"]["provisioning_status"] == "PENDING_DELETE"
    retried("DELETE", f"/listeners/{listener['id']}")
    retried("DELETE", f"/loadbalancers/{balancer['id']}")
    world.tick()
    assert world("GET", f"/loadbalancers/{balancer['id']}").status_code == 404
