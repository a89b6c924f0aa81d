"""Volumes through all daemons, with fake hypervisors: the volume API, servers that have them, and the real client."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import master_keys
from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.standalone_client import Client
from tests.functional.volume_requests import Volumes, attach, detach, held, migrate
from tests.support.waiting import wait_for

LATEST = "2.104"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("volumes"), computes=2, standalone=True) as running:
        yield running


@pytest.fixture
def volumes(cloud: Cloud) -> Iterator[Volumes]:
    """Provide a cloud without servers and volumes, before and after."""
    made = Volumes(cloud)
    yield made
    made.tidy_up()
    store = cloud.path / "shared" / "volumes"
    left = [path.name for directory in (store, store / "luks") for path in directory.glob("*") if path.is_file()]
    assert left == []
    cloud.audit()


def beginning(file: Path, count: int) -> bytes:
    """Return the first bytes of a file; the rest is gigabytes of zeros."""
    with file.open("rb") as opened:
        return opened.read(count)


def test_a_volumes_life(volumes: Volumes) -> None:
    volume_id = volumes.make(size=2, metadata={"a": "b"})
    assert volumes.file(volume_id).stat().st_size == 2 * 1024**3
    answer = volumes("POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": 3}})
    assert answer.status_code == 202, answer.text
    assert volumes.wait(volume_id, "available")["size"] == 3
    assert volumes.file(volume_id).stat().st_size == 3 * 1024**3

    volumes.file(volume_id).write_bytes(b"before")
    made = volumes("POST", "/snapshots", {"snapshot": {"volume_id": volume_id, "name": "s"}})
    snapshot_id = made.json()["snapshot"]["id"]
    wait_for(
        "the snapshot is there",
        lambda: volumes("GET", f"/snapshots/{snapshot_id}").json()["snapshot"]["status"] == "available",
    )
    volumes.file(volume_id).write_bytes(b"after!")
    refused = volumes("DELETE", f"/volumes/{volume_id}")
    assert (refused.status_code, "have snapshots" in refused.text) == (400, True)

    copy = volumes.make(size=None, snapshot_id=snapshot_id)
    clone = volumes.make(size=4, source_volid=volume_id)
    assert beginning(volumes.file(copy), 6) == b"before"
    assert beginning(volumes.file(clone), 6) == b"after!"
    assert (volumes.show(copy)["size"], volumes.show(clone)["size"]) == (3, 4)
    of_image = volumes.make(imageRef=volumes.cloud.image_id)
    assert beginning(volumes.file(of_image), len(clouds.IMAGE_BYTES)) == clouds.IMAGE_BYTES
    assert volumes.show(of_image)["volume_image_metadata"]["image_id"] == volumes.cloud.image_id


def test_attached_to_one_server_at_a_time(cloud: Cloud, volumes: Volumes) -> None:
    volume_id = volumes.make()
    one, two = cloud.create("one")[0], cloud.create("two")[0]
    cloud.wait_active([one, two])
    answer = attach(cloud, one, volume_id, tag="data", delete_on_termination=False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["volumeAttachment"]["device"] == "/dev/vdc"
    refused = attach(cloud, two, volume_id)
    assert (refused.status_code, "status must be 'available'" in refused.text) == (400, True)
    shown = volumes.wait(volume_id, "in-use")
    assert [item["server_id"] for item in shown["attachments"]] == [one]
    assert held(cloud) == [(one, volume_id)]
    server = cloud.request("GET", f"/servers/{one}", version=LATEST).json()["server"]
    assert server["os-extended-volumes:volumes_attached"] == [{"id": volume_id, "delete_on_termination": False}]
    assert volumes("DELETE", f"/volumes/{volume_id}").status_code == 400
    answer = volumes("POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": 2}})
    assert answer.status_code == 202, answer.text
    assert volumes.wait(volume_id, "in-use")["size"] == 2

    cloud.action(one, {"os-stop": None})
    cloud.wait_settled([one])
    assert detach(cloud, one, volume_id).status_code == 202
    volumes.wait(volume_id, "available")
    assert held(cloud) == []
    assert detach(cloud, one, volume_id).status_code == 404
    assert attach(cloud, two, volume_id, delete_on_termination=True).status_code == 200
    volumes.wait(volume_id, "in-use")
    cloud.request("DELETE", f"/servers/{two}")
    volumes.wait_gone(volume_id)
    assert not volumes.file(volume_id).exists()
    actions = cloud.request("GET", f"/servers/{one}/os-instance-actions").json()["instanceActions"]
    assert {"attach_volume", "detach_volume"} <= {item["action"] for item in actions}


def test_boot_from_volume(cloud: Cloud, volumes: Volumes) -> None:
    """The volume is made from an image and outlives its server. The next server boots from it, with a blank one
    beside.
    """
    mapping = {
        "source_type": "image",
        "destination_type": "volume",
        "uuid": cloud.image_id,
        "boot_index": 0,
        "volume_size": 1,
    }
    first = boot(cloud, "first", mapping)
    (root,) = cloud.request("GET", f"/servers/{first}/os-volume_attachments").json()["volumeAttachments"]
    assert root["device"] == "/dev/vda"
    shown = volumes.show(root["volumeId"])
    assert (shown["status"], shown["bootable"]) == ("in-use", "true")
    server = cloud.request("GET", f"/servers/{first}").json()["server"]
    assert server["image"] == ""
    backup = {"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}}
    for body in ({"rescue": None}, backup):
        refused = cloud.action(first, body)
        assert (refused.status_code, "volume-backed" in refused.text) == (400, True), refused.text
    refused = detach(cloud, first, root["volumeId"])
    assert (refused.status_code, "Cannot detach a root device volume" in refused.text) == (400, True)
    cloud.request("DELETE", f"/servers/{first}")
    volumes.wait(root["volumeId"], "available")

    again = {"source_type": "volume", "destination_type": "volume", "uuid": root["volumeId"], "boot_index": 0}
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "delete_on_termination": True}
    second = boot(cloud, "second", again, blank)
    _, more = cloud.request("GET", f"/servers/{second}/os-volume_attachments").json()["volumeAttachments"]
    assert sorted(held(cloud)) == sorted([(second, root["volumeId"]), (second, more["volumeId"])])
    cloud.request("DELETE", f"/servers/{second}")
    volumes.wait(root["volumeId"], "available")
    volumes.wait_gone(more["volumeId"])


def boot(cloud: Cloud, name: str, *mappings: dict[str, Any]) -> str:
    server = {"name": name, "flavorRef": "1", "networks": "none", "block_device_mapping_v2": mappings}
    answer = cloud.request("POST", "/servers", {"server": server}, version="2.37")
    assert answer.status_code == 202, answer.text
    server_id = str(answer.json()["server"]["id"])
    cloud.wait_active([server_id])
    return server_id


def test_a_migration_takes_volumes_along(cloud: Cloud, volumes: Volumes) -> None:
    volume_id = volumes.make()
    (server_id,) = cloud.create("vm")
    cloud.wait_active([server_id])
    assert attach(cloud, server_id, volume_id).status_code == 200
    volumes.wait(volume_id, "in-use")
    migrate(cloud, server_id)
    assert held(cloud) == [(server_id, volume_id)]
    assert detach(cloud, server_id, volume_id).status_code == 202
    volumes.wait(volume_id, "available")


def test_encrypted_volumes_are_served_with_keys_that_no_file_has(cloud: Cloud, volumes: Volumes) -> None:
    """A server boots from one, gets another, restarts, and moves. Copies of them are encrypted, too."""
    kind = volumes("POST", "/types", {"volume_type": {"name": "secret"}}).json()["volume_type"]["id"]
    encryption = {"encryption": {"provider": "luks", "control_location": "front-end"}}
    assert volumes("POST", f"/types/{kind}/encryption", encryption).status_code == 200
    volume_id = volumes.make(volume_type="secret")
    root = {"source_type": "image", "destination_type": "volume", "uuid": cloud.image_id, "boot_index": 0}
    root |= {"volume_size": 1, "volume_type": "secret", "delete_on_termination": True}
    body = {"server": {"name": "vm", "flavorRef": "1", "networks": "none", "block_device_mapping_v2": [root]}}
    answer = cloud.request("POST", "/servers", body, version="2.67")
    assert answer.status_code == 202, answer.text
    server_id = str(answer.json()["server"]["id"])
    cloud.wait_active([server_id])
    assert attach(cloud, server_id, volume_id).status_code == 200
    volumes.wait(volume_id, "in-use")
    assert len(held(cloud)) == 2
    assert cloud.action(server_id, {"reboot": {"type": "HARD"}}).status_code == 202
    cloud.wait_settled([server_id])
    migrate(cloud, server_id)
    shot = {"snapshot": {"volume_id": volume_id, "force": True}}
    snapshot_id = volumes("POST", "/snapshots", shot).json()["snapshot"]["id"]
    wait_for(
        "the snapshot", lambda: volumes("GET", f"/snapshots/{snapshot_id}").json()["snapshot"]["status"] != "creating"
    )
    copied = volumes.make(snapshot_id=snapshot_id)
    assert volumes.show(copied)["encrypted"] is True
    store = cloud.path / "shared" / "volumes"
    assert [path.name for path in store.iterdir() if path.is_file()] == []
    assert len([path for path in (store / "luks").iterdir() if path.is_file()]) == 3

    with sqlite3.connect(cloud.path / "nova-lite.sqlite") as database:
        wrapped = database.execute("SELECT id, master_key, wrapped FROM volume_keys").fetchall()
    masters = master_keys.read(str(cloud.path / "shared" / "volume-keys"))
    passphrases = [masters.unwrap(*row) for row in wrapped]
    assert len(passphrases) == 3
    for directory, _, names in os.walk(cloud.path):
        for name in names:
            content = beginning(Path(directory, name), 16 * 1024**2)
            assert not any(passphrase in content for passphrase in passphrases), f"{directory}/{name} has a key"
    assert "Traceback" not in cloud.all_logs()


def test_volume_failed_work_ends_in_error(cloud: Cloud, volumes: Volumes) -> None:
    """No volume stays half attached or gets lost."""
    volume_id = volumes.make()
    (server_id,) = cloud.create("vm")
    server = cloud.wait_active([server_id])[server_id]
    host = server["OS-EXT-SRV-ATTR:host"]
    cloud.control_host(host, fail_at=["attach_volume"], fail_count=1)
    assert attach(cloud, server_id, volume_id).status_code == 200
    volumes.wait(volume_id, "available")
    assert held(cloud) == []
    assert attach(cloud, server_id, volume_id).status_code == 200
    volumes.wait(volume_id, "in-use")
    cloud.control_host(host, fail_at=["detach_volume"], fail_count=1)
    assert detach(cloud, server_id, volume_id).status_code == 202
    volumes.wait(volume_id, "in-use")
    cloud.control_host(host)
    assert held(cloud) == [(server_id, volume_id)]
    cloud.wait_settled([server_id])
    assert detach(cloud, server_id, volume_id).status_code == 202
    volumes.wait(volume_id, "available")


def test_other_projects_and_quota(cloud: Cloud, volumes: Volumes) -> None:
    demo, other = Volumes(cloud, "demo"), Volumes(cloud, "other")
    volume_id = demo.make()
    for method, path, body in (
        ("GET", f"/volumes/{volume_id}", None),
        ("DELETE", f"/volumes/{volume_id}", None),
        ("PUT", f"/volumes/{volume_id}", {"volume": {"name": "mine"}}),
        ("POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": 2}}),
        ("POST", "/snapshots", {"snapshot": {"volume_id": volume_id}}),
    ):
        assert other(method, path, body).status_code == 404, (method, path)
    assert other("GET", "/volumes?all_tenants=1").json()["volumes"] == []
    assert other("POST", "/volumes", {"volume": {"source_volid": volume_id, "size": 1}}).status_code == 404
    assert demo("POST", f"/volumes/{volume_id}/action", {"os-reset_status": {"status": "error"}}).status_code == 403
    refused = demo("POST", "/volumes", {"volume": {"size": 2000}})
    assert (refused.status_code, "Quota exceeded for gigabytes" in refused.text) == (413, True)
    used = demo("GET", "/limits").json()["limits"]["absolute"]
    assert (used["totalVolumesUsed"], used["totalGigabytesUsed"]) == (1, 1)
    assert demo("DELETE", f"/volumes/{volume_id}").status_code == 202
    demo.wait_gone(volume_id)


def test_an_image_of_volumes_a_rebuild_and_a_shelf(cloud: Cloud, volumes: Volumes) -> None:
    """Data on the volume is in its image, survives no rebuild, and stays through shelving."""
    mapping = {"source_type": "image", "destination_type": "volume", "uuid": cloud.image_id, "boot_index": 0}
    first = boot(cloud, "first", {**mapping, "volume_size": 1})
    (root,) = cloud.request("GET", f"/servers/{first}/os-volume_attachments").json()["volumeAttachments"]
    file = volumes.file(root["volumeId"])
    with open(file, "r+b") as written:
        written.write(b"by the guest")
    made = cloud.request("POST", f"/servers/{first}/action", {"createImage": {"name": "i"}}, version="2.45")
    assert made.status_code == 202, made.text
    image_id = made.json()["image_id"]
    cloud.wait_settled([first])
    (snapshot,) = volumes("GET", "/snapshots/detail").json()["snapshots"]
    assert (snapshot["name"], snapshot["status"], snapshot["volume_id"]) == (
        "snapshot for i",
        "available",
        root["volumeId"],
    )
    server = {"name": "second", "flavorRef": "1", "networks": "none", "imageRef": image_id}
    answer = cloud.request("POST", "/servers", {"server": server}, version="2.37")
    assert answer.status_code == 202, answer.text
    second = str(answer.json()["server"]["id"])
    cloud.wait_active([second])
    (copy,) = cloud.request("GET", f"/servers/{second}/os-volume_attachments").json()["volumeAttachments"]
    assert beginning(volumes.file(copy["volumeId"]), 12) == b"by the guest"

    assert cloud.action(first, {"shelve": None}).status_code == 202
    cloud.wait_settled([first])
    assert cloud.request("GET", f"/servers/{first}").json()["server"]["status"] == "SHELVED_OFFLOADED"
    assert held(cloud) == [(second, copy["volumeId"])]
    assert cloud.action(first, {"unshelve": None}).status_code == 202
    cloud.wait_active([first])
    assert beginning(file, 12) == b"by the guest"

    body = {"rebuild": {"imageRef": cloud.image_id}}
    assert cloud.request("POST", f"/servers/{first}/action", body, version="2.93").status_code == 202
    cloud.wait_settled([first])
    assert beginning(file, len(clouds.IMAGE_BYTES)) == clouds.IMAGE_BYTES
    assert cloud.request("DELETE", f"/images/{image_id}", version="2.35").status_code == 204


def test_a_volume_in_anothers_place(cloud: Cloud, volumes: Volumes) -> None:
    old, new = volumes.make(), volumes.make(size=2)
    (server_id,) = cloud.create("vm")
    host = cloud.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"]
    assert attach(cloud, server_id, old).status_code == 200
    volumes.wait(old, "in-use")
    forced = volumes("POST", "/snapshots", {"snapshot": {"volume_id": old, "name": "s", "force": True}})
    assert forced.status_code == 202, forced.text
    path, body = f"/servers/{server_id}/os-volume_attachments/{old}", {"volumeAttachment": {"volumeId": new}}
    cloud.control_host(host, fail_at=["swap_volume_copied"], fail_count=1)
    assert cloud.request("PUT", path, body, version="2.89").status_code == 202
    volumes.wait(new, "available")
    cloud.wait_settled([server_id])
    cloud.control_host(host)
    assert held(cloud) == [(server_id, old)]
    assert cloud.request("PUT", path, body, version="2.89").status_code == 202
    volumes.wait(old, "available")
    assert (volumes.wait(new, "in-use")["size"], held(cloud)) == (2, [(server_id, new)])
    listed = cloud.request("GET", "/os-volumes/detail", version="2.35").json()["volumes"]
    assert {entry["id"]: entry["attachments"][0].get("serverId") for entry in listed} == {old: None, new: server_id}
    actions = cloud.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [item["action"] for item in actions].count("swap_volume") == 2


def test_the_real_client(cloud: Cloud, volumes: Volumes) -> None:
    client = Client(cloud, "admin")
    made = client.one("volume create --size 1 --property a=b data")
    volumes.wait(made["id"], "available")
    (row,) = json.loads(client("volume list -f json"))
    assert (row["Name"], row["Status"], row["Size"]) == ("data", "available", 1)
    client("volume set --name disk --size 2 data")
    volumes.wait(made["id"], "available")
    shown = client.one("volume show disk")
    assert (shown["size"], shown["properties"]) == (2, {"a": "b"})
    client("volume set --bootable disk")
    client("volume snapshot create --volume disk copy")
    wait_for("the snapshot is there", lambda: client.one("volume snapshot show copy")["status"] == "available")
    assert [row["Name"] for row in json.loads(client("volume snapshot list -f json"))] == ["copy"]
    assert "local" in [row["Name"] for row in json.loads(client("volume type list -f json"))]
    client("volume snapshot delete copy")

    client(f"server create --flavor 1 --image {cloud.image_id} --network private --wait vm")
    client("server add volume vm disk")
    volumes.wait(made["id"], "in-use")
    assert [row["Volume ID"] for row in json.loads(client("server volume list vm -f json"))] == [made["id"]]
    client("server volume update vm disk --delete-on-termination")
    client("--os-volume-api-version 3.27 volume attachment list")
    client("server remove volume vm disk")
    volumes.wait(made["id"], "available")
    wait_for("the snapshot is gone", lambda: client("volume snapshot list -f value") == "")
    client("volume delete disk")
    volumes.wait_gone(made["id"])
    client(f"server create --flavor 1 --boot-from-volume 1 --image {cloud.image_id} --network private --wait bfv")
    assert "volume" in client("server show bfv -f json")
    client("server delete --wait bfv")
