"""Resources of the identity API for other services: limits, and signatures of object stores."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import pytest

from nova_lite.api.identity import ec2_signature
from tests.support.identity_api import Admin, World, error


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


# --- unified limits


def test_registered_limit_is_created_changed_and_deleted(admin: Admin) -> None:
    (made,) = admin.register(description="text").json["registered_limits"]
    assert {name: made[name] for name in ("region_id", "default_limit", "description")} == {
        "region_id": None,
        "default_limit": 5,
        "description": "text",
    }
    assert error(admin.register(), 409)
    path = f"registered_limits/{made['id']}"
    changed = admin("PATCH", path, {"registered_limit": {"default_limit": -1, "region_id": "RegionOne"}})
    assert changed.json["registered_limit"] == made | {"default_limit": -1, "region_id": "RegionOne"}
    assert admin("GET", path).json == changed.json
    query = f"registered_limits?service_id={admin.service}&resource_name=things"
    assert admin("GET", query).json["registered_limits"] == [changed.json["registered_limit"]]
    assert admin("DELETE", path).status_code == 204
    assert error(admin("GET", path), 404)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"service_id": "none"}, 400),
        ({"region_id": "none"}, 400),
        ({"default_limit": -2}, 400),
        ({"default_limit": True}, 400),
        ({"default_limit": 2**31}, 400),
        ({"resource_name": ""}, 400),
        ({"description": "a" * 256}, 400),
        ({"description": 5}, 400),
    ],
)
def test_invalid_registered_limit_is_refused(admin: Admin, fields: dict[str, Any], code: int) -> None:
    assert error(admin.register(**fields), code)
    assert admin.world.users.content.registered_limits == []


def test_limit_needs_a_registered_one_and_keeps_it(world: World, admin: Admin) -> None:
    assert "no registered limit" in error(admin.limit(project_id=world.demo.id), 403)
    (registered,) = admin.register().json["registered_limits"]
    (made,) = admin.limit(project_id=world.demo.id).json["limits"]
    assert (made["resource_limit"], made["project_id"], made["domain_id"]) == (3, world.demo.id, None)
    assert error(admin.limit(project_id=world.demo.id), 409)
    for fields in ({}, {"project_id": world.demo.id, "domain_id": "default"}):
        assert error(admin.limit(**fields), 400)
    assert error(admin.limit(project_id="none"), 404)
    path = f"registered_limits/{registered['id']}"
    assert error(admin("DELETE", path), 403)
    assert error(admin("PATCH", path, {"registered_limit": {"resource_name": "others"}}), 403)
    one = f"limits/{made['id']}"
    assert admin("PATCH", one, {"limit": {"resource_limit": 4}}).json["limit"] == made | {"resource_limit": 4}
    assert admin("DELETE", one).status_code == 204
    assert admin("DELETE", path).status_code == 204


def test_limits_are_seen_by_their_project_only(world: World, admin: Admin) -> None:
    admin.register()
    (mine,) = admin.limit(project_id=world.demo.id).json["limits"]
    (other,) = admin.limit(project_id=world.ops.id).json["limits"]
    alice = world.token("alice")
    assert [item["id"] for item in world("GET", "/v3/limits", None, alice).json["limits"]] == [mine["id"]]
    assert world("GET", f"/v3/limits/{mine['id']}", None, alice).status_code == 200
    for id in (other["id"], "none"):
        assert world("GET", f"/v3/limits/{id}", None, alice).status_code == 403
    assert len(admin("GET", "limits").json["limits"]) == 2
    unscoped = world.log_in("alice", scope="unscoped").headers["X-Subject-Token"]
    assert world("GET", "/v3/limits", None, unscoped).json["limits"] == []
    for method, path, body in (
        ("POST", "limits", {"limits": []}),
        ("PATCH", f"limits/{mine['id']}", {"limit": {"resource_limit": 9}}),
        ("DELETE", f"limits/{mine['id']}", None),
        ("POST", "registered_limits", {"registered_limits": []}),
    ):
        assert world(method, f"/v3/{path}", body, alice).status_code == 403
    assert world("GET", "/v3/limits/model", None, alice).json["model"]["name"] == "flat"


def test_limits_go_with_their_project_and_domain(world: World, admin: Admin) -> None:
    admin.register()
    lab = admin("POST", "domains", {"domain": {"name": "lab", "enabled": False}}).json["domain"]["id"]
    assert admin.limit(project_id=world.ops.id).status_code == 201
    assert admin.limit(domain_id=lab).status_code == 201
    assert admin("DELETE", f"projects/{world.ops.id}").status_code == 204
    assert admin("DELETE", f"domains/{lab}").status_code == 204
    assert world.users.content.limits == []


def test_registered_limit_outlives_its_service_and_region(world: World, admin: Admin) -> None:
    assert admin("PUT", "regions/north", {"region": {}}).status_code == 201
    (made,) = admin.register(region_id="north").json["registered_limits"]
    for path in ("regions/north", f"services/{admin.service}"):
        assert admin("DELETE", path).status_code == 204
    path = f"registered_limits/{made['id']}"
    changed = admin("PATCH", path, {"registered_limit": {"default_limit": 6}}).json["registered_limit"]
    assert changed == made | {"default_limit": 6}
    assert error(admin("PATCH", path, {"registered_limit": {"resource_name": "others"}}), 400)
    assert admin("DELETE", path).status_code == 204
    assert world.users.content.registered_limits == []


# --- signatures of object stores


def s3_body(text: bytes, signature: str, access: str = "a" * 32) -> dict[str, Any]:
    token = base64.b64encode(text).decode()
    return {"credentials": {"access": access, "signature": signature, "token": token}}


def version_4(secret: str, moment: float) -> tuple[bytes, str]:
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    text = f"AWS4-HMAC-SHA256\n{date}\n{date[:8]}/north/s3/aws4_request\n{'0' * 64}".encode()
    key = f"AWS4{secret}".encode()
    for part in (date[:8], "north", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return text, hmac.digest(key, text, "sha256").hex()


def test_signed_text_of_an_object_store_gives_a_token_to_services_only(world: World, admin: Admin) -> None:
    blob = json.dumps({"access": "a" * 32, "secret": "s" * 32})
    fields = {"type": "ec2", "blob": blob, "project_id": world.demo.id, "user_id": "id-of-alice"}
    assert admin("POST", "credentials", {"credential": fields}).status_code == 201
    text = b"GET\n\n\nThu, 01 Jan 2026 00:00:00 GMT\n/bucket"
    signature = base64.b64encode(hmac.digest(b"s" * 32, text, "sha1")).decode()
    answer = admin("POST", "s3tokens", s3_body(text, signature))
    assert answer.json["token"]["user"]["name"] == "alice"
    assert answer.json["token"]["project"]["name"] == "demo"
    assert admin("POST", "s3tokens", s3_body(*version_4("s" * 32, time.time()))).status_code == 200
    for body in (
        s3_body(text + b"s", signature),
        s3_body(text, signature, "b" * 32),
        s3_body(*version_4("t" * 32, time.time())),
        s3_body(*version_4("s" * 32, time.time() - 1000)),
        s3_body(b"AWS4-HMAC-SHA256\n", "0"),
    ):
        assert error(admin("POST", "s3tokens", body), 401)
    assert error(world("POST", "/v3/s3tokens", s3_body(text, signature), world.token("alice")), 403)
    for wrong in ({}, {"token": "%%%"}, {"access": ""}):
        given = {"credentials": s3_body(text, signature)["credentials"] | wrong}
        if wrong:
            assert error(admin("POST", "s3tokens", given), 400)
    assert error(admin("POST", "s3tokens", {}), 400)


def test_signed_text_with_letters_beyond_ascii_is_refused() -> None:
    signed = ec2_signature.SignedText("a", "\u00e9", b"text")
    assert not ec2_signature.is_right_s3(signed, "secret", 0.0)


# --- options of users


def test_options_of_users_are_kept_and_lock_password_locks(world: World, admin: Admin) -> None:
    options = {"ignore_password_expiry": True, "lock_password": True}
    assert admin("PATCH", "users/id-of-alice", {"user": {"options": options}}).json["user"]["options"] == options
    change = {"user": {"password": "new one", "original_password": "alice's"}}
    alice = world.token("alice")
    path = "/v3/users/id-of-alice/password"
    assert "locked" in error(world("POST", path, change, alice), 403)
    assert admin("PATCH", "users/id-of-alice", {"user": {"options": {"lock_password": None}}}).json["user"][
        "options"
    ] == {"ignore_password_expiry": True}
    assert world("POST", path, change, alice).status_code == 204
    for wrong in ({"lock_password": "yes"}, {"unknown": True}):
        assert error(admin("PATCH", "users/id-of-alice", {"user": {"options": wrong}}), 400)
