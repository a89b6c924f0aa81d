"""The image API: responses, filters, patches, uploads and refusals."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import webob

from nova_lite.api.image import uploads
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import Image
from tests.support import exports
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.support.control_plane import IMAGE_ID
from tests.support.image_api import BODY, PATCH, Images, fault, left_behind


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


def test_versions_need_no_token(images: Images) -> None:
    for path, status in (("/", 300), ("/versions", 200), ("/v2", 200), ("/v2/", 200)):
        response = images("GET", path, token=None)
        assert response.status_code == status
        current = response.json["versions"][0]
        assert (current["status"], current["links"][0]["href"]) == ("CURRENT", "http://cloud:9292/v2/")
    assert images("GET", "/v1", token=None).status_code == 404


def test_show_image(images: Images) -> None:
    image = images("GET", f"/v2/images/{IMAGE_ID}").json
    assert image == {
        "id": IMAGE_ID,
        "name": "cirros",
        "k": "v",
        "status": "active",
        "visibility": "public",
        "protected": False,
        "os_hidden": False,
        "checksum": None,
        "os_hash_algo": None,
        "os_hash_value": None,
        "owner": None,
        "size": 100,
        "virtual_size": None,
        "min_disk": 0,
        "min_ram": 1,
        "disk_format": "qcow2",
        "container_format": "bare",
        "created_at": "2026-11-21T08:20:32Z",
        "updated_at": "2026-11-21T08:20:32Z",
        "tags": [],
        "self": f"/v2/images/{IMAGE_ID}",
        "file": f"/v2/images/{IMAGE_ID}/file",
        "schema": "/v2/schemas/image",
    }
    fault(images("GET", "/v2/images/cirros"), 404)


def test_schema_has_every_field(images: Images) -> None:
    schema = images("GET", "/v2/schemas/image").json
    assert set(schema["properties"]) == set(images("GET", f"/v2/images/{IMAGE_ID}").json) - {"k"}
    assert images("GET", "/v2/schemas/images").json["properties"]["images"]["items"] == schema


def test_list_is_filtered(images: Images) -> None:
    one = images.add(name="one", size=5, min_ram=7, properties={"os": "x"})
    two = images.add(name="two, three", status="queued", size=0, visibility="shared")
    images.add(name="four", owner="other", visibility="community")

    def names(query: str = "") -> list[str]:
        response = images("GET", f"/v2/images{query}")
        assert response.status_code == 200, response.text
        return sorted(image["name"] for image in response.json["images"])

    assert names() == ["cirros", "one", "two, three"]
    assert names(f"?id=in:{one.id},{two.id}") == ["one", "two, three"]
    assert names("?name=one") == ["one"]
    assert names('?name=in:"two, three",one') == ["one", "two, three"]
    assert names("?status=queued") == ["two, three"]
    assert names("?visibility=public") == ["cirros"]
    assert names("?visibility=community") == ["four"]
    assert names("?visibility=all") == ["cirros", "four", "one", "two, three"]
    refused = fault(images("GET", "/v2/images?visibility=secret"), 400)
    assert refused == "Invalid visibility: secret. It is one of public, private, shared, community, all."
    assert names("?owner=demo&os=x&min_ram=7") == ["one"]
    assert names("?size_min=5&size_max=50") == ["one"]
    assert names("?created_at=gt:2026-11-21T08:20:33Z") == []
    assert names("?created_at=lte:2026-11-21T08:20:32Z&name=one") == ["one"]
    assert names("?protected=true") == names("?os_hidden=true") == names("?tag=t") == []
    assert names("?os_hidden=false&member_status=all") == ["cirros", "one", "two, three"]


def test_list_has_pages(images: Images) -> None:
    for name in "abc":
        images.add(name=name)
    seen, path = [], "/v2/images?limit=3&sort=name:asc"
    while path:
        response = images("GET", path).json
        assert response["first"] == "/v2/images?limit=3&sort=name%3Aasc"
        assert response["schema"] == "/v2/schemas/images"
        seen += [image["name"] for image in response["images"]]
        path = response.get("next")
    assert seen == ["a", "b", "c", "cirros"]
    newest_first = images("GET", "/v2/images?sort_key=name&sort_dir=desc").json["images"]
    assert [image["name"] for image in newest_first] == ["cirros", "c", "b", "a"]


@pytest.mark.parametrize(
    "query",
    ["limit=x", "limit=-1", "marker=none", "sort_key=nonsense", "sort=name:up", "sort_dir=up", "size_min=x",
     "created_at=9999-12-31T23:59:59-14:00", "updated_at=lte:0001-01-01T00:00:00%2B14:00",
     "created_at=gt:x", "sort=name&sort_key=name", "sort_key=name&sort_key=id&sort_key=size&sort_dir=asc&sort_dir=asc"],
)  # fmt: skip
def test_invalid_query_is_refused(images: Images, query: str) -> None:
    fault(images("GET", f"/v2/images?{query}"), 400)


def test_create_image(images: Images) -> None:
    response = images(
        "POST", "/v2/images", BODY | {"kernel_id": "k", "min_ram": 5, "visibility": "private", "tags": []}
    )
    assert response.status_code == 201
    made = response.json
    assert (made["status"], made["size"], made["owner"], made["kernel_id"]) == ("queued", None, "demo", "k")
    assert response.headers["Location"] == f"http://cloud:9292/v2/images/{made['id']}"
    other = IMAGE_ID[:-1] + "f"
    fault(images("POST", "/v2/images", BODY | {"id": other}), 403)
    assert images("POST", "/v2/images", BODY | {"id": other, "name": None}, ADMIN).json["id"] == other
    assert images("POST", "/v2/images", BODY | {"id": IMAGE_ID}, ADMIN).status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        {"disk_format": "exe"},
        {"container_format": 5},
        {"visibility": "secret"},
        {"min_ram": -1},
        {"min_disk": True},
        {"name": 5},
        {"name": "x" * 256},
        {"id": "none"},
        {"id": 5},
        {"protected": "maybe"},
        {"os_hidden": 1},
        {"tags": "t"},
        {"tags": [5]},
        {"tags": [""]},
        {"tags": ["t" * 256]},
        {"tags": [str(n) for n in range(129)]},
        {"own": 5},
        {"own": "x" * 5000},
        {f"k{n}": "v" for n in range(129)},
    ],
)
def test_invalid_create_is_refused(images: Images, change: dict[str, Any]) -> None:
    fault(images("POST", "/v2/images", BODY | change), 400)


def test_image_has_no_tasks(images: Images) -> None:
    made = images("POST", "/v2/images", BODY).json
    assert images("GET", f"/v2/images/{made['id']}/tasks").json == {"tasks": []}
    fault(images("GET", f"/v2/images/{made['id'][:-1]}x/tasks"), 404)


def test_tags_are_added_and_removed(images: Images) -> None:
    made = images("POST", "/v2/images", BODY | {"tags": ["b", "a", "b"]}).json
    assert made["tags"] == ["b", "a"]
    path = f"/v2/images/{made['id']}"
    assert [images("PUT", f"{path}/tags/c").status_code for _ in range(2)] == [204, 204]
    assert images("DELETE", f"{path}/tags/b").status_code == 204
    fault(images("DELETE", f"{path}/tags/b"), 404)
    assert images("GET", path).json["tags"] == ["a", "c"]
    found = {query: images("GET", f"/v2/images?{query}").json["images"] for query in ("tag=a", "tag=b", "tag=a&tag=c")}
    assert [one["id"] for one in found["tag=a"]] == [one["id"] for one in found["tag=a&tag=c"]] == [made["id"]]
    assert found["tag=b"] == []
    assert images.patch(images.conductor.images[made["id"]], ("replace", "/tags", ["d"])).json["tags"] == ["d"]
    others = images.add(owner="other", visibility="public")
    fault(images("PUT", f"/v2/images/{others.id}/tags/x"), 403)


def test_public_images_and_ids_are_for_admins(images: Images) -> None:
    for change in ({"visibility": "public"}, {"owner": "other"}, {"status": "active"}, {"size": 5}):
        fault(images("POST", "/v2/images", BODY | change), 403)
    for change in ({"visibility": "public"}, {"owner": "other"}):
        assert images("POST", "/v2/images", BODY | change, ADMIN).status_code == 201
    mine = images.add()
    for operation in (("replace", "/visibility", "public"), ("replace", "/owner", "other")):
        fault(images.patch(mine, operation), 403)
        assert images.patch(mine, operation, token=ADMIN).status_code == 200


def test_images_of_other_projects_cannot_be_changed(images: Images) -> None:
    image = images.add(visibility="public", status="queued", disk_format="raw")
    path = f"/v2/images/{image.id}"
    fault(images.patch(image, ("replace", "/name", "x"), token=STRANGER), 403)
    fault(images("DELETE", path, token=STRANGER), 403)
    fault(images("PUT", f"{path}/file", b"x", STRANGER), 403)
    assert images.conductor.images[image.id] == image
    assert not images.store.exists()


def test_patch_changes_fields_and_properties(images: Images) -> None:
    image = images.add(properties={"a": "1", "b": "2"})
    response = images.patch(
        image,
        ("replace", "/name", "new"),
        ("replace", "/min_disk", 3),
        ("replace", "/a", "9"),
        ("remove", "/b", None),
        ("add", "/c~0d", "4"),
        ("replace", "/visibility", "community"),
    )
    assert response.status_code == 200, response.text
    stored = images.conductor.images[image.id]
    assert (stored.name, stored.min_disk, stored.visibility) == ("new", 3, "community")
    assert stored.properties == {"a": "9", "c~d": "4"}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (("replace", "/none", "x"), 409),
        (("remove", "/none", None), 409),
        (("replace", "/id", IMAGE_ID), 403),
        (("replace", "/status", "active"), 403),
        (("replace", "/os_hash_value", "x"), 403),
        (("remove", "/name", None), 403),
        (("replace", "/disk_format", "raw"), 403),
        (("replace", "/min_ram", "x"), 400),
        (("replace", "/protected", None), 400),
        (("move", "/name", "x"), 400),
        (("replace", "name", "x"), 400),
        (("add", "/a/b", "x"), 400),
    ],
)
def test_invalid_patch_is_refused(images: Images, operation: tuple[str, str, Any], code: int) -> None:
    image = images.add()
    fault(images.patch(image, operation), code)
    assert images.conductor.images[image.id] == image


def test_older_media_type_of_a_patch(images: Images) -> None:
    image = images.add(properties={"a": "1", "b": "2"})
    operations = [{"add": "/c", "value": "3"}, {"replace": "/a", "value": "9"}, {"remove": "/b"}]
    older = PATCH.replace("v2.1", "v2.0")
    response = images("PATCH", f"/v2/images/{image.id}", operations, Content_Type=older)
    assert response.status_code == 200, response.text
    assert images.conductor.images[image.id].properties == {"a": "9", "c": "3"}
    fault(images("PATCH", f"/v2/images/{image.id}", [{"move": "/a"}], Content_Type=older), 400)


def test_patch_with_another_content_type_is_refused(images: Images) -> None:
    image = images.add()
    fault(images("PATCH", f"/v2/images/{image.id}", []), 415)
    fault(images("PATCH", f"/v2/images/{image.id}", {}, Content_Type=PATCH), 400)


@pytest.mark.parametrize(
    ("wanted", "expected", "found"),
    [
        ("bytes=0-0", "bytes 0-0/1000", slice(0, 1)),
        ("bytes=10-19", "bytes 10-19/1000", slice(10, 20)),
        ("bytes=990-", "bytes 990-999/1000", slice(990, None)),
        ("bytes=-10", "bytes 990-999/1000", slice(990, None)),
        ("bytes=0-5000", "bytes 0-999/1000", slice(0, None)),
    ],
)
def test_download_of_a_range_has_these_bytes(images: Images, wanted: str, expected: str, found: slice) -> None:
    data = bytes(range(250)) * 4
    path = f"/v2/images/{images.create()['id']}/file"
    images("PUT", path, data)
    assert images("GET", path).headers["Accept-Ranges"] == "bytes"
    part = images("GET", path, Range=wanted)
    assert (part.status_code, part.headers["Content-Range"]) == (206, expected)
    assert part.body == data[found] and part.content_length == len(data[found])
    assert "Content-MD5" not in part.headers, "it is the sum of all data"


def test_download_of_a_range_after_the_end_is_a_416(images: Images) -> None:
    path = f"/v2/images/{images.create()['id']}/file"
    images("PUT", path, b"x" * 10)
    refused = images("GET", path, Range="bytes=10-")
    assert (refused.status_code, refused.headers["Content-Range"]) == (416, "bytes */10")
    assert images("GET", path, Range="nonsense").body == b"x" * 10


@pytest.mark.parametrize(
    ("accept", "kind", "text"),
    [
        (None, "text/html", "<h1>404 Not Found</h1>"),
        ("*/*", "text/html", "<h1>404 Not Found</h1>"),
        ("text/plain", "text/html", "<title>404 Not Found</title>"),
        ("application/json", "application/json", '"code": "404 Not Found"'),
        ("application/json, text/html;q=0.5", "application/json", '"title": "Not Found"'),
    ],
)
def test_error_has_the_form_of_glance_that_the_client_prefers(
    images: Images, accept: str | None, kind: str, text: str
) -> None:
    request = webob.Request.blank("/v2/images/<i>", headers={"X-Auth-Token": MEMBER})
    if accept is not None:
        request.headers["Accept"] = accept
    refused = request.get_response(images.app)
    assert (refused.status_code, refused.content_type) == (404, kind)
    assert text in refused.text
    assert kind != "text/html" or "<i>" not in refused.text


def test_upload_and_download(images: Images) -> None:
    data = bytes(range(256)) * 1024
    made = images.create()
    path = f"/v2/images/{made['id']}/file"
    assert images("GET", path).status_code == 204
    assert images("PUT", path, data).status_code == 204
    shown = images("GET", f"/v2/images/{made['id']}").json
    assert (shown["status"], shown["size"], shown["os_hash_algo"]) == ("active", len(data), "sha256")
    file = images.store / made["id"]
    assert shown["os_hash_value"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert shown["checksum"] == hashlib.md5(data).hexdigest(), "Terraform compares it"
    assert shown["virtual_size"] == len(data)
    assert file.stat().st_mode & 0o777 == 0o640
    response = images("GET", path)
    assert (response.body, response.content_length) == (data, len(data))
    assert response.headers["Content-MD5"] == shown["checksum"]
    fault(images("PUT", path, b"other"), 409)
    assert file.read_bytes() == data
    assert images("DELETE", f"/v2/images/{made['id']}").status_code == 204
    assert not file.exists()


def test_data_of_a_deactivated_image_are_for_admins(images: Images) -> None:
    path = f"/v2/images/{images.create()['id']}"
    for name in ("deactivate", "reactivate"):
        assert "is queued" in fault(images("POST", f"{path}/actions/{name}"), 403)
    images("PUT", f"{path}/file", b"data")
    active = images("GET", path).json
    for _ in range(2):
        assert images("POST", f"{path}/actions/deactivate").status_code == 204
    shown = images("GET", path).json
    assert (shown["status"], shown["checksum"]) == ("deactivated", active["checksum"])
    assert "deactivated" in fault(images("GET", f"{path}/file"), 403)
    assert images("GET", f"{path}/file", token=ADMIN).body == b"data"
    assert images("POST", f"{path}/actions/reactivate", token=STRANGER).status_code == 403
    for _ in range(2):
        assert images("POST", f"{path}/actions/reactivate").status_code == 204
    assert images("GET", path).json["status"] == "active"
    assert images("GET", f"{path}/file").body == b"data"


def test_image_without_data_has_no_sums(images: Images) -> None:
    made = images.create()
    assert [made[name] for name in ("checksum", "os_hash_algo", "os_hash_value", "size", "virtual_size")] == [None] * 5


def test_virtual_size_of_a_qcow2_image_is_that_of_its_disk(images: Images, tmp_path: Path) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "disk", "3M"], check=True)
    made = images.create(disk_format="qcow2")
    assert images("PUT", f"/v2/images/{made['id']}/file", (tmp_path / "disk").read_bytes()).status_code == 204
    shown = images("GET", f"/v2/images/{made['id']}").json
    assert shown["virtual_size"] == 3 * 1024**2 > shown["size"]


def test_archive_keeps_its_bytes_and_has_the_size_of_its_disk(images: Images) -> None:
    disk = exports.stream_optimized(bytes(3 * 1024**2))
    archive = exports.ova({"vm.ovf": exports.ovf(["d.vmdk"]), "d.vmdk": disk})
    made = images.create(disk_format="vmdk", container_format="ova")
    assert images("PUT", f"/v2/images/{made['id']}/file", archive).status_code == 204
    shown = images("GET", f"/v2/images/{made['id']}").json
    assert (shown["virtual_size"], shown["size"]) == (3 * 1024**2, len(archive))
    assert images("GET", f"/v2/images/{made['id']}/file").body == archive


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""])
def test_upload_of_another_content_type_is_a_415(images: Images, content_type: str) -> None:
    made = images.create()
    refused = images("PUT", f"/v2/images/{made['id']}/file", b"x", Content_Type=content_type)
    assert fault(refused, 415) == "Content-Type must be application/octet-stream."
    assert images("GET", f"/v2/images/{made['id']}").json["status"] == "queued"


@pytest.mark.parametrize("name", ["location", "locations", "deleted", "deleted_at", "stores", "os_glance_import_task"])
def test_reserved_names_of_properties_are_refused(images: Images, name: str) -> None:
    message = f"Attribute '{name}' is reserved."
    assert fault(images("POST", "/v2/images", BODY | {name: "x"}), 403) == message
    assert fault(images.patch(images.add(), ("add", f"/{name}", "x")), 403) == message


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("ha_restart", "yes", "always"),
        ("ha:restart", "Always", "never"),
        ("ha_local_disk", "lose", "rebuild"),
        ("ha_priority", "1000", "999"),
    ],
)
def test_wrong_settings_of_protection_are_refused(images: Images, name: str, wrong: str, right: str) -> None:
    image = images.add()
    for response in (
        images("POST", "/v2/images", BODY | {name: wrong}),
        images.patch(image, ("add", f"/{name}", wrong)),
    ):
        assert response.status_code == 400
        assert "wrong: the value is" in response.text
    assert images.patch(image, ("add", f"/{name}", right)).json[name] == right
    assert images.patch(image, ("remove", f"/{name}", None)).status_code == 200


def test_unknown_setting_of_protection_is_refused(images: Images) -> None:
    assert "ha:restart, ha:priority" in images("POST", "/v2/images", BODY | {"ha_restrat": "always"}).text


def test_images_are_imported_from_nowhere_by_default(images: Images) -> None:
    assert images("GET", "/v2/info/import").json["import-methods"]["value"] == ["glance-direct"]


def test_chunked_upload(images: Images) -> None:
    made = images.create()
    request = webob.Request.blank(f"/v2/images/{made['id']}/file", method="PUT")
    request.headers.update({"X-Auth-Token": MEMBER, "Transfer-Encoding": "chunked"})
    request.content_type = "application/octet-stream"
    request.environ["wsgi.input"] = io.BytesIO(b"x" * 5000)
    assert request.get_response(images.app).status_code == 204
    assert images.conductor.images[made["id"]].size == 5000


@pytest.mark.parametrize("announced", [True, False])
def test_too_large_upload_is_refused(images: Images, announced: bool) -> None:
    made = images.create()
    request = webob.Request.blank(f"/v2/images/{made['id']}/file", method="PUT")
    request.headers.update({"X-Auth-Token": MEMBER, "Content-Type": "application/octet-stream"})
    request.headers.update({"Content-Length": str(2**20 + 1)} if announced else {"Transfer-Encoding": "chunked"})
    request.environ["wsgi.input"] = io.BytesIO(b"x" * (2**20 + 1))
    fault(request.get_response(images.app), 413)
    assert images.conductor.images[made["id"]].status == "queued"
    assert left_behind(images) == []


def test_upload_over_the_quota_is_refused(images: Images) -> None:
    made = images.create()
    real = images.conductor.own_answer("image_update")

    def update(context: Any, image_id: str, changes: dict[str, Any], *more: Any) -> Image:
        if changes.get("size"):
            raise exceptions.ImageQuotaExceeded(allowed=1, unit="MiB", used=1)
        return real(context, image_id, changes, *more)

    images.conductor.script("image_update", update)
    response = images("PUT", f"/v2/images/{made['id']}/file", b"x" * 100)
    assert "1 MiB, of which 1 are used" in fault(response, 413)
    assert images.conductor.images[made["id"]].status == "queued"
    assert left_behind(images) == []


class Watched(io.BytesIO):
    """Body of an upload that counts what is read of it."""

    def __init__(self, size: int) -> None:
        super().__init__(b"x" * size)
        self.taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def upload(images: Images, image_id: str, body: Watched, chunked: bool) -> webob.Response:
    request = webob.Request.blank(f"/v2/images/{image_id}/file", method="PUT")
    size = len(body.getvalue())
    request.headers.update({"X-Auth-Token": MEMBER, "Content-Type": "application/octet-stream"})
    request.headers.update({"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)})
    request.environ["wsgi.input"] = body
    return request.get_response(images.app)


def limit_quota(images: Images, limit: int) -> list[int]:
    """Let the conductor refuse images above ``limit`` bytes. Return the list of requested sizes."""
    real = images.conductor.own_answer("image_update")
    sizes: list[int] = []

    def update(context: Any, image_id: str, changes: dict[str, Any], *more: Any) -> Image:
        sizes.extend([changes["size"]] if changes.get("size") else [])
        if changes.get("size", 0) > limit:
            raise exceptions.ImageQuotaExceeded(allowed=1, unit="MiB", used=1)
        return real(context, image_id, changes, *more)

    images.conductor.script("image_update", update)
    return sizes


def test_upload_over_the_quota_is_refused_before_anything_is_stored(images: Images) -> None:
    made, body = images.create(), Watched(500_000)
    limit_quota(images, 499_999)
    assert "1 MiB" in fault(upload(images, made["id"], body, chunked=False), 413)
    assert (body.taken, left_behind(images)) == (0, [])
    assert images.conductor.images[made["id"]].status == "queued"


def test_chunked_upload_over_the_quota_is_refused_when_it_exceeds_a_reservation(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FIRST_RESERVATION", 100_000)
    monkeypatch.setattr(store, "CHUNK", 10_000)
    made, body = images.create(), Watched(1_000_000)
    sizes = limit_quota(images, 300_000)
    assert "1 MiB" in fault(upload(images, made["id"], body, chunked=True), 413)
    assert (sizes, body.taken) == ([100_000, 200_000, 400_000], 210_000)
    image = images.conductor.images[made["id"]]
    assert (image.status, image.size, left_behind(images)) == ("queued", 0, [])


def test_chunked_upload_reserves_in_growing_steps_and_ends_with_its_own_size(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FIRST_RESERVATION", 100_000)
    monkeypatch.setattr(store, "CHUNK", 10_000)
    made = images.create()
    sizes = limit_quota(images, 2**20)
    assert upload(images, made["id"], Watched(900_000), chunked=True).status_code == 204
    assert sizes == [100_000, 200_000, 400_000, 800_000, 2**20, 900_000]
    assert images.conductor.images[made["id"]].size == 900_000


@pytest.mark.parametrize("chunked", [True, False])
def test_upload_leaves_the_disk_its_free_space(
    images: Images, monkeypatch: pytest.MonkeyPatch, chunked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    room = os.statvfs(images.store.parent)
    free = room.f_bavail * room.f_frsize
    images.conf.set_override("min_free_mb", free // 2**20 + 100, group="image")
    made, body = images.create(), Watched(1000)
    message = fault(upload(images, made["id"], body, chunked), 503)
    assert message == "The image's data cannot be stored now."
    assert (body.taken, left_behind(images)) == (0, [])
    assert images.conductor.images[made["id"]].status == "queued"
    assert "MiB have to stay free" in caplog.text


def test_upload_ends_when_the_disk_fills_meanwhile(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SPACE_STEP", 100_000)
    monkeypatch.setattr(store, "CHUNK", 10_000)
    made, body = images.create(), Watched(500_000)
    real, calls = store.require_room, []

    def filling(path: str, size: int, floor: int) -> None:
        calls.append(size)
        real(path, size, floor if len(calls) < 3 else 2**80)

    monkeypatch.setattr(store, "require_room", filling)
    fault(upload(images, made["id"], body, chunked=False), 503)
    assert (body.taken, left_behind(images), calls) == (200_000, [], [500_000, 10_000, 10_000])
    assert images.conductor.images[made["id"]].status == "queued"


def test_interrupted_upload_requeues_the_image(images: Images) -> None:
    made = images.create()
    request = webob.Request.blank(f"/v2/images/{made['id']}/file", method="PUT")
    request.headers.update(
        {"X-Auth-Token": MEMBER, "Content-Type": "application/octet-stream", "Content-Length": "100"}
    )
    request.environ["wsgi.input"] = io.BytesIO(b"x" * 50)
    fault(request.get_response(images.app), 400)
    assert images.conductor.images[made["id"]].status == "queued"
    assert left_behind(images) == []


def test_upload_to_a_full_disk_is_a_503(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    made = images.create()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.IncompleteFile, "write", full)
    fault(images("PUT", f"/v2/images/{made['id']}/file", b"x"), 503)
    assert images.conductor.images[made["id"]].status == "queued"


def test_upload_of_another_format_is_refused(images: Images) -> None:
    made = images.create(disk_format="qcow2")
    message = fault(images("PUT", f"/v2/images/{made['id']}/file", b"x" * 200), 400)
    assert message == f"Image {made['id']} is unacceptable: it was declared as qcow2, and its content is something else"
    assert images.conductor.images[made["id"]].status == "queued"
    assert left_behind(images) == []


def test_image_deleted_during_its_upload_is_a_410(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    made = images.create()
    real = store.IncompleteFile.publish

    def publish(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        del images.conductor.images[made["id"]]
        return result

    monkeypatch.setattr(store.IncompleteFile, "publish", publish)
    assert images("PUT", f"/v2/images/{made['id']}/file", b"x").status_code == 410
    assert left_behind(images) == []


def test_upload_needs_the_formats(images: Images) -> None:
    made = images("POST", "/v2/images", {"name": "bare"}).json
    assert made["disk_format"] is None
    fault(images("PUT", f"/v2/images/{made['id']}/file", b"x"), 409)
    image = images.conductor.images[made["id"]]
    response = images.patch(image, ("replace", "/disk_format", "raw"), ("replace", "/container_format", "bare"))
    assert response.status_code == 200
    assert images("PUT", f"/v2/images/{made['id']}/file", b"x").status_code == 204


def test_format_cannot_change_during_an_upload(images: Images) -> None:
    """Data that were checked as one format must not become another: a raw image may be a qcow2 with a backing file."""
    made = images.create()
    stale = images.conductor.images[made["id"]]
    images.conductor.images[made["id"]] = msgspec.structs.replace(stale, status="active")
    images.conductor.script("image_get", stale)
    fault(images.patch(stale, ("replace", "/disk_format", "qcow2")), 409)
    images.conductor.images[made["id"]] = msgspec.structs.replace(stale, disk_format="qcow2")
    response = images("PUT", f"/v2/images/{made['id']}/file", b"x" * 200)
    assert "declared as qcow2" in fault(response, 400)


def test_image_with_a_missing_file_has_no_data(images: Images) -> None:
    fault(images("GET", f"/v2/images/{IMAGE_ID}/file"), 404)


def test_leftovers_of_interrupted_uploads_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    for name, age in ((".import-old", 90_000), (".import-new", 5), (IMAGE_ID, 90_000)):
        (directory / name).touch()
        os.utime(directory / name, (time.time() - age,) * 2)
    Images(tmp_path)
    assert sorted(file.name for file in directory.iterdir()) == [".import-new", IMAGE_ID, "_hosts"]


def test_image_id_cannot_leave_the_store(images: Images, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    evil = images.add(id="..%2foutside")
    images.conductor.images["../outside"] = msgspec.structs.replace(evil, id="../outside")
    assert b"secret" not in images("GET", "/v2/images/..%2foutside/file").body


def test_request_body_is_limited(images: Images) -> None:
    fault(images("POST", "/v2/images", {"name": "x" * 200_000}), 413)
    fault(images("POST", "/v2/images", {}, Transfer_Encoding="chunked"), 411)


def test_tags_that_two_clients_change_at_once_are_both_changed(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    image = images.add(tags=["a", "b"])
    path = f"/v2/images/{image.id}/tags"
    get = images.conductor.image_get

    def while_another_adds(*args: Any) -> Image:
        found = get(*args)
        monkeypatch.setattr(images.conductor, "image_get", get)
        assert images("PUT", f"{path}/of-another").status_code == 204
        return found

    monkeypatch.setattr(images.conductor, "image_get", while_another_adds)
    assert images("DELETE", f"{path}/a").status_code == 204
    assert images.conductor.images[image.id].tags == ["b", "of-another"]
    assert images("PUT", f"{path}/c").status_code == 204
    assert images.conductor.images[image.id].tags == ["b", "of-another", "c"]
