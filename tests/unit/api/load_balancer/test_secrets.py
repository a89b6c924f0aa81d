"""Secrets of projects, as python-barbicanclient and Terraform use them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from nova_lite.api.key_manager.app import KeyManagerApp
from nova_lite.db.core.models import Secret, VolumeKey
from nova_lite.db.load_balancer import secrets
from tests.support.api_client import ADMIN, STRANGER
from tests.support.load_balancers import World

NOBODY = "/secrets/00000000-0000-4000-8000-00000000dead"


def test_secret_is_made_in_one_step_and_read(world: World) -> None:
    reference = world.secret(b"\x00\xffkey", name="one", secret_type="private", algorithm="ec", bit_length=256)
    shown = world.keys("GET", reference).json
    assert (shown["secret_ref"], shown["status"], shown["name"]) == (reference, "ACTIVE", "one")
    assert (shown["secret_type"], shown["algorithm"], shown["bit_length"]) == ("private", "ec", 256)
    assert shown["content_types"] == {"default": "application/octet-stream"} and "T" in shown["created"]
    assert "+" not in shown["created"] + shown["updated"] and "payload" not in shown
    response = world.keys("GET", f"{reference}/payload")
    assert (response.body, response.content_type) == (b"\x00\xffkey", "application/octet-stream")
    assert world.keys("GET", f"{reference}/acl").json == {"read": {"project-access": True}}
    assert world.keys("DELETE", reference).status_code == 204
    assert world.keys("GET", reference).status_code == 404
    for table in (Secret, VolumeKey):
        assert world.db.read(lambda uow, table=table: uow.session.scalars(sa.select(table)).all()) == []


def test_terraform_makes_a_secret_in_steps(world: World) -> None:
    response = world.keys("POST", "/secrets", {"name": "one", "secret_type": "opaque"})
    reference = response.json["secret_ref"]
    assert response.headers["Location"] == reference
    shown = world.keys("GET", reference).json
    assert shown["status"] == "ACTIVE" and "content_types" not in shown
    assert world.keys("GET", f"{reference}/payload").status_code == 404
    data = base64.b64encode(b"key")
    sent: dict[str, Any] = {"kind": "application/octet-stream", "Content_Encoding": "base64"}
    for _ in range(2):  # a repeated request
        assert world.keys("PUT", reference, data, **sent).status_code == 204
    assert world.keys("PUT", reference, base64.b64encode(b"other"), **sent).status_code == 409
    assert world.keys("GET", f"{reference}/payload").body == b"key"
    metadata = f"{reference}/metadata"
    assert world.keys("GET", metadata).json == {"metadata": {}}
    response = world.keys("PUT", metadata, {"metadata": {"a": "1", "b": "2"}})
    assert (response.status_code, response.json) == (201, {"metadata_ref": metadata})
    assert world.keys("DELETE", f"{metadata}/a").status_code == 204
    assert world.keys("DELETE", f"{metadata}/a").status_code == 404
    assert world.keys("PUT", f"{metadata}/b", {"key": "b", "value": "3"}).json == {"key": "b", "value": "3"}
    assert world.keys("POST", metadata, {"key": "C", "value": "4"}).status_code == 201
    assert world.keys("GET", metadata).json == {"metadata": {"b": "3", "c": "4"}}
    assert world.keys("GET", f"{metadata}/c").json == {"key": "c", "value": "4"}


def test_lists_have_pages_and_filters(world: World) -> None:
    made = [world.secret(b"x", name=name) for name in ("a", "b", "b")]
    page = world.keys("GET", "/secrets?limit=2").json
    assert [one["secret_ref"] for one in page["secrets"]] == made[:2] and page["total"] == 3
    rest = world.keys("GET", page["next"]).json
    assert [one["secret_ref"] for one in rest["secrets"]] == made[2:] and "next" not in rest and "previous" in rest
    assert world.keys("GET", "/secrets?name=b").json["total"] == 2
    assert world.keys("GET", "/secrets?secret_type=private").json["total"] == 0
    assert world.keys("GET", "/secrets", token=STRANGER).json["total"] == 0


def test_container_names_its_secrets(world: World) -> None:
    certificate, key = world.secret(b"c"), world.secret(b"k")
    refs = [{"name": "certificate", "secret_ref": certificate}, {"name": "private_key", "secret_ref": key}]
    body = {"type": "certificate", "name": "one", "secret_refs": refs}
    reference = world.keys("POST", "/containers", body).json["container_ref"]
    shown = world.keys("GET", reference).json
    assert (shown["type"], shown["status"], shown["secret_refs"], shown["consumers"]) == (
        "certificate",
        "ACTIVE",
        refs,
        [],
    )
    (listed,) = world.keys("GET", "/containers").json["containers"]
    assert listed == shown
    assert world.keys("GET", f"{reference}/acl").status_code == 200
    assert world.keys("DELETE", reference).status_code == 204
    assert world.keys("GET", "/containers").json["total"] == 0 and world.keys("GET", key).status_code == 200


def test_every_route_has_a_rule_that_strangers_do_not_pass(world: World) -> None:
    secret = world.secret(b"x", name="one")
    world.keys("PUT", f"{secret}/metadata", {"metadata": {"a": "1"}})
    refs = [{"name": "certificate", "secret_ref": secret}]
    container = world.keys("POST", "/containers", {"type": "certificate", "secret_refs": refs}).json["container_ref"]
    tried = 0
    for route in KeyManagerApp.routes:
        assert route.policy.partition(":")[0] in ("secret", "secrets", "secret_meta", "container", "containers")
        if "{" not in route.path:
            continue
        path = (secret if "/secrets" in route.path else container) + route.path.partition("{id}")[2].format(key="a")
        body: Any = {"metadata": {"a": "2"}, "key": "a", "value": "2"}
        if route.path == "/secrets/{id}" and route.method == "PUT":
            response = world.keys("PUT", path, b"evil", STRANGER, "text/plain")
        else:
            sent = body if route.method in ("PUT", "POST") else None
            response = world.keys(route.method, path, sent, STRANGER)
        assert response.status_code == 404, (route, response.text)
        tried += 1
    assert tried > 10
    assert world.keys("GET", f"{secret}/metadata").json == {"metadata": {"a": "1"}}
    refs = [{"name": "certificate", "secret_ref": secret}]
    response = world.keys("POST", "/containers", {"type": "certificate", "secret_refs": refs}, STRANGER)
    assert response.status_code == 404
    assert world.keys("GET", f"{secret}/payload", token=ADMIN).body == b"x"


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/secrets", {"secret_type": "evil"}, "secret_type"),
        ("/secrets", {"payload": "x"}, "payload_content_type"),
        ("/secrets", {"payload": "", "payload_content_type": "text/plain"}, "payload"),
        ("/secrets", {"payload": "x", "payload_content_type": "text/html"}, "payload_content_type"),
        ("/secrets", {"payload": "x", "payload_content_type": "application/octet-stream"}, "base64"),
        (
            "/secrets",
            {"payload": "!", "payload_content_type": "text/plain", "payload_content_encoding": "base64"},
            "base64",
        ),
        ("/secrets", {"payload": "x" * 20001, "payload_content_type": "text/plain"}, "20000"),
        ("/secrets", {"expiration": "soon"}, "expiration"),
        ("/secrets", {"evil": 1}, "evil"),
        ("/containers", {"type": "evil"}, "type"),
        ("/containers", {"type": "certificate"}, "names of secrets"),
        ("/containers", {"type": "generic", "secret_refs": [{"name": "a", "secret_ref": "x"}]}, "secret_ref"),
        ("/containers", {"type": "generic", "secret_refs": [{"secret_ref": 5}]}, "secret_ref"),
    ],
)
def test_invalid_request_is_refused(shared: tuple[World, dict[str, str]], path: str, body: Any, text: str) -> None:
    response = shared[0].keys("POST", path, body)
    assert response.status_code == 400 and text in response.json["description"], response.text


def test_expired_secret_is_gone(world: World) -> None:
    kept = world.secret(b"x", expiration="2099-01-01T00:00:00")
    gone = world.secret(b"x", expiration="2020-01-01T00:00:00Z")
    assert world.keys("GET", kept).json["expiration"] == "2099-01-01T00:00:00"
    assert world.keys("GET", f"{gone}/payload").status_code == 404
    assert world.keys("GET", "/secrets").json["total"] == 1


def test_project_has_a_limit_of_secrets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MAX_SECRETS", 1)
    world.secret(b"x")
    response = world.keys("POST", "/secrets", {"name": "two"})
    assert response.status_code == 403 and "at most 1 secrets" in response.json["description"]


def test_cloud_without_a_master_key_takes_no_payloads(world: World) -> None:
    world.conf.set_override("encryption_key_file", "", group="volume")
    response = world.keys("POST", "/secrets", {"payload": "x", "payload_content_type": "text/plain"})
    assert response.status_code == 400 and "has no keys for secrets" in response.json["description"]


def test_payload_is_encrypted_in_the_database(world: World) -> None:
    reference = world.secret(b"a very secret text")
    (row,) = world.db.read(lambda uow: uow.session.scalars(sa.select(Secret)).all())
    assert row.payload is not None and b"secret text" not in base64.b64decode(row.payload)
    assert "secret text" not in str(row.document)

    def change(uow: Any) -> None:
        uow.session.get_one(Secret, row.id).payload = base64.b64encode(b"x" * 40).decode()

    world.db.write(change)
    assert world.keys("GET", f"{reference}/payload").status_code == 503


def test_versions_need_no_token(world: World) -> None:
    response = webob.Request.blank("/", base_url="http://cloud:9311").get_response(world.key_manager)
    (version,) = response.json["versions"]["values"]
    assert (version["id"], version["status"]) == ("v1", "STABLE")
    assert version["links"][0]["href"] == "http://cloud:9311/v1/"
