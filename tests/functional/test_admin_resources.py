"""Settings of admins and projects over REST, and their effects on servers."""

from __future__ import annotations

import uuid
from typing import Any

from tests.functional.cloud import Cloud
from tests.functional.server_requests import MEMBER, ask
from tests.support.waiting import wait_for


def create_status(cloud: Cloud, **values: Any) -> int:
    server = {"name": "vm", "imageRef": cloud.image_id, "flavorRef": "1", **values}
    return cloud.request("POST", "/servers", {"server": server}, token=MEMBER).status_code


def test_an_aggregate_makes_a_zone_and_caches_images(tidy: Cloud) -> None:
    body = {"aggregate": {"name": "a", "availability_zone": "az-a"}}
    number = ask(tidy, "POST", "/os-aggregates", body)["aggregate"]["id"]
    ask(tidy, "POST", "/os-aggregates", body, status=409)
    path = f"/os-aggregates/{number}"
    ask(tidy, "GET", "/os-aggregates/a", status=400)
    ask(tidy, "POST", f"{path}/action", {"add_host": {"host": "nowhere"}}, status=404)
    added = ask(tidy, "POST", f"{path}/action", {"add_host": {"host": "compute-2"}}, version="2.41")["aggregate"]
    assert added["hosts"] == ["compute-2"]
    uuid.UUID(added["uuid"])
    ask(tidy, "POST", f"{path}/action", {"add_host": {"host": "compute-2"}}, status=409)

    (server,) = tidy.create(availability_zone="az-a")
    assert tidy.wait_active([server])[server]["OS-EXT-SRV-ATTR:host"] == "compute-2"
    ask(tidy, "PUT", path, {"aggregate": {"availability_zone": "az-b"}}, status=400)
    tidy.delete_all()

    ask(tidy, "POST", f"{path}/images", {"cache": [{"id": tidy.image_id}]}, status=202, version="2.81")
    cached = tidy.path / "compute-2" / "instances" / "fake-compute-2" / "images" / tidy.image_id
    wait_for("the image is in the host's cache", cached.exists)
    changed = ask(tidy, "POST", f"{path}/action", {"set_metadata": {"metadata": {"ssd": "true"}}})["aggregate"]
    assert changed["metadata"] == {"availability_zone": "az-a", "ssd": "true"}
    ask(tidy, "DELETE", path, status=400)
    ask(tidy, "POST", f"{path}/action", {"remove_host": {"host": "compute-2"}})
    ask(tidy, "DELETE", path)
    ask(tidy, "GET", path, status=404)


def test_servers_of_an_anti_affine_group_are_apart(tidy: Cloud) -> None:
    body = {"server_group": {"name": "g", "policy": "anti-affinity"}}
    group = ask(tidy, "POST", "/os-server-groups", body, version="2.64")["server_group"]["id"]
    path = f"/os-server-groups/{group}"
    made = [
        ask(
            tidy,
            "POST",
            "/servers",
            {
                "server": {"name": f"vm-{n}", "imageRef": tidy.image_id, "flavorRef": "1"},
                "os:scheduler_hints": {"group": group},
            },
            status=202,
        )["server"]["id"]
        for n in (1, 2)
    ]
    found = tidy.wait_active(made)
    assert {server["OS-EXT-SRV-ATTR:host"] for server in found.values()} == set(tidy.computes)
    assert sorted(ask(tidy, "GET", path)["server_group"]["members"]) == sorted(made)
    ask(tidy, "GET", path, token="bob:other", status=404)
    ask(tidy, "DELETE", path, token="bob:other", status=404)
    ask(tidy, "DELETE", path, status=204)
    assert ask(tidy, "GET", "/os-server-groups") == {"server_groups": []}


def test_a_private_flavor_is_there_only_with_access(tidy: Cloud) -> None:
    flavor = {"id": "private", "name": "private", "ram": 64, "disk": 1, "vcpus": 1, "os-flavor-access:is_public": False}
    ask(tidy, "POST", "/flavors", {"flavor": flavor})

    def seen() -> bool:
        return "private" in [item["id"] for item in ask(tidy, "GET", "/flavors", token=MEMBER)["flavors"]]

    assert not seen()
    ask(tidy, "GET", "/flavors/private", token=MEMBER, status=404)
    assert create_status(tidy, flavorRef="private") == 400
    change = {"addTenantAccess": {"tenant": "demo"}}
    shown = ask(tidy, "POST", "/flavors/private/action", change)
    assert shown == {"flavor_access": [{"flavor_id": "private", "tenant_id": "demo"}]}
    ask(tidy, "POST", "/flavors/private/action", change, status=409)
    assert seen()
    ask(tidy, "GET", "/flavors/private", token="bob:other", status=404)
    assert create_status(tidy, flavorRef="private") == 202
    ask(tidy, "POST", "/flavors/private/action", {"removeTenantAccess": {"tenant": "demo"}})
    ask(tidy, "POST", "/flavors/private/action", {"removeTenantAccess": {"tenant": "demo"}}, status=404)
    assert not seen()
    assert create_status(tidy, flavorRef="private") == 400
    ask(tidy, "DELETE", "/flavors/private", status=202)


def test_quotas_hold_as_they_are_set(tidy: Cloud) -> None:
    path = "/os-quota-sets/demo"
    assert ask(tidy, "PUT", path, {"quota_set": {"instances": 1}})["quota_set"]["instances"] == 1
    assert ask(tidy, "GET", path, token=MEMBER)["quota_set"]["instances"] == 1
    assert (create_status(tidy), create_status(tidy)) == (202, 403)
    ask(tidy, "PUT", path, {"quota_set": {"instances": 0}}, status=400)
    ask(tidy, "PUT", path, {"quota_set": {"instances": 0, "force": True}})
    ask(tidy, "DELETE", path, status=202)
    assert create_status(tidy) == 202
    ask(tidy, "PUT", f"{path}?user_id=alice", {"quota_set": {"cores": 2}})
    assert create_status(tidy) == 403
    assert ask(tidy, "GET", f"{path}/detail?user_id=alice", token=MEMBER)["quota_set"]["cores"] == {
        "limit": 2,
        "in_use": 2,
        "reserved": 0,
    }
    ask(tidy, "DELETE", f"{path}?user_id=alice", status=202)
    ask(tidy, "PUT", "/os-quota-class-sets/default", {"quota_class_set": {"instances": 2}})
    assert create_status(tidy) == 403
    assert ask(tidy, "GET", f"{path}/defaults", token=MEMBER)["quota_set"]["instances"] == 2
    ask(tidy, "PUT", "/os-quota-class-sets/default", {"quota_class_set": {"instances": 10}})


def test_usage_counts_servers_that_are_gone(tidy: Cloud) -> None:
    (server,) = tidy.create()
    tidy.wait_active([server])
    tidy.delete_all()
    usage = ask(tidy, "GET", "/os-simple-tenant-usage/demo?start=2026-01-01T00:00:00", token=MEMBER)["tenant_usage"]
    (mine,) = [item for item in usage["server_usages"] if item["instance_id"] == server]
    assert mine["state"] == "terminated"
    assert mine["hours"] > 0
    assert usage["total_memory_mb_usage"] >= 64 * mine["hours"]
    ask(tidy, "GET", "/os-simple-tenant-usage/demo", token="bob:other", status=403)
