"""Requests about volumes to a running cloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests

from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for


class Volumes:
    """The volume API as one of the users."""

    def __init__(self, cloud: Cloud, user: str = "admin") -> None:
        self.cloud = cloud
        self.token = cloud.token_of(user)

    def __call__(self, method: str, path: str, body: Any = None, version: str = "3.42") -> requests.Response:
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": f"volume {version}"}
        url = f"http://127.0.0.1:{self.cloud.volume_port}/v3{path}"
        return requests.request(method, url, json=body, headers=headers, timeout=30)

    def make(self, **values: Any) -> str:
        answer = self("POST", "/volumes", {"volume": {"name": "v", "size": 1, **values}})
        assert answer.status_code == 202, answer.text
        volume_id = str(answer.json()["volume"]["id"])
        self.wait(volume_id, "available")
        return volume_id

    def show(self, volume_id: str) -> dict[str, Any]:
        answer = self("GET", f"/volumes/{volume_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()["volume"]
        return shown

    def wait(self, volume_id: str, status: str) -> dict[str, Any]:
        """Wait for the status. A request that is refused for overload is repeated."""

        def settled() -> dict[str, Any] | None:
            answer = self("GET", f"/volumes/{volume_id}")
            assert answer.status_code in (200, 503), answer.text
            shown = answer.json().get("volume", {})
            return shown if shown.get("status") == status else None

        found: dict[str, Any] = wait_for(f"volume {volume_id} is {status}", settled)
        return found

    def wait_gone(self, volume_id: str) -> None:
        wait_for("the volume is gone", lambda: self("GET", f"/volumes/{volume_id}").status_code == 404)

    def tidy_up(self) -> None:
        """Delete all servers, snapshots and volumes, and wait until they are gone."""
        self.cloud.delete_all()
        for kind in ("snapshots", "volumes"):
            for item in self("GET", f"/{kind}").json()[kind]:
                self("DELETE", f"/{kind}/{item['id']}")
            wait_for(f"no {kind} are left", lambda kind=kind: not self("GET", f"/{kind}").json()[kind])

    def file(self, volume_id: str) -> Path:
        return self.cloud.path / "shared" / "volumes" / volume_id


def attach(cloud: Cloud, server_id: str, volume_id: str, **values: Any) -> requests.Response:
    body = {"volumeAttachment": {"volumeId": volume_id, **values}}
    return cloud.request("POST", f"/servers/{server_id}/os-volume_attachments", body, version="2.89")


def detach(cloud: Cloud, server_id: str, volume_id: str) -> requests.Response:
    return cloud.request("DELETE", f"/servers/{server_id}/os-volume_attachments/{volume_id}", version="2.89")


def held(cloud: Cloud) -> list[tuple[str, str]]:
    """Return server and volume of each volume that a fake guest has."""
    found = []
    for path in cloud.path.glob("*/instances/fake-*/domains/*.json"):
        domain = json.loads(path.read_text())
        found += [(domain["uuid"], volume_id) for volume_id in domain.get("volumes", {})]
    return found


def migrate(cloud: Cloud, server_id: str) -> None:
    assert cloud.action(server_id, {"migrate": None}).status_code == 202
    wait_for(
        "it has moved",
        lambda: cloud.request("GET", f"/servers/{server_id}").json()["server"]["status"] == "VERIFY_RESIZE",
    )
    assert cloud.action(server_id, {"confirmResize": None}).status_code == 204
    cloud.wait_settled([server_id])
