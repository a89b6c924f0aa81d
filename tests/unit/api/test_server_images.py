"""Actions that create images of servers."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.image.local import LocalImages
from nova_lite.objects import Image
from tests.support.api_client import ADMIN, Client
from tests.support.control_plane import IMAGE_ID


def ask(api: Client, uuid: str, body: dict[str, Any], version: str = "2.1", **more: Any) -> Any:
    return api("POST", f"/servers/{uuid}/action", body, version=version, **more)


def test_created_image_is_named_by_location_and_since_2_45_by_id(api: Client) -> None:
    instance = api.conductor.add(image_ref=IMAGE_ID, system_metadata={"image_os": "linux", "image_img_signature": "x"})
    response = ask(api, instance.uuid, {"createImage": {"name": "snap", "metadata": {"a": "b", "os": "mine"}}})
    assert (response.status_code, response.body) == (202, b"")
    uuid, kind, payload = api.last_call("accept_action")
    assert (uuid, kind, payload["registered"]) == (instance.uuid, "createImage", False)
    image = payload["image"]
    assert response.headers["Location"].endswith(f"/v2.1/images/{image['id']}")
    assert (image["name"], image["status"], image["visibility"]) == ("snap", "queued", "private")
    assert (image["disk_format"], image["container_format"]) == ("qcow2", "bare")
    assert (image["owner"], image["min_disk"]) == (instance.project_id, instance.flavor.root_gb)
    assert image["properties"] == {
        "os": "mine",
        "a": "b",
        "instance_uuid": instance.uuid,
        "user_id": api.conductor.contexts[-1].user_id,
        "owner_id": instance.project_id,
        "image_type": "snapshot",
        "image_state": "available",
        "image_location": "snapshot",
        "base_image_ref": IMAGE_ID,
    }
    response = ask(api, instance.uuid, {"createImage": {"name": "snap"}}, "2.45")
    assert (response.status_code, "Location" in response.headers) == (202, False)
    assert response.json == {"image_id": api.last_call("accept_action")[2]["image"]["id"]}


@pytest.mark.parametrize(
    "body",
    [None, {}, {"name": ""}, {"name": "x" * 256}, {"name": "x", "metadata": {"k": 1}}, {"name": "x", "more": 1}],
)
def test_malformed_image_action_is_400(api: Client, body: Any) -> None:
    assert ask(api, api.conductor.add().uuid, {"createImage": body}).status_code == 400


def test_too_many_image_properties_are_403_before_2_39(api: Client) -> None:
    instance = api.conductor.add()
    body = {"createImage": {"name": "x", "metadata": {str(number): "" for number in range(129)}}}
    assert ask(api, instance.uuid, body, "2.38").status_code == 403
    assert ask(api, instance.uuid, body, "2.39").status_code == 202


def test_image_of_another_projects_server_is_404(api: Client) -> None:
    instance = api.conductor.add(project_id="theirs")
    assert ask(api, instance.uuid, {"createImage": {"name": "x"}}).status_code == 404
    assert ask(api, instance.uuid, {"createImage": {"name": "x"}}, token=ADMIN).status_code == 202


class Registered:
    """Image service that registers images and withdraws them."""

    def __init__(self) -> None:
        self.images: list[str] = []

    def register(self, context: Any, image: Image) -> Image:
        self.images.append("made")
        image.id = "made"
        return image

    def withdraw(self, context: Any, image_id: str) -> None:
        self.images.remove(image_id)


@pytest.mark.parametrize(
    ("error", "status", "left"),
    [
        (None, 202, ["made"]),
        (exceptions.InstanceIsLocked(instance_id="i"), 409, []),
        (exceptions.MessagingUnavailable(what="it"), 503, ["made"]),
    ],
)
def test_registered_image_is_withdrawn_if_the_operation_is_refused(
    api: Client, monkeypatch: pytest.MonkeyPatch, error: Exception | None, status: int, left: list[str]
) -> None:
    glance = Registered()
    monkeypatch.setattr(LocalImages, "register", glance.register)
    monkeypatch.setattr(LocalImages, "withdraw", glance.withdraw)

    if error is not None:
        api.conductor.script("accept_action", error)
    response = ask(api, api.conductor.add().uuid, {"createImage": {"name": "x"}}, "2.45")
    assert (response.status_code, glance.images) == (status, left)


def test_backup_has_type_and_rotation(api: Client) -> None:
    instance = api.conductor.add()
    body = {"createBackup": {"name": "b", "backup_type": "daily", "rotation": "2", "metadata": {"a": "b"}}}
    response = ask(api, instance.uuid, body, "2.45")
    uuid, kind, payload = api.last_call("accept_action")
    assert (uuid, kind, payload["backup_type"], payload["rotation"]) == (instance.uuid, "createBackup", "daily", 2)
    properties = payload["image"]["properties"]
    assert (properties["image_type"], properties["backup_type"], properties["a"]) == ("backup", "daily", "b")
    assert (response.status_code, response.json) == (202, {"image_id": payload["image"]["id"]})
    body["createBackup"]["rotation"] = 0
    response = ask(api, instance.uuid, body)
    assert (response.status_code, response.body, "Location" in response.headers) == (202, b"", False)


@pytest.mark.parametrize("rotation", [-1, "x", None, True])
def test_backup_rotation_must_be_a_number(api: Client, rotation: Any) -> None:
    body = {"createBackup": {"name": "b", "backup_type": "daily", "rotation": rotation}}
    assert ask(api, api.conductor.add().uuid, body).status_code == 400


def test_shelve_names_its_image_after_the_server(api: Client) -> None:
    instance = api.conductor.add(display_name="vm")
    assert ask(api, instance.uuid, {"shelve": None}).status_code == 202
    uuid, kind, payload = api.last_call("accept_action")
    assert (uuid, kind, payload["image"]["name"]) == (instance.uuid, "shelve", "vm-shelved")


def test_shelve_offload_is_for_admins_only(api: Client) -> None:
    instance = api.conductor.add()
    assert ask(api, instance.uuid, {"shelveOffload": None}).status_code == 403
    assert ask(api, instance.uuid, {"shelveOffload": None}, token=ADMIN).status_code == 202
    assert api.last_call("accept_action") == (instance.uuid, "shelveOffload", {})


@pytest.mark.parametrize(
    ("version", "body", "token", "status", "payload"),
    [
        ("2.1", None, None, 202, {}),
        ("2.76", {"availability_zone": "ignored"}, None, 202, {}),
        ("2.77", None, None, 202, {}),
        ("2.77", {"availability_zone": "z"}, None, 202, {"availability_zone": "z"}),
        ("2.77", {}, None, 400, None),
        ("2.77", {"availability_zone": None}, None, 400, None),
        ("2.77", {"availability_zone": "z", "host": "h"}, ADMIN, 400, None),
        ("2.91", {"availability_zone": None}, None, 202, {"availability_zone": None}),
        ("2.91", {"host": "h"}, None, 403, None),
        ("2.91", {"host": "h"}, ADMIN, 202, {"host": "h"}),
        ("2.91", {}, ADMIN, 400, None),
    ],
)
def test_unshelve_destination_depends_on_the_version(
    api: Client, version: str, body: Any, token: str | None, status: int, payload: Any
) -> None:
    instance = api.conductor.add()
    more = {"token": token} if token else {}
    assert ask(api, instance.uuid, {"unshelve": body}, version, **more).status_code == status
    if payload is not None:
        assert api.last_call("accept_action") == (instance.uuid, "unshelve", payload)
