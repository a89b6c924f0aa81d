"""Lists of servers, volumes and snapshots by Skyline's API server: skyline_flow.py SKYLINE PASSWORD"""

from __future__ import annotations

import sys
from typing import Any

import openstack
import requests

skyline, password = sys.argv[1:]
cloud = openstack.connect(cloud="demo")
image = cloud.image.find_image("nova-lite-guest", ignore_missing=False)
flavor = cloud.compute.find_flavor("m1.nano", ignore_missing=False)
network = cloud.network.find_network("private", ignore_missing=False)
volumes = cloud.block_storage
server = cloud.create_server("sky", image.id, flavor.id, network=network.id, wait=True)
made = [volumes.create_volume(size=1, name=f"sky-{number}") for number in range(2)]
for volume in made:
    volumes.wait_for_status(volume, "available")
snapshot = volumes.create_snapshot(volume_id=made[0].id, name="sky")
volumes.wait_for_status(snapshot, "available")


def listed(path: str, key: str) -> list[dict[str, Any]]:
    response = session.get(f"{skyline}/api/v1/{path}", timeout=60)
    assert response.status_code == 200, f"{path}: {response.status_code} {response.text}"
    found: list[dict[str, Any]] = response.json()[key]
    counts[path] = response.json().get("count")
    print(path, len(found))
    return found


def log_in(user: str) -> requests.Session:
    made = requests.Session()
    body = {"region": "RegionOne", "domain": "default", "username": user, "password": password}
    response = made.post(f"{skyline}/api/v1/login", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return made


counts: dict[str, Any] = {}
session = log_in("demo")
(found,) = listed("extension/servers?name=sky", "servers")
assert (found["id"], found["name"], found["status"]) == (server.id, "sky", "ACTIVE")
assert {item["id"] for item in listed("extension/volumes", "volumes")} == {volume.id for volume in made}
assert len(listed("extension/volumes?limit=1", "volumes")) == 1 and counts["extension/volumes?limit=1"] == 2
(shown,) = listed("extension/volume_snapshots", "volume_snapshots")
assert (shown["id"], shown["volume_name"]) == (snapshot.id, "sky-0")
assert {item["device_id"] for item in listed("extension/ports", "ports")} >= {server.id}
session = log_in("admin")
assert server.id in {item["id"] for item in listed("extension/servers?all_projects=true", "servers")}
assert "nova-compute" in {item["binary"] for item in listed("extension/compute-services", "services")}
volumes.delete_snapshot(snapshot)
volumes.wait_for_delete(snapshot)
for volume in made:
    volumes.delete_volume(volume)
cloud.delete_server(server.id, wait=True)
