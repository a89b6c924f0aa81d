"""Volumes of the real Cinder, in a Ceph, with real guests: devstack/test-cinder.sh stacks a cloud for this.

Where the machine is no cloud with VOLUMES=cinder these tests are skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

from tests.integration import scripts
from tests.integration.libvirt.guests import WATCHES
from tests.support.waiting import wait_for

SETTINGS = Path("/etc/nova-lite/devstack.env")
PREFIX = "nova-lite-cinder-"
PATIENCE = 180.0
FLAVOR = "42"
MICROVERSION = "2.95"
CEPH = ("rbd", "--conf", "/etc/nova-lite/ceph/ceph.conf", "ls", "volumes")

pytestmark = [
    pytest.mark.skipif(
        not SETTINGS.exists() or "VOLUMES=cinder" not in SETTINGS.read_text(),
        reason="this machine is not stacked with VOLUMES=cinder (devstack/test-cinder.sh)",
    ),
    pytest.mark.timeout(900),
]


class Cloud:
    """Requests of the user ``demo``, and an admin's view of the results."""

    def __init__(self) -> None:
        user, admin = openstack.connect(cloud="nova-lite-demo"), openstack.connect(cloud="nova-lite")
        self.compute: Any = user.compute
        self.volumes: Any = user.block_storage
        self.admins_compute: Any = admin.compute
        self.admins_volumes: Any = admin.block_storage
        images = {image.name: image.id for image in user.image.images()}
        #: A kernel and a ramdisk; and a disk that boots.
        self.image, self.disk_image = images["nova-lite-guest"], images["nova-lite-guest-disk"]

    def boot(self, name: str, **body: Any) -> Any:
        return self.compute.create_server(
            **{"name": PREFIX + name, "flavor_id": FLAVOR, "networks": "auto", "config_drive": True, **body}
        )

    def active(self, server: Any) -> Any:
        def check() -> Any:
            now = self.compute.get_server(server.id)
            assert now.status != "ERROR", now.fault
            return now if now.status == "ACTIVE" else None

        return wait_for(f"{server.name} to be ACTIVE", check, PATIENCE, 0.5)

    def says(self, server: Any, text: str) -> None:
        wait_for(
            f"{text!r} on the console of {server.name}",
            lambda: text in self.compute.get_server_console_output(server.id)["output"],
            PATIENCE,
            0.5,
        )

    def volume(self, size: int = 1, **more: Any) -> Any:
        volume = self.volumes.create_volume(size=size, name=PREFIX + "data", **more)
        return self.is_(volume, "available")

    def is_(self, volume: Any, status: str) -> Any:
        def check() -> Any:
            now = self.volumes.get_volume(volume.id)
            assert not now.status.startswith("error"), now.status
            return now if now.status == status else None

        return wait_for(f"volume {volume.id} to be {status}", check, PATIENCE, 0.5)

    def attachments(self, server: Any) -> list[dict[str, Any]]:
        answer = self.compute.get(f"/servers/{server.id}/os-volume_attachments", microversion=MICROVERSION)
        found: list[dict[str, Any]] = answer.json()["volumeAttachments"]
        return found

    def of_cinder(self, volume: Any) -> list[Any]:
        """Cinder's own attachments of a volume, whosever."""
        answer = self.admins_volumes.get(
            f"/attachments/detail?all_tenants=1&volume_id={volume.id}", microversion="3.44"
        )
        found: list[Any] = answer.json()["attachments"]
        return found

    def attach(self, server: Any, volume: Any) -> None:
        body = {"volumeAttachment": {"volumeId": volume.id}}
        answer = self.compute.post(f"/servers/{server.id}/os-volume_attachments", json=body, microversion=MICROVERSION)
        assert answer.status_code == 200, answer.text

    def detach(self, server: Any, volume: Any) -> None:
        answer = self.compute.delete(
            f"/servers/{server.id}/os-volume_attachments/{volume.id}", microversion=MICROVERSION
        )
        assert answer.status_code == 202, answer.text
        wait_for("the server without it", lambda: not self.attachments(server), PATIENCE, 0.5)
        self.is_(volume, "available")
        assert self.of_cinder(volume) == []

    def gone(self, server: Any) -> None:
        self.compute.delete_server(server.id, ignore_missing=True)
        wait_for(f"{server.id} to be gone", lambda: self.compute.find_server(server.id) is None, PATIENCE, 0.5)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    for server in cloud.compute.servers(name=PREFIX):
        cloud.gone(server)
    for volume in list(cloud.volumes.volumes()):
        cloud.volumes.delete_volume(volume.id)
    wait_for("no volume left", lambda: not list(cloud.volumes.volumes()), PATIENCE, 0.5)
    assert not subprocess.run(CEPH, capture_output=True, text=True, check=True).stdout.split()


def watching(volume: Any, name: str) -> str:
    return scripts.user_data(WATCHES.replace("SERIAL", volume.id[:20]).replace("NAME", name))


def test_attach_write_extend_detach_and_read_elsewhere(cloud: Cloud) -> None:
    volume = cloud.volume()
    one = cloud.boot("one", image_id=cloud.image, user_data=watching(volume, "one"))
    two = cloud.boot("two", image_id=cloud.image, user_data=watching(volume, "two"))
    cloud.active(one)
    cloud.active(two)
    cloud.says(one, "nova-lite-guest: instance=")
    cloud.attach(one, volume)
    cloud.is_(volume, "in-use")
    cloud.says(one, "volume: nothing, sectors 2097152")
    cloud.says(one, "volume marked")

    [shown] = cloud.attachments(one)
    [theirs] = wait_for("Cinder's attachment to be complete", lambda: _attached(cloud, volume), PATIENCE, 0.5)
    assert (shown["attachment_id"], theirs["instance"]) == (theirs["id"], one.id)
    assert shown["bdm_uuid"] != shown["attachment_id"]
    assert "connection_info" not in json.dumps(shown)

    body = {"volumeAttachment": {"volumeId": volume.id}}
    refused = cloud.compute.post(f"/servers/{two.id}/os-volume_attachments", json=body, microversion=MICROVERSION)
    assert refused.status_code == 400, refused.text
    assert "must be 'available'. Currently in 'in-use'" in refused.text

    extend = {"os-extend": {"new_size": 2}}
    answer = cloud.volumes.post(f"/volumes/{volume.id}/action", json=extend, microversion="3.42")
    assert answer.status_code == 202, answer.text
    cloud.says(one, "volume has 4194304 sectors")

    cloud.detach(one, volume)
    cloud.says(one, "volume released")
    cloud.attach(two, volume)
    cloud.says(two, "volume: marked-by-one, sectors 4194304")
    cloud.compute.reboot_server(two.id, "HARD")
    cloud.says(two, "volume: marked-by-two")
    cloud.active(two)
    cloud.gone(two)
    cloud.is_(volume, "available")
    assert cloud.of_cinder(volume) == []


def _attached(cloud: Cloud, volume: Any) -> list[Any]:
    return [item for item in cloud.of_cinder(volume) if item["status"] == "attached"]


def test_boot_from_a_volume_that_cinder_makes_of_an_image(cloud: Cloud) -> None:
    mapping = {
        "source_type": "image",
        "destination_type": "volume",
        "uuid": cloud.disk_image,
        "volume_size": 1,
        "boot_index": 0,
        "delete_on_termination": False,
    }
    server = cloud.boot("bfv", block_device_mapping=[mapping], user_data=scripts.user_data(scripts.MARKS))
    cloud.active(server)
    cloud.says(server, "on disk: nothing, sectors 2097152")
    cloud.says(server, "mark written")
    [attached] = cloud.attachments(server)
    volume = cloud.is_(cloud.volumes.get_volume(attached["volumeId"]), "in-use")
    assert volume.is_bootable
    cloud.gone(server)
    cloud.is_(volume, "available")

    known = {**mapping, "source_type": "volume", "uuid": volume.id, "delete_on_termination": True}
    known.pop("volume_size")
    again = cloud.boot("again", block_device_mapping=[known], user_data=scripts.user_data(scripts.MARKS))
    cloud.active(again)
    cloud.says(again, "on disk: marked-by-a-guest, sectors 2097152")
    cloud.gone(again)
    wait_for(
        "the volume to be deleted with its server", lambda: cloud.volumes.find_volume(volume.id) is None, PATIENCE, 0.5
    )


def test_a_blank_volume_and_one_of_a_snapshot_go_with_the_server(cloud: Cloud) -> None:
    source = cloud.volume(imageRef=None)
    snapshot = cloud.volumes.create_snapshot(volume_id=source.id, name=PREFIX + "snapshot")
    wait_for("the snapshot", lambda: cloud.volumes.get_snapshot(snapshot.id).status == "available", PATIENCE, 0.5)
    beside = {"destination_type": "volume", "boot_index": -1, "delete_on_termination": True}
    root = {"source_type": "image", "destination_type": "local", "uuid": cloud.image, "boot_index": 0}
    server = cloud.boot(
        "beside",
        image_id=cloud.image,
        block_device_mapping=[
            root,
            {**beside, "source_type": "blank", "volume_size": 1},
            {**beside, "source_type": "snapshot", "uuid": snapshot.id},
        ],
    )
    cloud.active(server)
    made = [
        cloud.is_(cloud.volumes.get_volume(attachment["volumeId"]), "in-use")
        for attachment in cloud.attachments(server)
    ]
    assert sorted(item.snapshot_id or "" for item in made) == ["", snapshot.id]
    cloud.gone(server)
    wait_for(
        "both to be deleted", lambda: [volume.id for volume in cloud.volumes.volumes()] == [source.id], PATIENCE, 0.5
    )
    cloud.volumes.delete_snapshot(snapshot.id)
    wait_for("the snapshot to be gone", lambda: cloud.volumes.find_snapshot(snapshot.id) is None, PATIENCE, 0.5)


def test_a_volume_of_another_project_is_not_there(cloud: Cloud) -> None:
    theirs = cloud.admins_volumes.create_volume(size=1, name=PREFIX + "admins")
    try:
        server = cloud.boot("other", image_id=cloud.image)
        cloud.active(server)
        body = {"volumeAttachment": {"volumeId": theirs.id}}
        refused = cloud.compute.post(f"/servers/{server.id}/os-volume_attachments", json=body)
        assert refused.status_code == 404, refused.text
        assert refused.json()["itemNotFound"]["message"] == f"Volume {theirs.id} could not be found."
        assert cloud.of_cinder(theirs) == []
    finally:
        wait_for(
            "it to be made", lambda: cloud.admins_volumes.get_volume(theirs.id).status == "available", PATIENCE, 0.5
        )
        cloud.admins_volumes.delete_volume(theirs.id)
        wait_for("it to be gone", lambda: cloud.admins_volumes.find_volume(theirs.id) is None, PATIENCE, 0.5)


def test_no_log_has_the_key(cloud: Cloud) -> None:
    key = re.findall(r"key = (\S+)", Path("/etc/nova-lite/ceph/client.cinder.keyring").read_text())[0]
    logs = [path for path in Path("/var/log/nova-lite").glob("*.log") if not path.name.startswith("cinder")]
    assert logs
    assert [path.name for path in logs if key in path.read_text(errors="replace")] == []
