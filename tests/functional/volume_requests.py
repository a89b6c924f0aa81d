"""Attaches and detaches of volumes in a running cloud."""

from __future__ import annotations

import json
from typing import Any

import requests

from tests.functional.cloud import Cloud


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
