"""Servers through all daemons: REST in, domains out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for


def test_create_show_stop_start_reboot_delete(tidy: Cloud) -> None:
    (server_id,) = tidy.create("vm", metadata={"k": "v"})
    server = tidy.wait_active([server_id])[server_id]
    assert server["OS-EXT-STS:power_state"] == 1
    assert server["metadata"] == {"k": "v"}
    (address,) = server["addresses"]["private"]
    assert address["addr"].startswith("10.99.")
    assert tidy.domains() == {server_id: server["OS-EXT-SRV-ATTR:host"]}

    for action, status in (
        ({"os-stop": None}, "SHUTOFF"),
        ({"os-start": None}, "ACTIVE"),
        ({"reboot": {"type": "SOFT"}}, "ACTIVE"),
        ({"reboot": {"type": "HARD"}}, "ACTIVE"),
    ):
        answer = tidy.action(server_id, action)
        assert answer.status_code == 202, answer.text
        assert tidy.wait_settled([server_id])[server_id]["status"] == status, action

    assert tidy.action(server_id, {"os-start": None}).status_code == 409
    console = tidy.action(server_id, {"os-getConsoleOutput": {}})
    assert f"instance={server_id}" in console.json()["output"]

    events = tidy.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [item["action"] for item in events] == ["reboot", "reboot", "start", "stop", "create"]

    assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("the server is gone", lambda: tidy.show(server_id) is None)
    assert tidy.domains() == {}


def test_ten_at_once_are_spread_and_counted(tidy: Cloud) -> None:
    ids = tidy.create("many", count=10)
    servers = tidy.wait_active(ids)
    assert {server["name"] for server in servers.values()} == {f"many-{n}" for n in range(1, 11)}
    assert set(tidy.domains().values()) == set(tidy.computes)
    used = tidy.request("GET", "/limits").json()["limits"]["absolute"]
    assert (used["totalInstancesUsed"], used["totalCoresUsed"], used["totalRAMUsed"]) == (10, 10, 640)
    answer = tidy.request("POST", "/servers", {"server": {"name": "over", "imageRef": tidy.image_id, "flavorRef": "1"}})
    assert answer.status_code == 403
    assert "Quota exceeded for instances: Requested 1, but already used 10 of 10" in answer.text


def test_no_valid_host_says_why(tidy: Cloud) -> None:
    tidy.manage("quota", "set", "demo", "--ram", "-1")
    (server_id,) = tidy.create("big", flavor="9")
    server = tidy.wait_settled([server_id])[server_id]
    assert server["status"] == "ERROR"
    assert "No valid host was found" in server["fault"]["message"]
    assert "RamFilter" in server["fault"]["message"]
    assert tidy.domains() == {}


def test_a_requested_host_takes_it_or_says_why_not(tidy: Cloud) -> None:
    wanted = tidy.computes[1]
    server = {"name": "there", "imageRef": tidy.image_id, "flavorRef": "1", "networks": "auto"}

    def ask(**where: str) -> tuple[int, dict[str, Any]]:
        answer = tidy.request("POST", "/servers", {"server": server | where}, version="2.74")
        return answer.status_code, answer.json()

    status, there = ask(host=wanted)
    assert status == 202, there
    server_id = there["server"]["id"]
    assert tidy.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"] == wanted
    status, fault = ask(host="none")
    assert (status, fault["badRequest"]["message"]) == (400, "Compute host none could not be found.")

    which = {"host": wanted, "binary": "nova-compute"}
    assert tidy.request("PUT", "/os-services/disable", which).status_code == 200
    try:
        status, refused = ask(hypervisor_hostname=wanted)
        assert status == 202, refused
        server_id = refused["server"]["id"]
        found = tidy.wait_settled([server_id])[server_id]
        assert found["status"] == "ERROR"
        assert "Of 1 requested host, 1 failed ComputeFilter (down or disabled)" in found["fault"]["message"]
    finally:
        assert tidy.request("PUT", "/os-services/enable", which).status_code == 200


def test_projects_do_not_see_each_other(tidy: Cloud) -> None:
    (server_id,) = tidy.create()
    tidy.wait_active([server_id])
    stranger = "bob:other"
    assert tidy.request("GET", f"/servers/{server_id}", token=stranger).status_code == 404
    assert tidy.request("DELETE", f"/servers/{server_id}", token=stranger).status_code == 404
    assert tidy.request("GET", "/servers/detail", token=stranger).json()["servers"] == []
    assert tidy.request("GET", "/servers/detail?all_tenants=1", token=stranger).status_code == 403


@pytest.mark.parametrize("state", ["building", "active", "stopped"])
def test_delete_is_valid_in_every_state(tidy: Cloud, state: str) -> None:
    (server_id,) = tidy.create()
    if state != "building":
        tidy.wait_active([server_id])
    if state == "stopped":
        tidy.action(server_id, {"os-stop": None})
        tidy.wait_settled([server_id])
    assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("the server is gone", lambda: tidy.show(server_id) is None)
    wait_for("its domain is gone", lambda: tidy.domains() == {})
