"""Volumes in the compute API until 2.35, with a real conductor, and ``/os-volumes_boot``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.http import deploy
from tests.support.api_client import MEMBER, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes


class Compute(Volumes):
    """Requests to the volume API (``self``) and to the compute API (`compute`) of the same cloud."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.compute_app = deploy.load_app("osapi_compute", self.services)

    def compute(
        self, method: str, path: str, body: Any = None, version: str = "2.35", token: str = MEMBER
    ) -> webob.Response:
        headers = {"X-Auth-Token": token, "X-OpenStack-Nova-API-Version": version}
        request = webob.Request.blank(f"/v2.1{path}", method=method, headers=headers)
        if body is not None:
            request.json = body
        return request.get_response(self.compute_app)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Compute]:
    made = Compute(tmp_path)
    yield made
    made.manager.close()


def test_volume_proxies(cloud: Compute) -> None:
    body = {"volume": {"size": "1", "display_name": "v", "display_description": "d", "metadata": {"a": "b"}, "x": 1}}
    response = cloud.compute("POST", "/os-volumes", body)
    assert response.status_code == 200, response.text
    made = response.json["volume"]
    assert response.headers["Location"].endswith(f"/os-volumes/{made['id']}")
    assert {key: made[key] for key in made if key not in ("id", "createdAt")} == {
        "status": "creating",
        "size": 1,
        "availabilityZone": "nova",
        "attachments": [{}],
        "displayName": "v",
        "displayDescription": "d",
        "volumeType": "local",
        "snapshotId": None,
        "metadata": {"a": "b"},
    }
    cloud.done()
    for path in ("/os-volumes", "/os-volumes/detail"):
        (listed,) = cloud.compute("GET", path).json["volumes"]
        assert (listed["id"], listed["status"]) == (made["id"], "available")
        assert cloud.compute("GET", f"{path}?limit=1&offset=1").json == {"volumes": []}
        assert cloud.compute("GET", path, token=STRANGER).json == {"volumes": []}
    one = f"/os-volumes/{made['id']}"
    assert cloud.compute("GET", one).json == {"volume": listed}
    for method in ("GET", "DELETE"):
        fault(cloud.compute(method, one, token=STRANGER), "itemNotFound", 404)
        fault(cloud.compute(method, "/os-volumes/nosuch"), "itemNotFound", 404)
    assert cloud.compute("DELETE", one).status_code == 202


def test_snapshot_proxies(cloud: Compute) -> None:
    volume_id = cloud.create()["id"]
    cloud.done()
    body = {"snapshot": {"volume_id": volume_id, "display_name": "s", "force": "False"}}
    response = cloud.compute("POST", "/os-snapshots", body)
    assert response.status_code == 200, response.text
    made = response.json["snapshot"]
    assert (made["volumeId"], made["displayName"], made["status"], made["size"]) == (volume_id, "s", "creating", 1)
    cloud.done()
    for path in ("/os-snapshots", "/os-snapshots/detail"):
        assert [snapshot["status"] for snapshot in cloud.compute("GET", path).json["snapshots"]] == ["available"]
    one = f"/os-snapshots/{made['id']}"
    fault(cloud.compute("GET", one, token=STRANGER), "itemNotFound", 404)
    assert cloud.compute("GET", one).json["snapshot"]["id"] == made["id"]
    assert cloud.compute("DELETE", one).status_code == 202


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/os-volumes", {"volume": {}}),
        ("/os-volumes", {"volume": {"size": 0}}),
        ("/os-volumes", {"volume": {"size": 1, "volume_type": "fast"}}),
        ("/os-volumes", {"volume": {"size": 1, "availability_zone": "nowhere"}}),
        ("/os-snapshots", {"snapshot": {"volume_id": "x"}}),
        ("/os-snapshots", {"snapshot": {"volume_id": NOBODY, "force": "maybe"}}),
    ],
)
def test_invalid_proxy_request_is_refused(cloud: Compute, path: str, body: Any) -> None:
    fault(cloud.compute("POST", path, body), "badRequest", 400)


@pytest.mark.parametrize("path", ["/os-volumes", "/os-volumes/detail", "/os-snapshots", "/os-snapshots/detail"])
def test_proxies_are_gone_since_2_36(cloud: Compute, path: str) -> None:
    fault(cloud.compute("GET", path, version="2.36"), "itemNotFound", 404)


def test_os_volumes_boot_lists_servers(cloud: Compute) -> None:
    assert cloud.compute("GET", "/os-volumes_boot", version="2.102").json == {"servers": []}
    body = {"server": {"name": "vm", "flavorRef": "nosuch", "imageRef": str(uuid.uuid4()), "networks": "none"}}
    assert "nosuch" in fault(cloud.compute("POST", "/os-volumes_boot", body, version="2.102"), "badRequest", 400)
    fault(cloud.compute("GET", f"/os-volumes_boot/{NOBODY}", version="2.102"), "itemNotFound", 404)
    message = fault(
        cloud.compute("POST", f"/os-volumes_boot/{NOBODY}/action", {}, version="2.102"), "notImplemented", 501
    )
    assert "Use the server actions of /servers." in message
