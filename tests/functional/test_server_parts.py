"""Parts of a server over REST, through all daemons."""

from __future__ import annotations

from tests.functional.cloud import Cloud

MEMBER = "alice:demo"
LATEST = "2.104"


def test_metadata_tags_lock_and_readings(tidy: Cloud) -> None:
    (server_id,) = tidy.create("vm", metadata={"a": "1"})
    (address,) = tidy.wait_active([server_id])[server_id]["addresses"]["private"]
    server = f"/servers/{server_id}"

    changed = tidy.request("POST", f"{server}/metadata", {"metadata": {"b": "2"}})
    assert changed.json() == {"metadata": {"a": "1", "b": "2"}}
    assert tidy.request("DELETE", f"{server}/metadata/a").status_code == 204
    assert tidy.request("DELETE", f"{server}/metadata/a").status_code == 404

    assert [tidy.request("PUT", f"{server}/tags/x", version=LATEST).status_code for _ in range(2)] == [201, 204]
    assert tidy.request("PUT", f"{server}/tags", {"tags": ["y"]}, version=LATEST).json() == {"tags": ["y"]}
    for query, found in (("tags=y", [server_id]), ("not-tags=y", [])):
        listed = tidy.request("GET", f"/servers?{query}", version=LATEST).json()["servers"]
        assert [item["id"] for item in listed] == found, query

    assert (
        tidy.request("POST", f"{server}/action", {"lock": {"locked_reason": "why"}}, version=LATEST).status_code == 202
    )
    shown = tidy.request("GET", server, version=LATEST).json()["server"]
    assert (shown["locked"], shown["locked_reason"], shown["metadata"]) == (True, "why", {"b": "2"})
    refused = tidy.request("POST", f"{server}/action", {"os-stop": None}, token=MEMBER)
    assert (refused.status_code, f"Instance {server_id} is locked" in refused.text) == (409, True)
    assert tidy.request("DELETE", server, token=MEMBER).status_code == 409
    assert tidy.action(server_id, {"unlock": None}).status_code == 202

    (interface,) = tidy.request("GET", f"{server}/os-interface").json()["interfaceAttachments"]
    assert [fixed["ip_address"] for fixed in interface["fixed_ips"]] == [address["addr"]]
    events = tidy.request("GET", f"{server}/os-instance-actions").json()["instanceActions"]
    assert [item["action"] for item in events] == ["unlock", "lock", "create"]


def test_diagnostics_and_a_state_set_by_hand(tidy: Cloud) -> None:
    (server_id,) = tidy.create("vm")
    tidy.wait_active([server_id])
    path = f"/servers/{server_id}/diagnostics"
    found = tidy.request("GET", path, version=LATEST).json()
    assert (found["state"], found["driver"], found["num_nics"]) == ("running", "fake", 1)
    assert "memory" in tidy.request("GET", path).json()
    assert tidy.request("GET", path, token=MEMBER).status_code == 403

    assert tidy.action(server_id, {"os-resetState": {"state": "error"}}).status_code == 202
    shown = tidy.request("GET", f"/servers/{server_id}").json()["server"]
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ERROR", None)
    event = {"name": "power-update", "tag": "POWER_OFF", "server_uuid": server_id}
    answer = tidy.request("POST", "/os-server-external-events", {"events": [event]}, version=LATEST)
    assert (answer.status_code, answer.json()["events"][0]["code"]) == (200, 200)
    assert tidy.wait_settled([server_id])[server_id]["status"] == "SHUTOFF"
    refused = tidy.request("GET", path)
    assert (refused.status_code, "power state shutdown" in refused.text) == (409, True)
