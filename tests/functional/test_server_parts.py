"""Parts of a server over REST, through all daemons."""

from __future__ import annotations

from tests.functional.cloud import Cloud

MEMBER = "alice:demo"
LATEST = "2.96"


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
