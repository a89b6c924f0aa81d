"""Resources under a server: metadata, tags, password, lock, interfaces, migrations."""

from __future__ import annotations

import uuid as uuids
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.base import exceptions
from nova_lite.daemon.http_parser import RequestParser
from nova_lite.objects import InstanceNUMACell, InstanceNUMATopology
from nova_lite.policies.servers import INJECT_NETWORK_INFO
from tests.support.api_client import ADMIN, MEMBER, STRANGER, Client, fault, make_client, make_conf
from tests.support.control_plane import NETWORK_ID

# --- metadata


def test_metadata_is_added_replaced_and_deleted(api: Client) -> None:
    path = f"/servers/{api.conductor.add(metadata={'a': '1'}).uuid}/metadata"
    assert api.json("POST", path, {"metadata": {"b": "2"}}) == {"metadata": {"a": "1", "b": "2"}}
    assert api.json("PUT", path + "/a", {"meta": {"a": "3"}}) == {"meta": {"a": "3"}}
    assert api.json("GET", path) == {"metadata": {"a": "3", "b": "2"}}
    assert api("DELETE", path + "/a").status_code == 204
    assert fault(api("DELETE", path + "/a"), "itemNotFound", 404) == "Metadata item was not found"
    assert api.json("PUT", path, {"metadata": {"c": ""}}) == {"metadata": {"c": ""}}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "", {}),
        ("POST", "", None),
        ("POST", "", {"metadata": {"a/b": "1"}}),
        ("POST", "", {"metadata": {"a": 1}}),
        ("PUT", "", {"metadata": {"a": "x" * 256}}),
        ("PUT", "", {"metadata": {}, "more": 1}),
        ("PUT", "/a", {"meta": {"b": "1"}}),
        ("PUT", "/a", {"meta": {}}),
        ("PUT", "/a", {"meta": {"a": "1", "b": "1"}}),
        ("PUT", "/a", {"metadata": {"a": "1"}}),
    ],
)
def test_malformed_metadata_is_refused(api: Client, method: str, path: str, body: Any) -> None:
    uuid = api.conductor.add().uuid
    fault(api(method, f"/servers/{uuid}/metadata{path}", body), "badRequest", 400)
    assert api.conductor.calls == []


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (exceptions.MetadataLimitExceeded(allowed=128), "forbidden", 403),
        (exceptions.InstanceIsLocked(instance_id="x"), "conflictingRequest", 409),
    ],
)
def test_metadata_refused_by_the_conductor_is_an_error(api: Client, error: Exception, name: str, code: int) -> None:
    api.conductor.error = error
    assert fault(api("POST", "/servers/x/metadata", {"metadata": {}}), name, code) == str(error)


# --- tags


def test_tags_are_added_replaced_and_deleted(api: Client) -> None:
    uuid = api.conductor.add().uuid
    path = f"/servers/{uuid}/tags"
    added = api("PUT", path + "/blue%20sky", version="2.26")
    assert (added.status_code, added.body) == (201, b"")
    assert added.headers["Location"] == f"http://cloud:8774/v2.1/servers/{uuid}/tags/blue%20sky"
    again = api("PUT", path + "/blue%20sky", version="2.26")
    assert (again.status_code, again.headers.get("Location")) == (204, None)
    assert api.json("PUT", path, {"tags": ["b", "a", "b"]}, version="2.26") == {"tags": ["a", "b"]}
    assert api("DELETE", path + "/a", version="2.26").status_code == 204
    gone = api("DELETE", path + "/a", version="2.26")
    assert fault(gone, "itemNotFound", 404) == f"Server {uuid} has no tag 'a'"
    assert api("DELETE", path, version="2.26").status_code == 204
    assert api.json("GET", path, version="2.26") == {"tags": []}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"tags": ["a,b"]}),
        ("", {"tags": [""]}),
        ("", {"tags": ["x" * 61]}),
        ("", {"tags": [str(number) for number in range(51)]}),
        ("", {"tags": "a"}),
        ("", {}),
        ("/a,b", None),
        ("/" + "x" * 61, None),
    ],
)
def test_malformed_tags_are_refused(api: Client, path: str, body: Any) -> None:
    uuid = api.conductor.add().uuid
    fault(api("PUT", f"/servers/{uuid}/tags{path}", body, version="2.26"), "badRequest", 400)
    assert api.conductor.calls == []


@pytest.mark.parametrize(
    ("method", "tag", "status", "message"),
    [
        ("PUT", "a%2Fb", 400, "Tag 'a/b' is invalid"),
        ("GET", "a%2fb", 404, "has no tag 'a/b'"),
        ("DELETE", "a%2Fb", 404, "has no tag 'a/b'"),
        ("PUT", "a%252Fb", 201, ""),
        ("GET", "a%2Fb%252F", 404, "has no tag 'a%2Fb%2F'"),
    ],
)
def test_encoded_slash_is_a_part_of_the_tag(api: Client, method: str, tag: str, status: int, message: str) -> None:
    uuid = api.conductor.add().uuid
    response = sent(api, f"{method} /v2.1/servers/{uuid}/tags/{tag}")
    assert (response.status_code, message in response.text) == (status, True)
    assert api.conductor.instances[uuid].tags == (["a%2Fb"] if status == 201 else [])


def sent(api: Client, line: str) -> webob.Response:
    """Send the head of a request through the server's parser."""
    parser = RequestParser()
    headers = f"Host: cloud\r\nX-Auth-Token: {MEMBER}\r\nOpenStack-API-Version: compute 2.26"
    parser.feed(f"{line} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    assert parser.refusal is None
    environ = webob.Request.blank("/").environ | parser.requests[0].environ
    return webob.Request(environ).get_response(api.app)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/tags/a"), ("PUT", "/tags"), ("DELETE", "/tags")])
def test_tags_start_with_2_26(api: Client, method: str, path: str) -> None:
    uuid = api.conductor.add().uuid
    assert api(method, f"/servers/{uuid}{path}", {"tags": []}, version="2.25").status_code == 404


# --- password


def test_posted_password_is_shown_and_cleared(api: Client) -> None:
    path = f"/servers/{api.conductor.add(system_metadata={'password': 'c2VjcmV0'}).uuid}/os-server-password"
    assert api.json("GET", path) == {"password": "c2VjcmV0"}
    fault(api("GET", path, token=STRANGER), "itemNotFound", 404)
    fault(api("DELETE", path, token=STRANGER), "itemNotFound", 404)
    assert api("DELETE", path).status_code == 204
    assert api.json("GET", path) == {"password": ""}


# --- lock


@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        ({"lock": None}, "2.1", None),
        ({"lock": {"locked_reason": "ignored before 2.73"}}, "2.72", None),
        ({"lock": None}, "2.73", None),
        ({"lock": {}}, "2.73", None),
        ({"lock": {"locked_reason": "no touching"}}, "2.73", "no touching"),
    ],
)
def test_lock_is_accepted(api: Client, body: Any, version: str, reason: str | None) -> None:
    uuid = api.conductor.add().uuid
    assert api("POST", f"/servers/{uuid}/action", body, version=version).status_code == 202
    assert api.last_call("instance_lock") == (uuid, reason)
    assert len(api.conductor.calls) == 1


@pytest.mark.parametrize("value", [{"locked_reason": ""}, {"locked_reason": "x" * 256}, {"reason": "x"}, "x", []])
def test_malformed_lock_is_refused(api: Client, value: Any) -> None:
    uuid = api.conductor.add().uuid
    fault(api("POST", f"/servers/{uuid}/action", {"lock": value}, version="2.73"), "badRequest", 400)
    assert api.conductor.calls == []


@pytest.mark.parametrize(("token", "may_override"), [(MEMBER, False), (ADMIN, True)])
def test_unlock_is_accepted(api: Client, token: str, may_override: bool) -> None:
    uuid = api.conductor.add().uuid
    assert api("POST", f"/servers/{uuid}/action", {"unlock": None}, token=token).status_code == 202
    assert api.last_call("instance_unlock") == (uuid, may_override)


@pytest.mark.parametrize("state", ["active", "error"])
def test_reset_state_is_accepted(api: Client, state: str) -> None:
    uuid = api.conductor.add().uuid
    response = api("POST", f"/servers/{uuid}/action", {"os-resetState": {"state": state}}, token=ADMIN)
    assert (response.status_code, response.body) == (202, b"")
    assert api.last_call("instance_reset_state") == (uuid, state)


@pytest.mark.parametrize("value", [None, {}, {"state": "stopped"}, {"state": "ACTIVE"}, {"state": "error", "more": 1}])
def test_malformed_reset_state_is_refused(api: Client, value: Any) -> None:
    uuid = api.conductor.add().uuid
    fault(api("POST", f"/servers/{uuid}/action", {"os-resetState": value}, token=ADMIN), "badRequest", 400)
    assert api.conductor.calls == []


def test_reset_state_is_for_admins(api: Client) -> None:
    uuid = api.conductor.add().uuid
    fault(api("POST", f"/servers/{uuid}/action", {"os-resetState": {"state": "error"}}), "forbidden", 403)


def test_inject_network_info_does_nothing(api: Client) -> None:
    uuid = api.conductor.add(locked=True).uuid
    body = {"injectNetworkInfo": None}
    assert api("POST", f"/servers/{uuid}/action", body, token=ADMIN).status_code == 202
    fault(api("POST", f"/servers/{uuid}/action", body), "forbidden", 403)
    fault(api("POST", f"/servers/{uuids.uuid4()}/action", body, token=ADMIN), "itemNotFound", 404)


def test_inject_network_info_of_locked_server_is_refused_for_non_admins(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(f'"{INJECT_NETWORK_INFO}": "role:member"\n')
    api = make_client(make_conf(tmp_path, f"[oslo_policy]\npolicy_file = {tmp_path}/policy.yaml\n"))
    free, locked = api.conductor.add().uuid, api.conductor.add(locked=True).uuid
    assert api("POST", f"/servers/{free}/action", {"injectNetworkInfo": None}).status_code == 202
    message = fault(api("POST", f"/servers/{locked}/action", {"injectNetworkInfo": None}), "conflictingRequest", 409)
    assert message == f"Instance {locked} is locked"


def test_server_shows_its_lock(api: Client) -> None:
    uuid = api.conductor.add(locked=True, locked_reason="audit").uuid
    shown = api.json("GET", f"/servers/{uuid}", version="2.73")["server"]
    assert (shown["locked"], shown["locked_reason"]) == (True, "audit")


# --- readings


def test_interfaces_are_listed_and_shown(api: Client) -> None:
    instance = api.conductor.add()
    (vif,) = instance.vifs
    path = f"/servers/{instance.uuid}/os-interface"
    shown = {
        "net_id": NETWORK_ID,
        "port_id": vif.id,
        "mac_addr": "fa:16:3e:00:00:01",
        "port_state": "ACTIVE",
        "fixed_ips": [{"subnet_id": NETWORK_ID, "ip_address": "10.0.0.5"}],
    }
    assert api.json("GET", path, version="2.69") == {"interfaceAttachments": [shown]}
    assert api.json("GET", f"{path}/{vif.id}", version="2.70") == {"interfaceAttachment": {**shown, "tag": None}}
    fault(api("GET", f"{path}/nosuch"), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("path", "version", "body"),
    [
        ("/os-volume_attachments", "2.1", {"volumeAttachments": []}),
        ("/topology", "2.78", {"nodes": [], "pagesize_kb": None}),
        ("/migrations", "2.23", {"migrations": []}),
    ],
)
def test_subresources_are_shown(api: Client, path: str, version: str, body: Any) -> None:
    uuid = api.conductor.add().uuid
    assert api.json("GET", f"/servers/{uuid}{path}", version=version, token=ADMIN) == body


def test_topology_shows_numa_cells(api: Client) -> None:
    """The CPUs of the host are for admins."""
    cells = [
        InstanceNUMACell(id=0, cell=1, cpus=[0, 1], memory_mb=64, pins=[6, 8], held=[7, 9], page_kb=2048, huge=True),
        InstanceNUMACell(id=1, cell=0, cpus=[2, 3], memory_mb=32, pins=[1], floating=[2], page_kb=2048, huge=True),
    ]
    path = f"/servers/{api.conductor.add(numa=InstanceNUMATopology(cells=cells)).uuid}/topology"
    first, second = (
        {"memory_mb": 64, "siblings": [], "vcpu_set": [0, 1]},
        {"memory_mb": 32, "siblings": [], "vcpu_set": [2, 3]},
    )
    assert api.json("GET", path, version="2.78") == {"nodes": [first, second], "pagesize_kb": 2048}
    first |= {"host_node": 1, "cpu_pinning": {"0": 6, "1": 8}}
    second |= {"host_node": 0, "cpu_pinning": {"3": 1}}
    assert api.json("GET", path, version="2.78", token=ADMIN) == {"nodes": [first, second], "pagesize_kb": 2048}


def test_server_without_interfaces_has_no_security_groups(api: Client) -> None:
    on, off = api.conductor.add().uuid, api.conductor.add(vifs=[]).uuid
    assert api.json("GET", f"/servers/{on}")["server"]["security_groups"] == [{"name": "default"}]
    assert "security_groups" not in api.json("GET", f"/servers/{off}")["server"]


@pytest.mark.parametrize(("path", "version"), [("/topology", "2.77"), ("/migrations", "2.22")])
def test_subresources_start_with_their_version(api: Client, path: str, version: str) -> None:
    uuid = api.conductor.add().uuid
    assert api("GET", f"/servers/{uuid}{path}", version=version, token=ADMIN).status_code == 404


def test_migrations_are_for_admins(api: Client) -> None:
    uuid = api.conductor.add().uuid
    fault(api("GET", f"/servers/{uuid}/migrations", version="2.23"), "forbidden", 403)


@pytest.mark.parametrize(
    ("query", "version", "status"),
    [
        ("", "2.1", 200),
        ("?nosuch=1&status=done", "2.58", 200),
        ("?nosuch=1", "2.59", 400),
        ("?limit=x", "2.59", 400),
        ("?limit=1&changes-since=2026-01-01T00:00:00Z", "2.59", 200),
        ("?marker=x", "2.59", 400),
        ("?changes-before=2026-01-01T00:00:00Z", "2.65", 400),
        ("?changes-before=2026-01-01T00:00:00Z", "2.66", 200),
        ("?changes-before=2026-01-01T00:00:00Z&changes-since=2026-01-02T00:00:00Z", "2.66", 400),
        ("?project_id=p", "2.79", 400),
        ("?project_id=p", "2.80", 200),
    ],
)
def test_migrations_are_listed(api: Client, query: str, version: str, status: int) -> None:
    response = api.json("GET", f"/os-migrations{query}", version=version, token=ADMIN, status=status)
    assert status == 400 or response == {"migrations": []}
    fault(api("GET", "/os-migrations", version=version), "forbidden", 403)


def test_server_shows_its_group(api: Client) -> None:
    uuid = api.conductor.add(server_group=NETWORK_ID).uuid
    assert api.json("GET", f"/servers/{uuid}", version="2.71")["server"]["server_groups"] == [NETWORK_ID]


# --- all


#: Method, path, body, and version of each route of a subresource.
PARTS: list[tuple[str, str, Any, str]] = [
    ("POST", "/metadata", {"metadata": {}}, "2.1"),
    ("PUT", "/metadata", {"metadata": {}}, "2.1"),
    ("PUT", "/metadata/a", {"meta": {"a": "1"}}, "2.1"),
    ("DELETE", "/metadata/a", None, "2.1"),
    ("PUT", "/tags", {"tags": []}, "2.26"),
    ("DELETE", "/tags", None, "2.26"),
    ("PUT", "/tags/a", None, "2.26"),
    ("DELETE", "/tags/a", None, "2.26"),
    ("POST", "/action", {"lock": None}, "2.1"),
    ("POST", "/action", {"unlock": None}, "2.1"),
    ("GET", "/os-interface", None, "2.1"),
    ("GET", "/os-interface/x", None, "2.1"),
    ("GET", "/os-security-groups", None, "2.1"),
    ("GET", "/os-volume_attachments", None, "2.1"),
    ("GET", "/topology", None, "2.78"),
]


@pytest.mark.parametrize(("method", "path", "body", "version"), PARTS)
def test_subresources_of_another_project_are_404(api: Client, method: str, path: str, body: Any, version: str) -> None:
    uuid = api.conductor.add().uuid
    response = api(method, f"/servers/{uuid}{path}", body, version=version, token=STRANGER)
    assert fault(response, "itemNotFound", 404) == f"Instance {uuid} could not be found."
