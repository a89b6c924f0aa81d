"""A volume that several servers have, through all daemons, with fake hypervisors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.volume_requests import Volumes, attach, detach, held, migrate
from tests.support.waiting import wait_for

SHARED = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("multiattach"), computes=2, standalone=True) as running:
        assert Volumes(running)("POST", "/types", {"volume_type": SHARED}).status_code == 200
        yield running


@pytest.fixture
def volumes(cloud: Cloud) -> Iterator[Volumes]:
    made = Volumes(cloud)
    yield made
    made.tidy_up()
    cloud.audit()


def servers_of(volumes: Volumes, volume_id: str) -> set[str]:
    return {item["server_id"] for item in volumes.show(volume_id)["attachments"]}


def shared_with(cloud: Cloud, volumes: Volumes, count: int) -> tuple[str, list[str]]:
    """Return a volume and the servers that have it."""
    volume_id, servers = volumes.make(volume_type="shared"), cloud.create(count=count)
    cloud.wait_active(servers)
    for server in servers:
        assert attach(cloud, server, volume_id).status_code == 200
        volumes.wait(volume_id, "in-use")
    assert servers_of(volumes, volume_id) == set(servers)
    return volume_id, servers


def test_volume_of_two_servers_is_extended_and_outlives_them(cloud: Cloud, volumes: Volumes) -> None:
    volume_id, (one, two) = shared_with(cloud, volumes, 2)
    assert sorted(held(cloud)) == sorted([(one, volume_id), (two, volume_id)])
    assert volumes("POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": 2}}).status_code == 202
    assert volumes.wait(volume_id, "in-use")["size"] == 2
    seen = f"volume {volume_id} has {2 * 1024**3} bytes"
    consoles = [path.read_text() for path in cloud.path.glob("*/instances/fake-*/disks/*/console.log")]
    assert sum(seen in text for text in consoles) == 2

    refused = volumes("POST", "/snapshots", {"snapshot": {"volume_id": volume_id, "force": True}})
    assert (refused.status_code, "Detach it from all but one" in refused.text) == (400, True)
    assert volumes("DELETE", f"/volumes/{volume_id}").status_code == 400
    migrate(cloud, two)
    assert sorted(held(cloud)) == sorted([(one, volume_id), (two, volume_id)])
    cloud.request("DELETE", f"/servers/{one}")
    wait_for("one server is left", lambda: servers_of(volumes, volume_id) == {two})
    assert volumes.show(volume_id)["status"] == "in-use"
    shot = volumes("POST", "/snapshots", {"snapshot": {"volume_id": volume_id, "force": True}}).json()["snapshot"]
    path = f"/snapshots/{shot['id']}"
    wait_for("it is made", lambda: volumes("GET", path).json()["snapshot"]["status"] != "creating")
    assert volumes("DELETE", path).status_code == 202
    assert detach(cloud, two, volume_id).status_code == 202
    volumes.wait(volume_id, "available")
    assert held(cloud) == []
    wait_for("no snapshots are left", lambda: not volumes("GET", "/snapshots").json()["snapshots"])


def test_evacuated_server_takes_its_shared_volume_along(cloud: Cloud, volumes: Volumes) -> None:
    """The lost host loses it when it comes back, and the other server keeps it all the time."""
    volume_id, (one, two) = shared_with(cloud, volumes, 2)
    lost = str(cloud.wait_active([one])[one]["OS-EXT-SRV-ATTR:host"])
    moved = [server for server, host in cloud.domains().items() if host == lost]
    cloud.kill(lost)
    assert cloud.force_down(lost).status_code == 200
    cloud.fenced.add(lost)
    for server in moved:
        assert cloud.evacuate(server).status_code == 200
    cloud.wait_active([one, two])
    assert servers_of(volumes, volume_id) == {one, two}
    assert volumes.show(volume_id)["status"] == "in-use"
    assert cloud.force_down(lost, False).status_code == 200
    cloud.start(lost)
    wait_for("each server has it once", lambda: sorted(held(cloud)) == sorted([(one, volume_id), (two, volume_id)]))
    cloud.fenced.clear()
    assert lost not in cloud.domains().values()
    cloud.wait_until_ready()


def test_shared_volume_is_refused_before_its_microversion(cloud: Cloud, volumes: Volumes) -> None:
    volume_id, (server,) = volumes.make(volume_type="shared"), cloud.create()
    cloud.wait_active([server])
    path, body = f"/servers/{server}/os-volume_attachments", {"volumeAttachment": {"volumeId": volume_id}}
    refused = cloud.request("POST", path, body, version="2.59")
    assert (refused.status_code, refused.json()["badRequest"]["message"]) == (
        400,
        "Multiattach volumes are only supported starting with compute API version 2.60.",
    )
    assert cloud.request("POST", path, body, version="2.60").status_code == 200
    volumes.wait(volume_id, "in-use")
    device = {"uuid": volume_id, "source_type": "volume", "destination_type": "volume"}
    image = {"uuid": cloud.image_id, "source_type": "image", "destination_type": "local", "boot_index": 0}
    wanted = {"name": "vm", "imageRef": cloud.image_id, "flavorRef": "1", "networks": "none"}
    wanted["block_device_mapping_v2"] = [image, device]
    for version, status in (("2.59", 400), ("2.60", 202)):
        answer = cloud.request("POST", "/servers", {"server": wanted}, version=version)
        assert answer.status_code == status, answer.text
    booted = answer.json()["server"]["id"]
    cloud.wait_active([booted])
    assert servers_of(volumes, volume_id) == {server, booted}
