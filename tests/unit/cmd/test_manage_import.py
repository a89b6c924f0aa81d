"""``server import``: guests of Proxmox from its API and from backups."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nova_lite.db.image import images
from nova_lite.objects import Image
from tests.support import vma_writer
from tests.support.file_site import FileSite, serving
from tests.support.http_site import make_certificate
from tests.support.manage import Tool

CONFIG = b"""cores: 2
memory: 1024
name: web
net0: virtio=BC:24:11:AA:BB:CC,bridge=vmbr0
scsi0: local-lvm:vm-100-disk-0,size=1G
scsi1: local-lvm:vm-100-disk-1,size=1G
scsihw: virtio-scsi-pci
bios: ovmf
machine: q35
boot: order=scsi1
"""
ROOT, DATA = b"root" * 20_480 + bytes(150_000 * 512), b"data" * 128
DISKS = {"drive-scsi0": DATA, "drive-efidisk0": b"efi." * 128, "drive-scsi1": ROOT}


#: Arguments up to the name of the backup.
IMPORT = ("server", "import", "proxmox", "--project", "shop", "--backup")


@pytest.fixture
def project(tool: Tool) -> str:
    return tool("project", "create", "shop")


@pytest.fixture
def backup(project: str, tmp_path: Path) -> str:
    path = tmp_path / "backup.vma"
    path.write_bytes(vma_writer.archive({"qemu-server.conf": CONFIG}, DISKS))
    return str(path)


def image_of(tool: Tool, image_id: str) -> Image:
    database = tool.database_of()
    found = database.read(images.by_id, image_id)
    database.close()
    assert found is not None
    return found


def test_backup_becomes_images_and_commands(tool: Tool, backup: str, project: str) -> None:
    found = tool.json(*IMPORT, backup, "--network", "lan")
    root, data = found["images"]["scsi1"], found["images"]["scsi0"]
    assert sorted(os.listdir(tool.path / "images")) == sorted([root, data])
    image = image_of(tool, root)
    assert (image.name, image.disk_format, image.min_disk, image.virtual_size) == ("web", "qcow2", 1, len(ROOT))
    assert (image.visibility, image.owner) == ("private", project)
    assert image.properties == {
        "hw_cpu_max_sockets": "1",
        "hw_disk_bus": "scsi",
        "hw_firmware_type": "uefi",
        "hw_machine_type": "q35",
        "hw_scsi_model": "virtio-scsi",
        "hw_vif_model": "virtio",
    }
    assert (image_of(tool, data).name, image_of(tool, data).properties) == ("web-scsi0", {})
    path = tool.path / "images" / root
    assert path.stat().st_size < 10 * vma_writer.CLUSTER
    assert image.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["commands"] == [
        "openstack flavor create --vcpus=2 --ram=1024 --disk=1 web",
        "openstack port create --network=lan --mac-address=bc:24:11:aa:bb:cc web-net0",
        f"openstack server create --flavor=web --image={root} --port=web-net0 --wait web",
        f"openstack volume create --image={data} --size=1 --wait web-scsi0",
        "openstack server add volume web web-scsi0",
    ]


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")
def test_imported_disk_has_the_guests_bytes(tool: Tool, backup: str) -> None:
    found = tool.json(*IMPORT, backup)
    for key, content in (("scsi1", ROOT), ("scsi0", DATA)):
        path, raw = tool.path / "images" / found["images"][key], tool.path / "raw"
        subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw], check=True)
        assert raw.read_bytes() == content


def test_second_import_of_a_backup_changes_nothing(tool: Tool, backup: str) -> None:
    arguments = (*IMPORT, backup)
    assert tool.json(*arguments) == tool.json(*arguments)
    assert len(os.listdir(tool.path / "images")) == len(tool.json("image", "list")) == 2


def test_text_is_a_script_with_notes(tool: Tool, backup: str) -> None:
    lines = tool(*IMPORT, backup).splitlines()
    assert lines[0] == "# the variables of the firmware are new: the guest starts by the default path of its disk"
    assert all(line.startswith("openstack ") for line in lines[1:])


def test_damaged_backup_makes_no_image(tool: Tool, backup: str) -> None:
    Path(backup).write_bytes(Path(backup).read_bytes()[:-1])
    assert "backup.vma is unacceptable: it ends early" in tool.fails(*IMPORT, backup)
    assert os.listdir(tool.path / "images") == tool.json("image", "list") == []


def test_import_without_room_makes_no_image(tool: Tool, backup: str) -> None:
    tool.configure("[image]\nmin_free_mb = 1000000000\n")
    assert "have to stay free" in tool.fails(*IMPORT, backup)
    assert os.listdir(tool.path / "images") == []


def test_backup_without_the_guests_disks_is_refused(tool: Tool, backup: str) -> None:
    Path(backup).write_bytes(vma_writer.archive({"qemu-server.conf": CONFIG}, {"drive-efidisk0": b"efi." * 128}))
    assert "has no disk of the guest" in tool.fails(*IMPORT, backup)


def test_backup_without_a_configuration_is_refused(tool: Tool, backup: str) -> None:
    Path(backup).write_bytes(vma_writer.archive({}, DISKS))
    assert "the guest has no disk" in tool.fails(*IMPORT, backup)


def test_disk_that_the_backup_leaves_out_is_named(tool: Tool, backup: str) -> None:
    Path(backup).write_bytes(vma_writer.archive({"qemu-server.conf": CONFIG}, {"drive-scsi1": ROOT}))
    found = tool.json(*IMPORT, backup)
    assert "scsi0 is not in the backup" in found["notes"]
    assert list(found["images"]) == ["scsi1"]


def test_same_backup_for_another_project_has_images_of_its_own(tool: Tool, backup: str) -> None:
    first = tool.json(*IMPORT, backup)["images"]
    tool("project", "create", "bank")
    other = ("server", "import", "proxmox", "--project", "bank", "--backup", backup)
    second = tool.json(*other)["images"]
    assert {*first.values()}.isdisjoint(second.values())
    assert tool.json(*other)["images"] == second


def test_backup_with_a_wrong_checksum_at_its_end_makes_no_image(tool: Tool, backup: str) -> None:
    data = gzip.compress(Path(backup).read_bytes())
    Path(backup).write_bytes(data[:-8] + bytes(4) + data[-4:])
    assert "gzip finds that it is damaged" in tool.fails(*IMPORT, backup)
    assert os.listdir(tool.path / "images") == tool.json("image", "list") == []


def test_guest_of_the_api_has_commands_for_its_disks(tool: Tool, tmp_path: Path) -> None:
    tls = make_certificate(tmp_path)
    (tmp_path / "token").write_text("root@pam!import=0000-1111\n")
    base = "/api2/json/nodes/pve1"
    config = dict(line.split(": ", 1) for line in CONFIG.decode().splitlines())
    volid = "local:backup/vzdump-qemu-100-2024_01_01-00_00_00.vma.zst"
    responses = {
        "/api2/json/cluster/resources?type=vm": [{"type": "qemu", "vmid": 100, "node": "pve1", "status": "running"}],
        f"{base}/qemu/100/config": config,
        f"{base}/storage?content=backup": [{"storage": "local"}],
        f"{base}/storage/local/content?content=backup&vmid=100": [{"volid": volid, "ctime": 1}],
    }
    with serving(FileSite(tls)) as site:
        site.files = {path: json.dumps({"data": data}).encode() for path, data in responses.items()}
        options = ("--url", site.url, "--token-file", str(tmp_path / "token"), "--ca-file", tls[0])
        found = tool.json("server", "import", "proxmox", "100", *options)
    assert found["images"] == {}
    assert found["notes"][-2:] == ["it is running: shut it down before the last backup", f"newest backup: {volid}"]
    properties = ["hw_cpu_max_sockets=1", "hw_disk_bus=scsi", "hw_firmware_type=uefi", "hw_machine_type=q35",
                  "hw_scsi_model=virtio-scsi", "hw_vif_model=virtio"]  # fmt: skip
    given = " ".join(f"--property={item}" for item in properties)
    assert found["commands"][:2] == [
        f"openstack image create --file=scsi1.qcow2 --disk-format=qcow2 {given} web",
        "openstack image create --file=scsi0.qcow2 --disk-format=qcow2 web-scsi0",
    ]
    assert "openstack server create --flavor=web --image=web --port=web-net0 --wait web" in found["commands"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a guest by --url, or a file by --backup"),
        (("100",), "need each other"),
        (("--url", "https://pve:8006"), "need each other"),
        (("100", "--url", "https://pve:8006"), "need each other"),
        (("--backup", "/nonexistent"), "--backup needs --project"),
        (("--backup", "/nonexistent", "--project", "shop"), "/nonexistent: No such file"),
    ],
)
def test_import_of_nothing_is_refused(tool: Tool, project: str, arguments: tuple[str, ...], message: str) -> None:
    assert message in tool.fails("server", "import", "proxmox", *arguments)


def test_import_with_another_image_backend_is_refused(tool: Tool, backup: str) -> None:
    tool.configure("[image]\nbackend = glance\n")
    assert "import images there" in tool.fails(*IMPORT, backup)
