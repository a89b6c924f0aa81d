"""A server is backed up by a policy and comes back, in a whole cloud in one process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import repository
from tests.support.in_process_cloud import InProcessCloud
from tests.support.quick_restic import quick_restic  # noqa: F401
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic"),
    pytest.mark.usefixtures("quick_restic"),
]


class World:
    """Cloud whose backups are in a repository."""

    def __init__(self, path: Path) -> None:
        password = path / "password"
        password.write_text("secret")
        password.chmod(0o600)
        options = f"[server_backups]\nengine = restic\nrepository = {path}/backups\npassword_file = {password}\n"
        self.cloud = InProcessCloud(path, options)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        response = self.cloud.request(method, path, body)
        assert response.status_code < 300, response.text
        return response.json

    def run_until(self, path: str, key: str, value: str) -> Any:
        def reached() -> Any:
            self.cloud.conductor.scheduled_backups.run()
            self.cloud.conductor.stored_backups.run()
            shown = self.send("GET", path)["server_backup"]
            assert "failed" not in (shown["status"], shown["restore_status"]), shown
            return shown if shown[key] == value else None

        return wait_for(f"{key} is {value}", reached, 30)

    def back_up(self, name: str, server_id: str) -> Any:
        """Make a complete backup of a server by a new policy, since a policy has one at a time, and return it."""
        policy = {"name": name, "schedule": {"every": "day"}, "retention": {"daily": 1}}
        policy |= {"targets": {"servers": [server_id]}}
        policy_id = self.send("POST", "/os-backup-policies", {"backup_policy": policy})["backup_policy"]["id"]
        (planned,) = self.send("POST", f"/os-backup-policies/{policy_id}/run")["server_backups"]
        return self.run_until(f"/os-server-backups/{planned['id']}", "status", "complete")

    def make_images(self, backup: Any) -> Any:
        path = f"/os-server-backups/{backup['id']}"
        self.send("POST", f"{path}/image", {"image": {}})
        return self.run_until(path, "restore_status", "ready")

    def restore(self, backup: Any, place: str, body: Any) -> str:
        """Restore a backup and return the server's id, once it is ACTIVE."""
        restored: str = self.send("POST", f"/os-server-backups/{backup['id']}/{place}", body)["server"]["id"]
        wait_for("the server is back", lambda: self.cloud.settled(restored) == "ACTIVE", 30)
        return restored

    def volumes(self, server_id: str) -> list[Path]:
        """Return the files of a server's volumes, by the names of their devices."""
        attached = self.send("GET", f"/servers/{server_id}/os-volume_attachments")["volumeAttachments"]
        store = Path(self.cloud.conf.volume.store_path)
        return [store / item["volumeId"] for item in sorted(attached, key=lambda item: str(item["device"]))]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.cloud.close()


def test_servers_come_back_from_a_whole_backup_and_an_increment_in_a_repository(world: World) -> None:
    server_id = world.cloud.create()
    backups = [world.back_up(name, server_id) for name in ("first", "second")]
    assert [backup["base_id"] for backup in backups] == [None, backups[0]["id"]]
    for backup, place, body in zip(backups, ("servers", "restore"), ({"server": {}}, {"restore": {}}), strict=True):
        assert world.cloud.request("POST", f"/os-server-backups/{backup['id']}/{place}", body).status_code == 409
        image_id = world.make_images(backup)["image_id"]
        restored = world.restore(backup, place, body)
        assert world.send("GET", f"/servers/{restored}")["server"]["image"]["id"] == image_id
        assert (restored == server_id) is (place == "restore")


def write(path: Path, text: bytes) -> None:
    with path.open("r+b") as file:
        file.write(text)


def start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)


BLANK = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}


def test_volumes_of_a_backup_are_in_the_new_server(world: World) -> None:
    server_id = world.cloud.create(block_device_mapping_v2=[BLANK])
    (volume,) = world.volumes(server_id)
    write(volume, b"before")
    backup = world.back_up("p", server_id)
    assert [(disk["volume_id"], disk["root"]) for disk in backup["disks"]] == [(None, True), (volume.name, False)]
    write(volume, b"after!")
    shown = world.make_images(backup)
    new_id = world.restore(backup, "servers", {"server": {}})
    (copy,) = world.volumes(new_id)
    assert (start_of(copy), start_of(volume), copy != volume) == (b"before", b"after!", True)
    assert world.send("GET", f"/servers/{new_id}")["server"]["image"]["id"] == shown["image_id"]
    assert world.restore(backup, "restore", {"restore": {}}) == server_id
    assert (world.volumes(server_id), start_of(volume)) == ([volume], b"after!"), "in place, other volumes stay"


def test_server_that_boots_from_a_volume_comes_back_in_place_and_as_a_new_one(world: World) -> None:
    """The disk of its flavor is larger than the volume."""
    boot = {"source_type": "image", "uuid": world.cloud.image_id, "destination_type": "volume", "volume_size": 1}
    large = {"id": "large", "name": "large", "vcpus": 1, "ram": 64, "disk": 2}
    world.send("POST", "/flavors", {"flavor": large})
    mapping = [{**boot, "boot_index": 0}, BLANK]
    server_id = world.cloud.create(imageRef="", flavorRef="large", block_device_mapping_v2=mapping)
    root, data = world.volumes(server_id)
    write(root, b"before")
    write(data, b"data 1")
    backup = world.back_up("p", server_id)
    assert [(disk["volume_id"], disk["root"]) for disk in backup["disks"]] == [(root.name, True), (data.name, False)]
    for path in (root, data):
        write(path, b"after!")
    world.make_images(backup)
    assert world.restore(backup, "restore", {"restore": {}}) == server_id
    assert (world.volumes(server_id), start_of(root), start_of(data)) == ([root, data], b"before", b"after!")
    new_root, new_data = world.volumes(world.restore(backup, "servers", {"server": {"name": "copy"}}))
    assert (start_of(new_root), start_of(new_data)) == (b"before", b"data 1")
