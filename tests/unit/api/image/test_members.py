"""Images that are shared with other projects, over a real conductor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.http import deploy
from nova_lite.base import exceptions
from nova_lite.db.image import image_members, images
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.support.image_api import BODY, fault
from tests.support.volume_api import NOBODY, Volumes


class Api(Volumes):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.app = deploy.load_app("image", self.services)

    def __call__(  # type: ignore[override]
        self, method: str, path: str, body: Any = None, token: str = MEMBER
    ) -> webob.Response:
        request = webob.Request.blank(f"/v2{path}", method=method, base_url="http://cloud:9292")
        request.headers["X-Auth-Token"] = token
        if body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(self.app)

    def listed(self, token: str, query: str = "") -> list[str]:
        return [image["id"] for image in self("GET", f"/images{query}", token=token).json["images"]]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    yield made
    made.manager.close()


def test_shared_image_is_seen_at_once_and_listed_when_accepted(api: Api) -> None:
    image_id = api("POST", "/images", BODY).json["id"]
    one, members = f"/images/{image_id}", f"/images/{image_id}/members"
    assert api("GET", one, token=STRANGER).status_code == 404
    assert fault(api("GET", members, token=STRANGER), 404)
    made = api("POST", members, {"member": "other"})
    assert made.status_code == 200, made.text
    assert {"image_id": image_id, "member_id": "other", "status": "pending"}.items() <= made.json.items()
    assert made.json["schema"] == "/v2/schemas/member"
    assert fault(api("POST", members, {"member": "other"}), 409) == (
        f"Member other is duplicated for image {image_id}."
    )
    assert api("GET", one, token=STRANGER).status_code == 200
    assert (api.listed(STRANGER), api.listed(STRANGER, "?member_status=pending")) == ([], [image_id])
    assert [*api.services.images.list_images(make.context("other"), None)] == [], "nobody imposes an image on others"
    for status in ("accepted", "rejected"):
        changed = api("PUT", f"{members}/other", {"status": status}, token=STRANGER).json
        assert changed["status"] == status
        assert api.listed(STRANGER) == ([image_id] if status == "accepted" else [])
    assert api.listed(STRANGER, "?member_status=all") == api.listed(MEMBER) == [image_id]
    assert fault(api("GET", "/images?member_status=perhaps"), 400)
    assert api("DELETE", f"{members}/other").status_code == 204
    assert api("GET", one, token=STRANGER).status_code == 404
    assert api("DELETE", f"{members}/other").status_code == 404


def test_image_is_shared_by_its_owner_and_accepted_by_its_member(api: Api) -> None:
    image_id = api("POST", "/images", BODY).json["id"]
    members = f"/images/{image_id}/members"
    for member in ("other", "third"):
        api("POST", members, {"member": member})
    assert [item["member_id"] for item in api("GET", members).json["members"]] == ["other", "third"]
    assert [item["member_id"] for item in api("GET", members, token=STRANGER).json["members"]] == ["other"]
    assert api("GET", f"{members}/third", token=STRANGER).status_code == 404
    assert api("GET", f"{members}/other", token=STRANGER).json["status"] == "pending"
    assert api("POST", members, {"member": "fourth"}, token=STRANGER).status_code == 403
    assert api("DELETE", f"{members}/third", token=STRANGER).status_code == 403
    assert api("PUT", f"{members}/third", {"status": "accepted"}, token=STRANGER).status_code == 403
    assert "Only project other decides" in fault(api("PUT", f"{members}/other", {"status": "accepted"}), 403)
    assert api("PUT", f"{members}/other", {"status": "accepted"}, token=ADMIN).status_code == 200
    for body in ({}, {"status": "perhaps"}):
        assert api("PUT", f"{members}/other", body, token=STRANGER).status_code == 400
    for body in ({}, {"member": ""}, {"member": 5}, {"member": "x" * 256}):
        assert api("POST", members, body).status_code == 400
    assert api("DELETE", f"/images/{image_id}").status_code == 204
    assert api("GET", members, token=STRANGER).status_code == 404
    assert api("GET", f"/images/{NOBODY}/members").status_code == 404


def test_private_and_public_images_have_no_members(api: Api) -> None:
    for visibility in ("private", "public"):
        image_id = api("POST", "/images", {**BODY, "visibility": visibility}, token=ADMIN).json["id"]
        for method, path, body in (("GET", "", None), ("POST", "", {"member": "other"})):
            refused = api(method, f"/images/{image_id}/members{path}", body, token=ADMIN)
            assert fault(refused, 403) == "Only shared images have members."
    image_id = api("POST", "/images", BODY).json["id"]
    api("POST", f"/images/{image_id}/members", {"member": "other"})
    api.manager.db.write(images.update, make.ADMIN, image_id, {"visibility": "private"})
    assert api("GET", f"/images/{image_id}", token=STRANGER).status_code == 404


def test_image_has_a_limited_number_of_members(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_members, "MAX_MEMBERS", 1)
    image_id = api("POST", "/images", BODY).json["id"]
    assert api("POST", f"/images/{image_id}/members", {"member": "a"}).status_code == 200
    refused = api("POST", f"/images/{image_id}/members", {"member": "b"})
    assert (refused.status_code, exceptions.ImageMemberLimitExceeded(limit=1).message in refused.text) == (413, True)


def test_schemas_of_members(api: Api) -> None:
    assert api("GET", "/schemas/member").json["name"] == "member"
    assert api("GET", "/schemas/members").json["name"] == "members"
