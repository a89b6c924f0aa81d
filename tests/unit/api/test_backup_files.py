"""``/os-server-backups/{id}/partitions``, ``/files`` and ``/download``."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.image import store
from nova_lite.objects import Image
from tests.support import disk_images, make
from tests.support.api_client import STRANGER, Client, fault
from tests.support.backups import set_backup

BACKUPS = "/os-server-backups"
IMAGE = "0f3d2c9e-32c1-4f0c-a6a9-3a1f3a1f0001"
VOLUME = "0f3d2c9e-32c1-4f0c-a6a9-3a1f3a1f0002"


@pytest.fixture
def backup(api: Client, conf: cfg.ConfigOpts, tmp_path: Path) -> str:
    """Return the path of a complete backup that is an image with an ext4 file system in partition 1."""
    api.conductor.db.write(lambda uow: make.instance(uow, project_id="demo", launched_at=uow.now))
    wanted = {"name": "p", "schedule": {"every": "hour"}, "retention": {"hourly": 1}, "targets": {"all": True}}
    policy = api.json("POST", "/os-backup-policies", {"backup_policy": wanted}, status=201)["backup_policy"]["id"]
    (planned,) = api.json("POST", f"/os-backup-policies/{policy}/run", status=202)["server_backups"]
    (tmp_path / "tree/etc").mkdir(parents=True)
    (tmp_path / "tree/etc/hostname").write_text("guest\n")
    conf.set_override("store_path", str(tmp_path / "images"), "image")
    directory = store.prepare_below(conf.image.store_path)
    disk = disk_images.with_gpt(disk_images.make_ext(tmp_path / "tree", tmp_path / "made").read_bytes())
    Path(store.file_path(directory, IMAGE)).write_bytes(disk)
    api.conductor.images[IMAGE] = Image(id=IMAGE, name="b", status="active", disk_format="raw")
    set_backup(api.conductor.db, planned["id"], status="complete", image_id=IMAGE)
    return f"{BACKUPS}/{planned['id']}"


def test_file_of_a_backup_is_found_and_downloaded(api: Client, backup: str) -> None:
    (partition,) = api.json("GET", f"{backup}/partitions")["partitions"]
    assert (partition["number"], partition["file_system"], partition["readable"]) == (1, "ext", True)
    listed = api.json("GET", f"{backup}/files?partition=1&path=/etc")
    assert ([file["name"] for file in listed["files"]], listed["truncated"]) == (["hostname"], False)
    response = api("GET", f"{backup}/download?partition=1&path=/etc/hostname")
    assert (response.status_code, response.body, response.content_length) == (200, b"guest\n", 6)
    assert response.content_type == "application/octet-stream"
    response = api("GET", f"{backup}/download?partition=1&path=/etc")
    assert (response.content_type, response.content_length) == ("application/x-tar", None)
    assert b"etc/hostname" in response.body


def test_request_without_a_file_of_the_callers_backup_is_refused(api: Client, backup: str) -> None:
    assert "no such file" in fault(api("GET", f"{backup}/files?partition=1&path=/none"), "itemNotFound", 404)
    assert "no partition 9" in fault(api("GET", f"{backup}/files?partition=9"), "itemNotFound", 404)
    message = fault(api("GET", f"{backup}/download?partition=1&path=/etc/hostname/x"), "conflictingRequest", 409)
    assert "is a file, not a directory" in message
    assert "no volume" in fault(api("GET", f"{backup}/partitions?volume_id={VOLUME}"), "itemNotFound", 404)
    for query in ("partition=x", "path=" + "a" * 4097, "colour=red"):
        fault(api("GET", f"{backup}/files?{query}"), "badRequest", 400)
    for part in ("partitions", "files", "download"):
        fault(api("GET", f"{backup}/{part}", token=STRANGER), "itemNotFound", 404)


def test_backup_without_an_image_says_what_to_do(api: Client, backup: str) -> None:
    backup_id = backup.rpartition("/")[2]
    del api.conductor.images[IMAGE]
    assert f"/os-server-backups/{backup_id}/image" in fault(api("GET", f"{backup}/files"), "conflictingRequest", 409)
    set_backup(api.conductor.db, backup_id, engine="restic")
    assert "Make an image of it first" in fault(api("GET", f"{backup}/files"), "conflictingRequest", 409)
    set_backup(api.conductor.db, backup_id, status="storing")
    assert "storing" in fault(api("GET", f"{backup}/files"), "conflictingRequest", 409)
