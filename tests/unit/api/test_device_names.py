"""Names of devices in requests: names of disks in a guest, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_client import Client, fault
from tests.support.control_plane import IMAGE_ID

VOLUME = "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"
GOOD = ("vda", "vdb", "/dev/vdb", "/dev/sda1", "xvdc", "/dev/xvdz", "hda", "/dev/vdaa")
BAD = (
    "",
    " ",
    "vd b",
    "/dev/",
    "/dev/vdb/../vda",
    "../vda",
    "/etc/passwd",
    "/dev/mapper/x",
    "VDA",
    "1",
    "vdb\n",
    "/dev/vdb\n",
    "vdb'",
    '"/><x',
    "/dev/v\u0257b",
    "v" * 256,
    "/dev/" + "v" * 251,
)


def create(api: Client, mapping: str, device: dict[str, Any]) -> Any:
    server = {"name": "vm", "flavorRef": "1", "imageRef": IMAGE_ID, mapping: [device], "networks": "none"}
    return api("POST", "/servers", {"server": server}, version="2.60")


@pytest.mark.parametrize("name", GOOD)
def test_device_name_of_a_disk_is_accepted(api: Client, name: str) -> None:
    new = {"device_name": name, "source_type": "volume", "uuid": VOLUME, "destination_type": "volume", "boot_index": -1}
    old = {"device_name": "vdc" if name in ("vda", "/dev/vda") else name, "volume_id": VOLUME}
    assert create(api, "block_device_mapping_v2", new).status_code == 202
    assert create(api, "block_device_mapping", old).status_code == 202


@pytest.mark.parametrize("name", BAD)
def test_device_name_of_something_else_is_refused(api: Client, name: str) -> None:
    new = {"device_name": name, "source_type": "volume", "uuid": VOLUME, "destination_type": "volume", "boot_index": -1}
    for mapping, device in (
        ("block_device_mapping_v2", new),
        ("block_device_mapping", {"device_name": name, "volume_id": VOLUME}),
    ):
        assert "device_name" in fault(create(api, mapping, device), "badRequest", 400)


@pytest.mark.parametrize("name", [name for name in BAD if name] + ["vdb"])
def test_device_of_an_attachment_that_is_no_path_of_a_disk_is_refused(api: Client, name: str) -> None:
    body = {"volumeAttachment": {"volumeId": VOLUME, "device": name}}
    message = fault(api("POST", "/servers/x/os-volume_attachments", body, version="2.60"), "badRequest", 400)
    assert "Invalid input for field/attribute device" in message
