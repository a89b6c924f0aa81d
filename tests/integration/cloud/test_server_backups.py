"""A server that boots from a volume, and its data volume, come back from a backup in a real repository.

The repository is made as the page says. With ``NOVA_LITE_LONG=1`` alone, because it takes minutes and restarts the
conductor.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import scripts
from tests.integration.cloud.conftest import PATIENCE, STATE, StackedCloud, run
from tests.support import pages
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(not os.environ.get("NOVA_LITE_LONG"), reason="takes minutes; NOVA_LITE_LONG=1")

PAGE = "howto/back-up-servers.md"
CONFIGURATION = Path("/etc/nova-lite/conductor.conf")
#: Directory of the page.
REPOSITORY = Path("/srv/server-backups")
BOOT = {"source_type": "image", "destination_type": "volume", "volume_size": 1, "boot_index": 0}
DATA = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}
MARK = 1024 * 512


def options() -> str:
    """Return the options that the page says."""
    text = (pages.PAGES / PAGE).read_text(encoding="utf-8")
    return next(block for block in re.findall(r"```ini\n(.*?)```", text, re.DOTALL) if "engine = restic" in block)


@pytest.fixture
def backed_up(cloud: StackedCloud) -> Iterator[StackedCloud]:
    """Provide the cloud with a repository of backups."""
    before = CONFIGURATION.read_text()
    assert not REPOSITORY.exists()
    (commands,) = pages.blocks(PAGE, "Images or increments")
    subprocess.run(["bash", "-ec", "\n".join(commands)], check=True, timeout=600)
    try:
        CONFIGURATION.write_text(f"{before}\n{options()}")
        cloud.service("restart", "conductor")
        yield cloud
        for volume in json.loads(run("openstack", "--os-cloud", "nova-lite", "volume", "list", "-f", "json")):
            cloud.sweep()
            run("openstack", "--os-cloud", "nova-lite", "volume", "delete", volume["ID"])
    finally:
        CONFIGURATION.write_text(before)
        cloud.service("restart", "conductor")
        shutil.rmtree(REPOSITORY)


class Backups:
    def __init__(self, cloud: StackedCloud) -> None:
        self.cloud = cloud

    def send(self, method: str, path: str, body: Any = None) -> Any:
        response = getattr(self.cloud.compute, method)(path, json=body)
        assert response.ok, response.text
        return response.json() if response.content else None

    def until(self, backup_id: str, key: str, value: str) -> Any:
        def reached() -> Any:
            shown = self.send("get", f"/os-server-backups/{backup_id}")["server_backup"]
            assert "failed" not in (shown["status"], shown["restore_status"]), shown
            return shown if shown[key] == value else None

        return wait_for(f"{key} of the backup is {value}", reached, PATIENCE, 0.5)

    def make(self, server_id: str) -> Any:
        """Make a backup by a policy of its own, and images of its disks. Return it."""
        policy = {"name": "p", "schedule": {"every": "day"}, "retention": {"daily": 1}}
        body = {"backup_policy": {**policy, "targets": {"servers": [server_id]}}}
        policy_id = self.send("post", "/os-backup-policies", body)["backup_policy"]["id"]
        (planned,) = self.send("post", f"/os-backup-policies/{policy_id}/run")["server_backups"]
        self.until(planned["id"], "status", "complete")
        self.send("post", f"/os-server-backups/{planned['id']}/image", {"image": {}})
        self.send("delete", f"/os-backup-policies/{policy_id}")
        return self.until(planned["id"], "restore_status", "ready")


def said(cloud: StackedCloud, server_id: str, text: str, times: int = 1) -> None:
    def has_said() -> bool:
        output = cloud.compute.get_server_console_output(server_id)["output"]
        return bool(output.count(text) >= times)

    wait_for(f"the guest says {text}", has_said, PATIENCE, 0.5)


def volumes_of(cloud: StackedCloud, server_id: str) -> list[Path]:
    """Return the files of a server's volumes, that of the root disk first."""
    attached = cloud.compute.get(f"/servers/{server_id}/os-volume_attachments").json()["volumeAttachments"]
    return [STATE / "volumes" / item["volumeId"] for item in sorted(attached, key=lambda item: str(item["device"]))]


def test_server_that_boots_from_a_volume_comes_back_with_its_data(backed_up: StackedCloud, tmp_path: Path) -> None:
    cloud, backups = backed_up, Backups(backed_up)
    root = {**BOOT, "uuid": cloud.image("nova-lite-guest-disk")}
    server = cloud.compute.create_server(
        name="nova-lite-it-volumes",
        flavor_id="42",
        networks="auto",
        config_drive=True,
        user_data=scripts.user_data(scripts.MARKS),
        block_device_mapping=[root, DATA],
    )
    cloud.wait_status(server.id, "ACTIVE")
    said(cloud, server.id, "on disk: nothing")
    said(cloud, server.id, "mark written")
    root_file, data_file = volumes_of(cloud, server.id)
    with data_file.open("r+b") as file:
        file.write(os.urandom(3_000_000))
    kept = tmp_path / "data"
    subprocess.run(["cp", "--sparse=always", data_file, kept], check=True)

    backup = backups.make(server.id)
    assert [disk["volume_id"] for disk in backup["disks"]] == [root_file.name, data_file.name]
    cloud.compute.stop_server(server.id)
    cloud.wait_status(server.id, "SHUTOFF")
    with root_file.open("r+b") as file:
        file.seek(MARK)
        file.write(bytes(512))
    with data_file.open("r+b") as file:
        file.write(bytes(512))

    backups.send("post", f"/os-server-backups/{backup['id']}/restore", {"restore": {}})
    cloud.wait_status(server.id, "SHUTOFF")
    cloud.compute.start_server(server.id)
    cloud.wait_status(server.id, "ACTIVE")
    said(cloud, server.id, "on disk: marked-by-a-guest")

    body = {"server": {"name": "nova-lite-it-copy"}}
    copy_id = backups.send("post", f"/os-server-backups/{backup['id']}/servers", body)["server"]["id"]
    cloud.wait_status(copy_id, "ACTIVE")
    new_root, new_data = volumes_of(cloud, copy_id)
    assert {new_root, new_data}.isdisjoint({root_file, data_file})
    assert filecmp.cmp(new_data, kept, shallow=False)
    backups.send("delete", f"/os-server-backups/{backup['id']}")
