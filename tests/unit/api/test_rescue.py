"""The server actions rescue and unrescue."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import Client, fault
from tests.support.control_plane import IMAGE_ID


def rescue(api: Client, body: Any) -> Any:
    instance = api.conductor.add()
    return api("POST", f"/servers/{instance.uuid}/action", {"rescue": body})


@pytest.mark.parametrize("image", [None, IMAGE_ID])
def test_rescue_returns_the_password(api: Client, image: str | None) -> None:
    body = {"adminPass": "x"} | ({} if image is None else {"rescue_image_ref": image})
    response = rescue(api, body)
    assert (response.status_code, response.json) == (200, {"adminPass": "x"})
    _, kind, payload = api.last_call("accept_action")
    assert (kind, payload) == (
        "rescue",
        {"image_ref": image, "images": {}, "admin_password": "x", "allow_bfv_rescue": False},
    )


@pytest.mark.parametrize(("version", "allowed"), [("2.86", False), ("2.87", True)])
def test_rescue_of_volume_backed_server_is_allowed_since_2_87(api: Client, version: str, allowed: bool) -> None:
    instance = api.conductor.add()
    assert api("POST", f"/servers/{instance.uuid}/action", {"rescue": None}, version=version).status_code == 200
    assert api.last_call("accept_action")[-1]["allow_bfv_rescue"] is allowed


@pytest.mark.parametrize("body", [None, {}])
def test_rescue_without_password_generates_one(api: Client, body: Any) -> None:
    assert len(rescue(api, body).json["adminPass"]) == 12


@pytest.mark.parametrize(
    "body", [{"rescue_image_ref": ""}, {"rescue_image_ref": "none"}, {"adminPass": 1}, {"image": IMAGE_ID}, [], "x"]
)
def test_malformed_rescue_is_refused(api: Client, body: Any) -> None:
    fault(rescue(api, body), "badRequest", 400)


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (exceptions.UnsupportedRescueImage(image="i"), "badRequest", 400),
        (exceptions.InstanceNotRescuable(instance_id="i", reason="no image"), "badRequest", 400),
        (
            exceptions.InstanceInvalidState(method="rescue", instance_id="i", attr="vm_state", state="rescued"),
            "conflictingRequest",
            409,
        ),
    ],
)
def test_rescue_refused_by_the_conductor_is_an_error(api: Client, error: Exception, name: str, code: int) -> None:
    api.conductor.error = error
    fault(rescue(api, None), name, code)
