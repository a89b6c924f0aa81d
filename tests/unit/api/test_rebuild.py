"""The server action rebuild, by version."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import Client, fault
from tests.support.control_plane import IMAGE_ID

MINIMAL = {"imageRef": IMAGE_ID}


def rebuild(api: Client, body: Any, version: str = "2.1", token: str = "alice:demo") -> Any:
    instance = api.conductor.add()
    return api("POST", f"/servers/{instance.uuid}/action", {"rebuild": body}, version=version, token=token)


def test_rebuild_is_accepted_and_sent_to_its_host(api: Client) -> None:
    response = rebuild(api, {**MINIMAL, "adminPass": "x", "name": "other", "metadata": {"a": "b"}})
    assert response.status_code == 202
    uuid, kind, payload = api.last_call("accept_action")
    assert kind == "rebuild"
    assert payload == {
        "image_ref": IMAGE_ID,
        "images": {},
        "changes": {"display_name": "other", "metadata_": {"a": "b"}},
        "injected_files": {},
        "admin_password": "x",
        "reimage_boot_volume": False,
    }
    assert response.headers["Location"].endswith(f"/servers/{uuid}")
    server = response.json["server"]
    assert (server["id"], server["adminPass"], server["image"]["id"]) == (uuid, "x", IMAGE_ID)
    assert "key_name" not in server
    assert "OS-EXT-STS:vm_state" not in server


@pytest.mark.parametrize(
    ("version", "body", "payload"),
    [
        ("2.19", {"description": None}, {"changes": {"display_description": None}}),
        ("2.54", {"key_name": None}, {"key_name": None}),
        ("2.54", {"key_name": "k"}, {"key_name": "k"}),
        ("2.56", {"personality": [{"path": "/a", "contents": "aGk="}]}, {"injected_files": {"/a": "aGk="}}),
        ("2.57", {"user_data": "aGk="}, {"changes": {"user_data": "aGk="}}),
        ("2.57", {"user_data": None}, {"changes": {"user_data": None}}),
        ("2.63", {"trusted_image_certificates": None}, {}),
        ("2.90", {"hostname": "new"}, {"changes": {"hostname": "new"}}),
        (
            "2.94",
            {"hostname": "new.example.org"},
            {"changes": {"hostname": "new.example.org"}, "reimage_boot_volume": True},
        ),
        ("2.92", {}, {}),
        ("2.93", {}, {"reimage_boot_volume": True}),
        (
            "2.1",
            {"accessIPv4": "", "OS-DCF:diskConfig": "AUTO"},
            {"changes": {"access_ip_v4": None, "auto_disk_config": True}},
        ),
        ("2.1", {"preserve_ephemeral": False}, {}),
    ],
)
def test_rebuild_parameters_depend_on_the_version(api: Client, version: str, body: Any, payload: Any) -> None:
    assert rebuild(api, {**MINIMAL, **body, "adminPass": "x"}, version).status_code == 202
    expected = {
        "image_ref": IMAGE_ID,
        "images": {},
        "changes": {},
        "injected_files": {},
        "admin_password": "x",
        "reimage_boot_volume": False,
    }
    assert api.last_call("accept_action")[2] == {**expected, **payload}


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("2.1", {}),
        ("2.1", {"imageRef": "not-an-id"}),
        ("2.1", {"imageRef": ""}),
        ("2.1", {**MINIMAL, "flavorRef": "1"}),
        ("2.1", {**MINIMAL, "name": " "}),
        ("2.1", {**MINIMAL, "preserve_ephemeral": True}),
        ("2.18", {**MINIMAL, "description": "x"}),
        ("2.53", {**MINIMAL, "key_name": "k"}),
        ("2.56", {**MINIMAL, "user_data": "aGk="}),
        ("2.57", {**MINIMAL, "personality": []}),
        ("2.57", {**MINIMAL, "user_data": "a"}),
        ("2.62", {**MINIMAL, "trusted_image_certificates": None}),
        ("2.63", {**MINIMAL, "trusted_image_certificates": ["a"]}),
        ("2.89", {**MINIMAL, "hostname": "new"}),
        ("2.93", {**MINIMAL, "hostname": "new.example.org"}),
        ("2.1", None),
    ],
)
def test_malformed_rebuild_is_refused(api: Client, version: str, body: Any) -> None:
    fault(rebuild(api, body, version), "badRequest", 400)
    assert api.compute.calls == []


def test_rebuild_response_has_more_keys_in_later_versions(api: Client) -> None:
    server = rebuild(api, MINIMAL, "2.57").json["server"]
    assert {"key_name", "user_data"} <= server.keys()
    assert "OS-EXT-STS:vm_state" not in server
    assert len(server["adminPass"]) == 12
    assert "OS-EXT-STS:vm_state" in rebuild(api, MINIMAL, "2.75").json["server"]
    told_to_admins = rebuild(api, MINIMAL, "2.75", "admin:admin").json["server"]
    assert "OS-EXT-SRV-ATTR:kernel_id" in told_to_admins
    assert "OS-EXT-SRV-ATTR:user_data" not in told_to_admins


def test_rebuild_of_another_project_is_404(api: Client) -> None:
    fault(rebuild(api, MINIMAL, token="bob:other"), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (exceptions.UnsuitableHost(reason="Of 1 host, 1 has no arm64."), "badRequest", 400),
        (exceptions.ImageUnavailable(), "badRequest", 400),
        (exceptions.InstanceIsLocked(instance_id="i"), "conflictingRequest", 409),
        (exceptions.InstanceNotFound(instance_id="i"), "itemNotFound", 404),
    ],
)
def test_rebuild_refused_by_the_conductor_is_an_error(api: Client, error: Exception, name: str, code: int) -> None:
    api.conductor.error = error
    fault(rebuild(api, MINIMAL), name, code)
