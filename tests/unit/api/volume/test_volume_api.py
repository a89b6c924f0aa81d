"""The volume API with a real conductor: responses, queries and refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.db.core import models
from nova_lite.db.hosts import services
from nova_lite.db.image import host_images
from tests.support.api_client import ADMIN, MEMBER, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Volumes]:
    made = Volumes(tmp_path)
    yield made
    made.manager.close()


def test_volume_versions(api: Volumes) -> None:
    response = webob.Request.blank("/", base_url="http://cloud:8776").get_response(api.app)
    (version,) = response.json["versions"]
    assert (response.status_code, version["id"], version["min_version"]) == (300, "v3.0", "3.0")
    assert version["links"][0]["href"] == "http://cloud:8776/v3/"
    assert api("GET", "/volumes/detail", version="3.99").status_code == 406
    assert api("GET", "/volumes/detail", version="nonsense").status_code == 400


def test_response_has_its_version(api: Volumes) -> None:
    """Clients compare the version with the requested one."""
    for version, expected in ((None, "volume 3.0"), ("3.27", "volume 3.27"), ("latest", "volume 3.68")):
        for path in ("/volumes/detail", f"/volumes/{NOBODY}"):
            headers = api("GET", path, version=version).headers
            assert (headers["OpenStack-API-Version"], headers["Vary"]) == (expected, "OpenStack-API-Version")
    unsupported = api("GET", "/volumes", version="3.99")
    assert (unsupported.status_code, unsupported.headers["OpenStack-API-Version"]) == (406, "volume 3.99")
    assert "OpenStack-API-Version" not in api("GET", "/volumes", version="nonsense").headers


def test_volume_view(api: Volumes) -> None:
    made = api.create(name="v", description="d", metadata={"a": "b"})
    assert (made["status"], made["attachments"], made["bootable"]) == ("creating", [], "false")
    api.done()
    shown = api("GET", f"/volumes/{made['id']}", version="3.13").json["volume"]
    assert (shown["status"], shown["size"], shown["metadata"]) == ("available", 1, {"a": "b"})
    assert (shown["availability_zone"], shown["volume_type"], shown["group_id"]) == ("nova", "local", None)
    assert "os-vol-host-attr:host" not in shown and "os-vol-tenant-attr:tenant_id" in shown
    by_admin = api("PUT", f"/volumes/{made['id']}", {"volume": {"name": "w"}}, token=ADMIN).json["volume"]
    assert not [key for key in [*made, *by_admin] if key.startswith("os-vol-")], "only show and lists have these"
    assert "group_id" not in api("GET", f"/volumes/{made['id']}").json["volume"]
    assert "os-vol-host-attr:host" in api("GET", f"/volumes/{made['id']}", token=ADMIN).json["volume"]
    with_project = api("GET", f"/demo/volumes/{made['id']}")
    assert with_project.status_code == 200
    assert api("GET", "/other/nothing").status_code == 404


@pytest.mark.parametrize("path", ["/volumes", "/volumes/detail", "/limits", "/other/volumes"])
def test_url_of_another_project_is_400_and_says_so(api: Volumes, path: str) -> None:
    answer = api("GET", f"/other{path}", token=ADMIN)
    if path == "/other/volumes":
        assert answer.status_code == 404
    else:
        said = fault(answer, "badRequest", 400)
        assert said == "Malformed request URL: URL's project_id 'other' doesn't match Context's project_id 'demo'"


def test_lists_have_filters_order_and_pages(api: Volumes) -> None:
    ids = [api.make(name=name, metadata=metadata) for name, metadata in (("a", {}), ("b", {"k": "v"}), ("c", {}))]
    assert [item["name"] for item in api("GET", "/volumes?sort=name:asc").json["volumes"]] == ["a", "b", "c"]
    page = api("GET", "/volumes/detail?limit=2&sort_key=name&sort_dir=desc").json
    assert [item["name"] for item in page["volumes"]] == ["c", "b"]
    following = page["volumes_links"][0]["href"].partition("/v3")[2]
    assert [item["name"] for item in api("GET", following).json["volumes"]] == ["a"]
    assert [item["id"] for item in api("GET", "/volumes?name=b").json["volumes"]] == [ids[1]]
    assert [item["id"] for item in api("GET", "/volumes?metadata={'k':'v'}").json["volumes"]] == [ids[1]]
    assert api("GET", "/volumes?status=error").json["volumes"] == []
    assert len(api("GET", "/volumes?offset=1").json["volumes"]) == 2
    assert api("GET", "/volumes?all_tenants=1", token=STRANGER).json["volumes"] == []
    assert len(api("GET", "/volumes?all_tenants=1", token="admin:another").json["volumes"]) == 3
    for bad in ("limit=x", "offset=-1", "sort=color", "bootable=maybe", "metadata=["):
        assert api("GET", f"/volumes?{bad}").status_code == 400, bad
    for kind in ("volumes", "snapshots"):
        assert api("GET", f"/{kind}?marker={NOBODY}").status_code == 404
    assert api("GET", f"/volumes?marker={ids[0]}", token=STRANGER).status_code == 404
    for fields, status in (({}, 400), ({"volume_id": None}, 404)):
        assert api("POST", "/snapshots", {"snapshot": fields}).status_code == status


@pytest.mark.parametrize(
    "values",
    [
        {"size": 0},
        {"size": -1},
        {"size": "x"},
        {"size": True},
        {"size": None},
        {"size": 2**40},
        {"name": 5},
        {"name": "x" * 256},
        {"metadata": {"a": 1}},
        {"metadata": "x"},
        {"imageRef": "x"},
        {"snapshot_id": "x"},
        {"availability_zone": "mars"},
        {"multiattach": True},
        {"consistencygroup_id": NOBODY},
        {"group_id": NOBODY},
        {"snapshot_id": NOBODY, "source_volid": NOBODY},
        {"imageRef": NOBODY},
    ],
)
def test_invalid_volume_is_a_400(api: Volumes, values: dict[str, Any]) -> None:
    assert fault(api("POST", "/volumes", {"volume": {"size": 1, **values}}), "badRequest", 400)
    assert api("GET", "/volumes").json["volumes"] == []


def test_refused_volume_and_type_say_what_would_be_right(api: Volumes) -> None:
    response = api("POST", "/volumes", {"volume": {"size": 2**40}})
    assert "size: it must be a number of GB from 1 to 1048576" in fault(response, "badRequest", 400)
    response = api("POST", "/types", {"volume_type": {"name": "t", "extra_specs": 5}}, ADMIN)
    assert fault(response, "badRequest", 400) == "extra_specs must be an object."


@pytest.mark.parametrize("body", [None, [], {}, {"volume": None}, {"volume": []}])
def test_malformed_body_is_a_400(api: Volumes, body: Any) -> None:
    assert api("POST", "/volumes", body).status_code == 400
    assert api("POST", "/snapshots", body).status_code == 400


def test_volume_is_changed(api: Volumes) -> None:
    one = f"/volumes/{api.make(name='v')}"
    assert api("PUT", one, {"volume": {"name": "w", "description": None}}).json["volume"]["name"] == "w"
    assert api("PUT", one, {"volume": {}}).status_code == 400
    assert api("POST", f"{one}/metadata", {"metadata": {"a": "1"}}).json == {"metadata": {"a": "1"}}
    assert api("POST", f"{one}/metadata", {"metadata": {"b": "2"}}).json == {"metadata": {"a": "1", "b": "2"}}
    assert api("DELETE", f"{one}/metadata/a").status_code == 200
    assert api("DELETE", f"{one}/metadata/a").status_code == 404
    assert api("PUT", f"{one}/metadata", {"metadata": {"c": "3"}}).json == {"metadata": {"c": "3"}}
    assert api("POST", f"{one}/action", {"os-set_bootable": {"bootable": True}}).status_code == 200
    assert api("GET", one).json["volume"]["bootable"] == "true"
    assert api("POST", f"{one}/action", {"os-extend": {"new_size": 1}}).status_code == 400
    assert api("POST", f"{one}/action", {"os-extend": {"new_size": 3}}).status_code == 202
    assert api("GET", one).json["volume"]["status"] == "extending"
    api.done()
    assert api("POST", f"{one}/action", {"os-unknown": {}}).status_code == 400
    assert api("POST", f"{one}/action", {"os-reset_status": {"status": "error"}}).status_code == 403
    assert api("POST", f"{one}/action", {"os-reset_status": {"status": "error"}}, token=ADMIN).status_code == 202
    assert api("POST", f"{one}/action", {"os-reset_status": {"status": "fine"}}, token=ADMIN).status_code == 400
    assert api("DELETE", one).status_code == 202
    assert api("DELETE", one).status_code == 202, "it is being deleted"
    api.done()
    assert api("GET", one).status_code == 404


def test_snapshots_of_volumes(api: Volumes) -> None:
    volume_id = api.make()
    made = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id, "name": "s", "force": True}}).json[
        "snapshot"
    ]
    api.done()
    one = f"/snapshots/{made['id']}"
    shown = api("GET", one).json["snapshot"]
    assert (shown["status"], shown["size"], shown["volume_id"]) == ("available", 1, volume_id)
    assert api("GET", one, token=STRANGER).status_code == 404
    assert [item["id"] for item in api("GET", f"/snapshots/detail?volume_id={volume_id}").json["snapshots"]] == [
        made["id"]
    ]
    assert api("PUT", one, {"snapshot": {"name": "t"}}).json["snapshot"]["name"] == "t"
    assert api("POST", f"{one}/metadata", {"metadata": {"a": "1"}}).json == {"metadata": {"a": "1"}}
    assert api("POST", "/volumes", {"volume": {"snapshot_id": NOBODY}}).status_code == 404
    assert api("DELETE", f"/volumes/{volume_id}").status_code == 400
    assert api("DELETE", one).status_code == 202
    api.done()
    assert api("GET", one).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/volumes/{}", None),
        ("PUT", "/volumes/{}", {"volume": {"name": "x"}}),
        ("DELETE", "/volumes/{}", None),
        ("GET", "/volumes/{}/metadata", None),
        ("POST", "/volumes/{}/metadata", {"metadata": {"a": "b"}}),
        ("POST", "/volumes/{}/action", {"os-extend": {"new_size": 9}}),
        ("POST", "/volumes/{}/action", {"os-set_bootable": {"bootable": True}}),
    ],
)
def test_resources_of_other_projects_are_not_found(api: Volumes, method: str, path: str, body: Any) -> None:
    volume_id = api.make()
    assert api(method, path.format(volume_id), body, token=STRANGER).status_code == 404
    assert api(method, path.format(NOBODY), body).status_code == 404


def test_types_limits_quotas_and_zones(api: Volumes) -> None:
    (kind,) = api("GET", "/types").json["volume_types"]
    assert kind["name"] == "local"
    for name in ("default", "local", kind["id"]):
        assert api("GET", f"/types/{name}").json["volume_type"] == kind
    assert api("GET", "/types/fast").status_code == 404
    assert api("POST", "/volumes", {"volume": {"size": 1, "volume_type": "fast"}}).status_code == 404
    api.make(size=2)
    limits = api("GET", "/limits").json["limits"]["absolute"]
    assert (limits["maxTotalVolumes"], limits["totalVolumesUsed"], limits["totalGigabytesUsed"]) == (10, 1, 2)
    quota = api("GET", "/os-quota-sets/demo?usage=True").json["quota_set"]
    assert quota["gigabytes"] == {"limit": 1000, "in_use": 2, "reserved": 0, "allocated": 0}
    assert api("GET", "/os-quota-sets/other").status_code == 403
    assert api("GET", "/os-quota-sets/demo/defaults").json["quota_set"]["volumes"] == 10
    assert api("GET", "/os-availability-zone").json["availabilityZoneInfo"][0]["zoneName"] == "nova"
    assert api("GET", "/attachments", version="3.26").status_code == 404
    assert api("GET", "/attachments", version="3.27").json == {"attachments": []}
    refused = api("POST", "/volumes", {"volume": {"size": 5000}})
    assert (refused.status_code, "Quota exceeded for gigabytes" in refused.text) == (413, True)


def test_lists_of_absent_resources_are_empty_and_creates_are_refused(api: Volumes) -> None:
    """Horizon and openstackclient list these beside volumes, and fail as a whole if one is a 404."""
    for path, key, since in (
        ("consistencygroups/detail", "consistencygroups", "3.0"),
        ("cgsnapshots", "cgsnapshots", "3.0"),
        ("messages", "messages", "3.3"),
        ("clusters/detail", "clusters", "3.7"),
        ("manageable_volumes", "manageable-volumes", "3.8"),
        ("manageable_snapshots/detail", "manageable-snapshots", "3.8"),
        ("group_types", "group_types", "3.11"),
        ("groups/detail", "groups", "3.13"),
        ("group_snapshots/detail", "group_snapshots", "3.14"),
    ):
        assert api("GET", f"/demo/{path}?limit=5", version=since).json == {key: []}
        if since != "3.0":
            assert api("GET", f"/{path}", version=f"3.{int(since[2:]) - 1}").status_code == 404, path
        resource = path.partition("/")[0]
        assert "could not be found." in fault(api("GET", f"/{resource}/{NOBODY}", version=since), "itemNotFound", 404)
        if resource != "messages":
            refused = api("POST", f"/{resource}", {}, version=since)
            assert "is not supported by this cloud. " in fault(refused, "notImplemented", 501)


def test_actions_of_the_compute_api_are_refused_with_advice(api: Volumes) -> None:
    volume_id = api.make()
    action = f"/volumes/{volume_id}/action"
    assert "is not attached" in fault(api("POST", action, {"os-detach": {}}), "badRequest", 400)
    for name in ("os-begin_detaching", "os-initialize_connection", "os-terminate_connection"):
        assert "with the compute API" in fault(api("POST", action, {name: {}}), "badRequest", 400)
    attach(api)
    for name in ("os-detach", "os-force_detach"):
        message = fault(api("POST", action, {name: {"attachment_id": "a"}}), "conflictingRequest", 409)
        assert message == f"Detach volume from instance {NOBODY} using the Compute API."
    assert api("POST", action, {"os-detach": {}}, token=STRANGER).status_code == 404
    assert api("POST", action, {"os-force_delete": {}}, token=ADMIN).status_code == 400, "a server has it"


def test_admin_deletes_a_volume_and_a_snapshot_in_any_state(api: Volumes) -> None:
    volume_id = api.make()
    snapshot_id = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}}).json["snapshot"]["id"]
    api.done()
    for status in ("attaching", "maintenance", "reserved"):
        body = {"os-reset_status": {"status": status}}
        assert api("POST", f"/volumes/{volume_id}/action", body, token=ADMIN).status_code == 202
        assert api("POST", f"/snapshots/{snapshot_id}/action", body, token=ADMIN).status_code == 400
    for path, status in ((f"/snapshots/{snapshot_id}", "creating"), (f"/volumes/{volume_id}", "creating")):
        assert api("POST", f"{path}/action", {"os-reset_status": {"status": status}}, token=ADMIN).status_code == 202
        assert api("DELETE", path).status_code == 400
        assert api("POST", f"{path}/action", {"os-force_delete": {}}).status_code == 403
        assert api("POST", f"{path}/action", {"os-force_delete": {}}, token=ADMIN).status_code == 202
        api.done()
        assert api("GET", path).status_code == 404


def test_volume_is_deleted_with_its_snapshots_if_the_request_says_so(api: Volumes) -> None:
    volume_id = api.make()
    api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}})
    api.done()
    for query, status in (("", 400), ("?cascade=false", 400), ("?cascade=maybe", 400), ("?cascade=True", 202)):
        assert api("DELETE", f"/volumes/{volume_id}{query}").status_code == status
    for _ in ("snapshot", "volume"):
        api.done()
    assert api("GET", f"/volumes/{volume_id}").status_code == 404


def test_items_of_metadata_are_read_and_set_by_key(api: Volumes) -> None:
    volume_id = api.make(metadata={"a": "1"})
    snapshot = {"volume_id": volume_id, "metadata": {"a": "1"}}
    snapshot_id = api("POST", "/snapshots", {"snapshot": snapshot}).json["snapshot"]["id"]
    for path in (f"/volumes/{volume_id}/metadata", f"/snapshots/{snapshot_id}/metadata"):
        assert api("PUT", f"{path}/b", {"meta": {"b": "2"}}).json == {"meta": {"b": "2"}}
        assert api("GET", f"{path}/b").json == {"meta": {"b": "2"}}
        assert api("GET", path).json == {"metadata": {"a": "1", "b": "2"}}
        assert api("PUT", f"{path}/b", {"meta": {"c": "2"}}).status_code == 400
        assert api("GET", f"{path}/c").status_code == 404


def test_items_of_metadata_are_limited_together(api: Volumes) -> None:
    volume_id = api.make()
    snapshot_id = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}}).json["snapshot"]["id"]
    for path in (f"/volumes/{volume_id}/metadata", f"/snapshots/{snapshot_id}/metadata"):
        for start, status in ((0, 200), (100, 400), (28, 200)):
            items = {str(number): "v" for number in range(start, start + 100)}
            assert api("POST", path, {"metadata": items}).status_code == status
        assert api("PUT", f"{path}/more", {"meta": {"more": "v"}}).status_code == 400
        assert len(api("GET", path).json["metadata"]) == 128


@pytest.mark.parametrize("kind", ["volumes", "snapshots", "image"])
def test_metadata_that_two_clients_change_at_once_have_both_changes(api: Volumes, kind: str) -> None:
    volume_id = api.make(metadata={"a": "1", "b": "2"})
    made = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id, "metadata": {"a": "1", "b": "2"}}})
    thing = {"snapshots": made.json["snapshot"]["id"]}.get(kind, volume_id)
    action = f"/volumes/{volume_id}/action"
    api("POST", action, {"os-set_image_metadata": {"metadata": {"a": "1", "b": "2"}}}, ADMIN)

    def items() -> dict[str, str]:
        response = api("GET", f"/{kind}/{thing}/metadata") if kind != "image" else api("POST", action, SHOW)
        found: dict[str, str] = response.json["metadata"]
        return found

    def add(name: str) -> None:
        more = {"metadata": {name: "3"}}
        if kind == "image":
            assert api("POST", action, {"os-set_image_metadata": more}, ADMIN).status_code == 200
        else:
            assert api("POST", f"/{kind}/{thing}/metadata", more).status_code == 200

    def remove(name: str) -> None:
        if kind == "image":
            assert api("POST", action, {"os-unset_image_metadata": {"key": name}}, ADMIN).status_code == 200
        else:
            assert api("DELETE", f"/{kind}/{thing}/metadata/{name}").status_code == 200

    with api.after_the_next_read(lambda: add("c")):
        remove("a")
    assert items() == {"b": "2", "c": "3"}


SHOW: dict[str, Any] = {"os-show_image_metadata": {}}


@pytest.mark.parametrize("detail", ["", "/detail"])
def test_lists_count_what_their_filters_match_since_3_45(api: Volumes, detail: str) -> None:
    volumes = [api.make(name="one"), api.make(name="one"), api.make(name="other")]
    for index in range(3):
        body = {"volume_id": volumes[0], "name": "one" if index else "other"}
        for kind in ("snapshot", "backup"):
            assert api("POST", f"/{kind}s", {kind: body}).status_code == 202
            api.done()

    def counted(path: str, query: str, version: str = "3.45") -> tuple[int, int | None]:
        found = api("GET", f"/{path}{detail}?with_count=True{query}", version=version).json
        return len(found[path]), found.get("count")

    for kind in ("volumes", "snapshots", "backups"):
        assert counted(kind, "") == (3, 3)
        assert counted(kind, "&limit=1") == (1, 3)
        assert counted(kind, "&offset=2") == (1, 3)
        assert counted(kind, "&limit=1&name=one") == (1, 2)
        assert counted(kind, "", "3.44") == (3, None)
        assert "count" not in api("GET", f"/{kind}{detail}?with_count=false", version="3.45").json
        assert api("GET", f"/{kind}{detail}?with_count=perhaps", version="3.45").status_code == 400


def test_snapshot_of_a_volume_without_force_is_refused_since_3_66(api: Volumes) -> None:
    """The flag is a mistake there, except for true."""
    volume_id = api.make()

    def status(version: str, **values: Any) -> int:
        body = {"snapshot": {"volume_id": volume_id, **values}}
        made = api("POST", "/snapshots", body, version=version)
        api.done()
        return made.status_code

    assert [status("3.65", force=value) for value in (False, True, "false")] == [202] * 3
    assert [status("3.66", force=value) for value in (True, None, "1")] == [202] * 3
    assert status("3.66") == 202
    for value in (False, "False", "0"):
        assert status("3.66", force=value) == 400


def test_snapshot_shows_its_group_snapshot_since_3_14(api: Volumes) -> None:
    volume_id = api.make()
    made = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}}, version="3.14").json["snapshot"]
    assert made["group_snapshot_id"] is None
    one = f"/snapshots/{made['id']}"
    assert api("GET", one, version="3.14").json["snapshot"]["group_snapshot_id"] is None
    assert "group_snapshot_id" not in api("GET", one, version="3.13").json["snapshot"]
    assert api("GET", "/snapshots/detail", version="3.14").json["snapshots"][0]["group_snapshot_id"] is None
    (summary,) = api("GET", "/snapshots", version="3.68").json["snapshots"]
    assert not {"group_snapshot_id", "user_id", "consumes_quota"} & summary.keys()


def test_volume_services_show_replication_and_state_of_their_backend(api: Volumes) -> None:
    api.manager.db.write(services.report, "host1", "nova-compute", "compute", "1.0")

    def shown(version: str, binary: str = "cinder-volume") -> dict[str, Any]:
        found: dict[str, Any] = api("GET", f"/os-services?binary={binary}", token=ADMIN, version=version).json
        return found["services"][0]

    oldest = shown("3.0")
    assert (oldest["replication_status"], oldest["active_backend_id"], oldest["frozen"]) == ("disabled", None, False)
    assert not {"cluster", "backend_state"} & oldest.keys()
    assert shown("3.7")["cluster"] is None
    assert shown("3.49")["backend_state"] == shown("3.49")["state"]
    assert not {"backend_state", "frozen"} & shown("3.49", "cinder-backup").keys()


def test_summary_services_filters_and_image_metadata(api: Volumes) -> None:
    volume_id = api.make(size=2, metadata={"a": "1"})
    api.make(metadata={"a": "2"})
    assert api("GET", "/volumes/summary", version="3.11").status_code == 404
    assert api("GET", "/volumes/summary", version="3.12").json == {
        "volume-summary": {"total_size": 3, "total_count": 2}
    }
    summary = api("GET", "/volumes/summary?limit=1", version="3.36").json["volume-summary"]
    assert summary == {"total_size": 3, "total_count": 2, "metadata": {"a": ["1", "2"]}}
    assert api("GET", "/os-services").status_code == 403
    api.manager.db.write(services.report, "host1", services.COMPUTE, "compute", "1")
    (service,) = api("GET", "/os-services?binary=cinder-volume", token=ADMIN).json["services"]
    assert (service["host"], service["status"], service["state"]) == ("host1", "enabled", "up")
    binaries = [item["binary"] for item in api("GET", "/os-services?host=host1", token=ADMIN).json["services"]]
    assert binaries == ["cinder-volume", "cinder-backup"]
    assert api("GET", "/os-services?host=other", token=ADMIN).json["services"] == []
    filters = api("GET", "/resource_filters?resource=volume", version="3.33").json["resource_filters"]
    assert [item["resource"] for item in filters] == ["volume"]
    action = {"os-show_image_metadata": {}}
    assert api("POST", f"/volumes/{volume_id}/action", action).json == {"metadata": {}}
    assert api("GET", "/os-quota-class-sets/default").json["quota_class_set"]["volumes"] == 10


def test_transfer_gives_a_volume_and_its_snapshots_to_another_project(api: Volumes) -> None:
    volume_id = api.make(size=2)
    snapshot_id = api("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}}).json["snapshot"]["id"]
    path = "/os-volume-transfer"
    offer = {"transfer": {"volume_id": volume_id, "name": "t"}}
    assert "being copied" in fault(api("POST", path, offer), "badRequest", 400)
    api.done()
    assert api("POST", path, offer, token=STRANGER).status_code == 404
    response = api("POST", path, offer)
    made = response.json["transfer"]
    key = made.pop("auth_key")
    assert (response.status_code, len(key), made["name"], made["volume_id"]) == (202, 16, "t", volume_id)
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["status"] == "awaiting-transfer"
    assert "must be available" in fault(api("POST", path, offer), "badRequest", 400)
    assert api("DELETE", f"/volumes/{volume_id}").status_code == 400
    assert api("GET", f"{path}/detail").json == {"transfers": [made]}
    (summary,) = api("GET", path).json["transfers"]
    assert sorted(summary) == ["id", "links", "name", "volume_id"]
    assert api("GET", f"{path}/{made['id']}").json == {"transfer": made}
    for method, url in (("GET", f"{path}/{made['id']}"), ("DELETE", f"{path}/{made['id']}")):
        assert api(method, url, token=STRANGER).status_code == 404
    assert api("GET", path, token=STRANGER).json == {"transfers": []}

    accept = f"{path}/{made['id']}/accept"
    wrong = api("POST", accept, {"accept": {"auth_key": "0" * 16}}, token=STRANGER)
    assert "invalid auth key" in fault(wrong, "badRequest", 400)
    assert api("POST", f"{path}/{NOBODY}/accept", {"accept": {"auth_key": key}}, token=STRANGER).status_code == 404
    accepted = api("POST", accept, {"accept": {"auth_key": key}}, token=STRANGER)
    assert (accepted.status_code, accepted.json["transfer"]["volume_id"]) == (202, volume_id)
    assert api("GET", f"/volumes/{volume_id}").status_code == 404
    shown = api("GET", f"/volumes/{volume_id}", token=STRANGER).json["volume"]
    assert (shown["status"], shown["os-vol-tenant-attr:tenant_id"], shown["user_id"]) == (
        "available",
        "other",
        "mallory",
    )
    assert api("GET", f"/snapshots/{snapshot_id}", token=STRANGER).status_code == 200
    usage = {name: api("GET", "/limits", token=name).json["limits"]["absolute"] for name in (MEMBER, STRANGER)}
    assert [limits["totalGigabytesUsed"] for limits in usage.values()] == [0, 4]
    assert api("POST", accept, {"accept": {"auth_key": key}}, token=STRANGER).status_code == 404, "it is over"


def test_transfer_is_withdrawn_or_refused_by_quota(api: Volumes) -> None:
    volume_id = api.make(size=2)
    path = "/os-volume-transfer"
    made = api("POST", path, {"transfer": {"volume_id": volume_id}}).json["transfer"]
    api("PUT", "/os-quota-sets/other", {"quota_set": {"gigabytes": 1}}, token=ADMIN)
    accept = {"accept": {"auth_key": made["auth_key"]}}
    assert api("POST", f"{path}/{made['id']}/accept", accept, token=STRANGER).status_code == 413
    assert api("DELETE", f"{path}/{made['id']}").status_code == 202
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["status"] == "available"
    assert api("POST", f"{path}/{made['id']}/accept", accept, token=STRANGER).status_code == 404
    attach(api)
    assert api("POST", path, {"transfer": {"volume_id": volume_id}}).status_code == 400
    for body in ({"transfer": {}}, {"transfer": {"volume_id": "x"}}, {}):
        assert api("POST", path, body).status_code == 400


def test_admin_sets_and_resets_the_quota_of_a_project(api: Volumes) -> None:
    path = "/os-quota-sets/demo"
    assert api("PUT", path, {"quota_set": {"volumes": 1}}).status_code == 403
    changed = api("PUT", path, {"quota_set": {"volumes": 1, "gigabytes": "-1", "groups": 0}}, token=ADMIN)
    assert changed.json["quota_set"]["volumes"] == 1
    shown = api("GET", path).json["quota_set"]
    assert (shown["volumes"], shown["gigabytes"], shown["snapshots"]) == (1, -1, 10)
    api.make(size=5000)
    assert api("POST", "/volumes", {"volume": {"size": 1}}).status_code == 413
    assert api("GET", f"{path}/defaults").json["quota_set"]["volumes"] == 10
    assert api("GET", "/os-quota-class-sets/default").json["quota_class_set"]["volumes"] == 10
    assert api("GET", "/os-quota-sets/other", token=ADMIN).json["quota_set"]["volumes"] == 10
    for limits in (
        {"volumes": -2},
        {"volumes": "x"},
        {"volumes": True},
        {"cores": 1},
        {"groups": -5},
        {"volumes": 2**31},
    ):
        assert api("PUT", path, {"quota_set": limits}, token=ADMIN).status_code == 400, limits
    assert api("DELETE", path).status_code == 403
    assert api("DELETE", path, token=ADMIN).status_code == 200
    assert api("GET", path).json["quota_set"]["volumes"] == 10


def upload(api: Volumes, volume_id: str, **fields: Any) -> webob.Response:
    body = {"os-volume_upload_image": {"image_name": "i", **fields}}
    return api("POST", f"/volumes/{volume_id}/action", body)


def finish_upload(api: Volumes, image_id: str, data: bytes | None, error: str | None = None) -> None:
    """Upload data as host1 would, and report."""

    def take(uow: Any) -> int:
        (task,) = uow.session.scalars(sa.select(models.VolumeTask))
        task.host = "host1"
        return int(task.id)

    task_id = api.manager.db.write(take)
    image = api.manager.db.read(host_images.get, "host1", image_id)
    with pytest.raises(exceptions.ImageNotFound):
        api.manager.db.read(host_images.get, "host2", image_id)
    if data is not None:
        source = Path(api.services.conf.state_path) / "volume"
        source.write_bytes(data)
        api.services.images.upload(image, str(source), "host1", lambda _: None)
    for _ in range(2):
        api.manager.reconciler.volumes.finish("host1", task_id, error)


@pytest.fixture
def store(api: Volumes) -> Path:
    path = Path(api.services.conf.state_path) / "store"
    api.services.conf.set_override("store_path", str(path), "image")
    api.manager.db.write(services.report, "host1", services.COMPUTE, "compute", "1")
    return path


def test_image_is_made_of_a_volume(api: Volumes, store: Path) -> None:
    volume_id = api.make()
    response = upload(api, volume_id, visibility="shared")
    made = response.json["os-volume_upload_image"]
    assert (response.status_code, made["status"], made["id"], made["volume_type"]["name"]) == (
        202,
        "uploading",
        volume_id,
        "local",
    )
    assert (made["image_name"], made["disk_format"], made["visibility"]) == ("i", "raw", "shared")
    assert "status must be available, it is uploading" in fault(upload(api, volume_id), "badRequest", 400)
    assert api("DELETE", f"/volumes/{volume_id}").status_code == 400
    image = api.services.images.get(RequestContext(project_id="demo"), made["image_id"])
    assert (image.status, image.owner, image.min_disk) == ("queued", "demo", 1)
    finish_upload(api, image.id, b"x" * 1024)
    image = api.services.images.get(RequestContext(project_id="demo"), image.id)
    assert (image.status, image.size, image.md5) == ("active", 1024, hashlib.md5(b"x" * 1024).hexdigest())
    assert (store / image.id).read_bytes() == b"x" * 1024
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["status"] == "available"


def test_image_of_a_volume_has_the_properties_that_were_set_on_the_volume(api: Volumes, store: Path) -> None:
    volume_id = api.make()
    action = f"/volumes/{volume_id}/action"
    wanted = {
        "hw_disk_bus": "scsi",
        "os_distro": "debian",
        "image_name": "older",
        "min_ram": "512",
        "kernel_id": NOBODY,
    }
    assert api("POST", action, {"os-set_image_metadata": {"metadata": wanted}}).status_code == 200
    image_id = upload(api, volume_id).json["os-volume_upload_image"]["image_id"]
    image = api.services.images.get(get_admin_context(), image_id)
    assert (image.properties, image.name) == ({"hw_disk_bus": "scsi", "os_distro": "debian"}, "i")


@pytest.mark.parametrize(("name", "code"), [("owner", 400), ("status", 400), ("os_glance_importing_to_stores", 403)])
def test_image_of_a_volume_with_a_property_that_images_cannot_have_is_refused(
    api: Volumes, name: str, code: int
) -> None:
    volume_id = api.make()
    body = {"os-set_image_metadata": {"metadata": {name: "x"}}}
    assert api("POST", f"/volumes/{volume_id}/action", body).status_code == 200
    refused = upload(api, volume_id)
    assert refused.status_code == code and name in refused.text
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["status"] == "available"


@pytest.mark.parametrize(
    ("data", "error"),
    [(None, "the disk is full"), (b"QFI\xfb\0\0\0\3" + b"\0" * 1016, None)],
)
def test_failed_image_of_a_volume_leaves_nothing(
    api: Volumes, store: Path, data: bytes | None, error: str | None
) -> None:
    """Whoever writes a volume can write the header of another format, which would name other files of a host."""
    volume_id = api.make()
    image_id = upload(api, volume_id).json["os-volume_upload_image"]["image_id"]
    finish_upload(api, image_id, data, error)
    with pytest.raises(exceptions.ImageNotFound):
        api.services.images.get(get_admin_context(), image_id)
    assert [path for path in store.rglob("*") if path.is_file()] == []
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["status"] == "available"


def test_unsuitable_image_of_a_volume_is_refused(api: Volumes) -> None:
    volume_id = api.make()
    for fields in (
        {"image_name": ""},
        {"disk_format": "vmdk"},
        {"container_format": "ova"},
        {"visibility": "everybody"},
        {"protected": "maybe"},
    ):
        assert fault(upload(api, volume_id, **fields), "badRequest", 400)
    assert upload(api, volume_id, visibility="public").status_code == 403
    assert upload(api, NOBODY).status_code == 404
    attach(api)
    assert "make a snapshot with force" in fault(upload(api, volume_id, force=True), "badRequest", 400)


def test_admin_makes_types_with_extra_specs(api: Volumes) -> None:
    wanted = {"name": "fast", "description": "d", "extra_specs": {"a": "1"}}
    assert api("POST", "/types", {"volume_type": wanted}).status_code == 403
    made = api("POST", "/types", {"volume_type": wanted}, token=ADMIN).json["volume_type"]
    assert (made["name"], made["is_public"], made["extra_specs"]) == ("fast", True, {"a": "1"})
    one = f"/types/{made['id']}"
    shown = {**made, "qos_specs_id": None}
    assert api("GET", "/types/fast").json["volume_type"] == api("GET", one).json["volume_type"] == shown
    changed = api("PUT", one, {"volume_type": {"description": "d"}}, token=ADMIN).json["volume_type"]
    assert changed == {key: made[key] for key in ("id", "name", "is_public", "description", "extra_specs")}
    for name in ("fast", "local"):
        refused = api("POST", "/types", {"volume_type": {"name": name}}, token=ADMIN)
        assert fault(refused, "conflictingRequest", 409) == f"Volume Type {name} already exists."
    assert api("POST", f"{one}/extra_specs", {"extra_specs": {"b": "2"}}, token=ADMIN).json == {
        "extra_specs": {"b": "2"}
    }
    assert api("PUT", f"{one}/extra_specs/b", {"b": "3"}, token=ADMIN).json == {"b": "3"}
    assert api("PUT", f"{one}/extra_specs/b", {"c": "3"}, token=ADMIN).status_code == 400
    assert api("GET", f"{one}/extra_specs/b").json == {"b": "3"}
    assert api("DELETE", f"{one}/extra_specs/a", token=ADMIN).status_code == 202
    assert api("DELETE", f"{one}/extra_specs/a", token=ADMIN).status_code == 404
    assert api("GET", f"{one}/extra_specs").json == {"extra_specs": {"b": "3"}}
    assert api("GET", f"{one}/encryption", token=ADMIN).json == {}

    volume_id = api.make(volume_type="fast")
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["volume_type"] == "fast"
    assert "is in use" in fault(api("DELETE", one, token=ADMIN), "badRequest", 400)
    renamed = api("PUT", one, {"volume_type": {"name": "faster"}}, token=ADMIN).json["volume_type"]
    assert (renamed["name"], renamed["description"]) == ("faster", "d")
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["volume_type"] == "faster"
    action = f"/volumes/{volume_id}/action"
    assert api("POST", action, {"os-retype": {"new_type": "slow"}}).status_code == 400
    assert api("POST", action, {"os-retype": {"new_type": "local"}}, token=STRANGER).status_code == 404
    assert api("POST", action, {"os-retype": {"new_type": "local", "migration_policy": "never"}}).status_code == 202
    assert api("GET", f"/volumes/{volume_id}").json["volume"]["volume_type"] == "local"
    assert api("DELETE", one, token=ADMIN).status_code == 202
    assert api("GET", one).status_code == 404
    default = api("GET", "/types/default").json["volume_type"]["id"]
    for method, body in (("PUT", {"volume_type": {"name": "x"}}), ("DELETE", None)):
        refused = api(method, f"/types/{default}", body, token=ADMIN)
        assert "the operator defines the default volume type" in fault(refused, "badRequest", 400)
    for body in ({"volume_type": {}}, {"volume_type": {"name": ""}}, {"volume_type": {"name": "x", "extra_specs": 5}}):
        assert api("POST", "/types", body, token=ADMIN).status_code == 400


def test_private_type_is_for_the_projects_with_access(api: Volumes) -> None:
    private = {"name": "secret", "os-volume-type-access:is_public": False}
    made = api("POST", "/types", {"volume_type": private}, token=ADMIN).json["volume_type"]
    one = f"/types/{made['id']}"
    names = {
        token: [item["name"] for item in api("GET", "/types", token=token).json["volume_types"]]
        for token in (MEMBER, ADMIN)
    }
    assert names == {MEMBER: ["local"], ADMIN: ["local", "secret"]}
    assert [item["name"] for item in api("GET", "/types?is_public=false", token=ADMIN).json["volume_types"]] == [
        "secret"
    ]
    assert (api("GET", one).status_code, api("GET", "/types/secret").status_code) == (404, 404)
    assert api("POST", "/volumes", {"volume": {"size": 1, "volume_type": "secret"}}).status_code == 404
    access = {"addProjectAccess": {"project": "demo"}}
    assert api("POST", f"{one}/action", access).status_code == 403
    assert api("POST", f"{one}/action", access, token=ADMIN).status_code == 202
    assert api("POST", f"{one}/action", access, token=ADMIN).status_code == 409
    assert api("GET", f"{one}/os-volume-type-access", token=ADMIN).json == {
        "volume_type_access": [{"volume_type_id": made["id"], "project_id": "demo"}]
    }
    assert api("GET", one).status_code == 200
    assert api.create(volume_type=made["id"])["volume_type"] == "secret"
    assert api("GET", one, token=STRANGER).status_code == 404
    remove = {"removeProjectAccess": {"project": "demo"}}
    assert api("POST", f"{one}/action", remove, token=ADMIN).status_code == 202
    assert api("POST", f"{one}/action", remove, token=ADMIN).status_code == 404
    assert api("GET", one).status_code == 404
    assert api("POST", f"{one}/action", {"addProjectAccess": {}}, token=ADMIN).status_code == 400
    assert api("POST", f"{one}/action", {"other": {"project": "demo"}}, token=ADMIN).status_code == 400
    public = api("GET", "/types/local").json["volume_type"]["id"]
    assert api("GET", f"/types/{public}/os-volume-type-access", token=ADMIN).status_code == 404
    assert api("POST", f"/types/{public}/action", access, token=ADMIN).status_code == 400


def attach(api: Volumes) -> None:
    """Give all volumes to a server."""
    values = {"status": "in-use", "instance_uuid": NOBODY, "attachment_id": "a"}
    api.manager.db.write(lambda uow: uow.change(sa.update(models.Volume).values(**values)))


def test_attached_volume_is_extended_since_3_42(api: Volumes) -> None:
    volume_id = api.make()
    attach(api)
    body = {"os-extend": {"new_size": 2}}
    assert api("POST", f"/volumes/{volume_id}/action", body, version="3.41").status_code == 400
    shown = api("GET", f"/volumes/{volume_id}").json["volume"]["attachments"]
    assert [(item["server_id"], item["attachment_id"]) for item in shown] == [(NOBODY, "a")]
    (attachment,) = api("GET", "/attachments/detail", version="3.42").json["attachments"]
    assert (attachment["instance"], attachment["volume_id"]) == (NOBODY, volume_id)
    assert api("DELETE", f"/volumes/{volume_id}").status_code == 400
    reset = {"os-reset_status": {"status": "available"}}
    assert api("POST", f"/volumes/{volume_id}/action", reset, token=ADMIN).status_code == 400
    assert api("POST", f"/volumes/{volume_id}/action", body, version="3.42").status_code == 202
