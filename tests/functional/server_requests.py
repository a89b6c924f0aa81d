"""Requests for servers of a running cloud, and waits for their results."""

from __future__ import annotations

import json
from typing import Any

import requests

from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for

MEMBER = "alice:demo"


def ask(cloud: Cloud, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
    answer = cloud.request(method, path, body, **options)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


LATEST = "2.96"


def migrate(running: Cloud, server_id: str, version: str = LATEST, **body: Any) -> requests.Response:
    wanted = {"os-migrateLive": {"block_migration": "auto", "host": None, **body}}
    return running.request("POST", f"/servers/{server_id}/action", wanted, version=version)


def settled(running: Cloud, server_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        server = running.show(server_id)
        return server if server is not None and server["OS-EXT-STS:task_state"] is None else None

    server: dict[str, Any] = wait_for(f"{server_id} is settled", found)
    return server


def place(running: Cloud, server_id: str) -> tuple[str, str]:
    server = settled(running, server_id)
    return server["status"], server["OS-EXT-SRV-ATTR:host"]


def domain(running: Cloud, host: str, server_id: str) -> dict[str, Any]:
    file = running.path / host / "instances" / f"fake-{host}" / "domains" / f"{server_id}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def attach(running: Cloud, server: str, **wanted: Any) -> Any:
    return running.request("POST", f"/servers/{server}/os-interface", {"interfaceAttachment": wanted}, version="2.70")


def fault(running: Cloud, server: str) -> str:
    """Return why a server is in error, once it is settled."""
    return str(running.wait_settled([server])[server]["fault"]["message"])


def act(running: Cloud, server: str, body: dict[str, Any], status: str) -> None:
    """Send a server action, and wait until the server has the status."""
    ask(running, "POST", f"/servers/{server}/action", body, status=202)
    wait_for(f"{server} is {status}", lambda: settled(running, server)["status"] == status)


def make_flavors(running: Cloud, specs: dict[str, dict[str, str]], **size: int) -> None:
    """Create flavors of 128 MB and 1 GB by the names in ``specs``, with their extra specs."""
    for name, extra_specs in specs.items():
        flavor = {"id": name, "name": name, "ram": 128, "disk": 1, "vcpus": 1, **size}
        ask(running, "POST", "/flavors", {"flavor": flavor})
        ask(running, "POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": extra_specs})
