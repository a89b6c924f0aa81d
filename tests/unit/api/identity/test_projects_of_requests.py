"""Projects that requests to other APIs name, and tokens without a project there."""

from __future__ import annotations

import pytest

from nova_lite.api.identity.records import role_id
from tests.support.identity_api import World

ALICE = "id-of-alice"
SETS = "/v2.1/os-quota-sets"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{SETS}/nobody", None),
        ("GET", f"{SETS}/nobody/detail", None),
        ("GET", f"{SETS}/nobody/defaults", None),
        ("PUT", f"{SETS}/nobody", {"quota_set": {"cores": 5}}),
        ("DELETE", f"{SETS}/nobody", None),
    ],
)
def test_quota_of_an_unknown_project_is_refused(
    world: World, method: str, path: str, body: dict[str, object] | None
) -> None:
    response = world(method, path, body, world.token("admin"), app="osapi_compute")
    assert response.status_code == 400
    assert response.json["badRequest"]["message"] == "Project ID nobody is not a valid project."


def test_quota_of_a_new_project_is_shown(world: World) -> None:
    token = world.token("admin")
    made = world("POST", "/v3/projects", {"project": {"name": "new"}}, token).json["project"]["id"]
    assert world("GET", f"{SETS}/{made}", None, token, app="osapi_compute").status_code == 200


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("PUT", {"default_type": {"volume_type": "local"}}), ("DELETE", None)]
)
def test_default_volume_type_of_an_unknown_project_is_refused(
    world: World, method: str, body: dict[str, object] | None
) -> None:
    response = world(
        method,
        "/v3/default-types/nobody",
        body,
        world.token("admin"),
        app="volume",
        OpenStack_API_Version="volume 3.62",
    )
    assert (response.status_code, response.json["itemNotFound"]["message"]) == (404, "There is no project nobody.")


def test_reader_of_the_system_reads_placements(world: World) -> None:
    path = f"/v3/system/users/{ALICE}/roles/{role_id('reader')}"
    assert world("PUT", path, None, world.token("admin")).status_code == 204
    token = world.log_in("alice", scope={"system": {"all": True}}).headers["X-Subject-Token"]
    assert world("GET", "/resource_providers", None, token, app="placement").status_code == 200
    member = world("GET", "/resource_providers", None, world.token("alice"), app="placement")
    assert (member.status_code, member.json["errors"][0]["status"]) == (403, 403)


def test_placements_need_a_token(world: World) -> None:
    response = world("GET", "/resource_providers", app="placement")
    assert (response.status_code, response.json["errors"][0]["title"]) == (401, "Unauthorized")
