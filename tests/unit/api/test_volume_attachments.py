"""``os-volume_attachments`` and block device mappings, as they reach the conductor."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.objects import BlockDevice
from nova_lite.objects.block_device import DeviceSource
from tests.support.api_client import ADMIN, STRANGER, Client, fault
from tests.support.control_plane import IMAGE_ID

VOLUME_ID = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER_ID = "aaaaaaaa-0000-4000-8000-000000000002"


def with_volume(api: Client) -> str:
    """Return the path of the attachments of a server with a volume."""
    server_id = api.conductor.add().uuid
    device = BlockDevice(
        uuid="bbbbbbbb-0000-4000-8000-000000000001",
        source_type=DeviceSource.VOLUME,
        destination_type="volume",
        volume_id=VOLUME_ID,
        device_name="/dev/vdc",
        tag="t",
    )
    instance = api.conductor.instances[server_id]
    api.conductor.instances[server_id] = msgspec.structs.replace(instance, block_devices=[device])
    return f"/servers/{server_id}/os-volume_attachments"


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", {"id", "serverId", "volumeId", "device"}),
        ("2.70", {"id", "serverId", "volumeId", "device", "tag"}),
        ("2.79", {"id", "serverId", "volumeId", "device", "tag", "delete_on_termination"}),
        (
            "2.89",
            {"attachment_id", "bdm_uuid", "serverId", "volumeId", "device", "tag", "delete_on_termination"},
        ),
    ],
)
def test_attachment_has_the_keys_of_its_version(api: Client, version: str, keys: set[str]) -> None:
    path = with_volume(api)
    (shown,) = api.json("GET", path, version=version)["volumeAttachments"]
    assert set(shown) == keys
    assert api.json("GET", f"{path}/{VOLUME_ID}", version=version) == {"volumeAttachment": shown}
    assert api("GET", f"{path}/{OTHER_ID}", version=version).status_code == 404
    assert api("GET", path, version=version, token=STRANGER).status_code == 404
    server = api.json("GET", path.rpartition("/")[0], version=version)["server"]
    assert [device["id"] for device in server["os-extended-volumes:volumes_attached"]] == [VOLUME_ID]


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2.1", set()),
        ("2.70", {"tag"}),
        ("2.79", {"tag", "delete_on_termination"}),
        ("2.89", {"tag", "delete_on_termination"}),
        ("2.100", {"tag", "delete_on_termination"}),
    ],
)
def test_attach_response_has_the_volume_as_id_until_2_100(api: Client, version: str, more: set[str]) -> None:
    """Nova's 2.89 changed the responses of lists and reads only. Heat reads the id from that of the attach."""
    path = with_volume(api)
    made = api.json("POST", path, {"volumeAttachment": {"volumeId": VOLUME_ID}}, version=version)["volumeAttachment"]
    assert set(made) == {"id", "serverId", "volumeId", "device", *more}
    assert made["id"] == made["volumeId"] == VOLUME_ID


def test_attach_and_detach_are_accepted(api: Client) -> None:
    path = with_volume(api)
    body = {"volumeAttachment": {"volumeId": VOLUME_ID, "tag": "t", "delete_on_termination": True}}
    api.json("POST", path, body, version="2.79")
    _, kind, payload = api.last_call("accept_action")[-3:]
    assert (kind, payload["volume_id"], payload["tag"]) == ("attach_volume", VOLUME_ID, "t")
    assert payload["delete_on_termination"] is True
    response = api("POST", path, body, version="2.101")
    assert (response.status_code, response.body) == (202, b"")
    assert api("POST", path, body, version="2.78").status_code == 400
    assert api("DELETE", f"{path}/{VOLUME_ID}").status_code == 202
    assert api.last_call("accept_action")[-2:] == ("detach_volume", {"volume_id": VOLUME_ID})


def test_attachment_is_updated(api: Client) -> None:
    path = f"{with_volume(api)}/{VOLUME_ID}"
    body: dict[str, Any] = {"volumeAttachment": {"volumeId": VOLUME_ID, "delete_on_termination": True}}
    assert api("PUT", path, body, version="2.85").status_code == 202
    assert api.last_call("attachment_update")[-2:] == (VOLUME_ID, True)
    assert api("PUT", path, body, version="2.84").status_code == 400
    other = {"volumeAttachment": {"volumeId": VOLUME_ID, "tag": "another"}}
    assert "The tag cannot be changed" in fault(api("PUT", path, other, version="2.85"), "badRequest", 400)


@pytest.mark.parametrize("version", ["2.1", "2.84", "2.85", "2.104"])
def test_volume_swap_is_for_admins(api: Client, version: str) -> None:
    path = f"{with_volume(api)}/{VOLUME_ID}"
    swap = {"volumeAttachment": {"volumeId": OTHER_ID}}
    fault(api("PUT", path, swap, version=version), "forbidden", 403)
    response = api("PUT", path, swap, version=version, token=ADMIN)
    assert (response.status_code, response.body) == (202, b"")
    payload = {"volume_id": VOLUME_ID, "new_volume_id": OTHER_ID}
    assert api.last_call("accept_action")[-2:] == ("swap_volume", payload)


def test_attachment_update_before_2_85_only_swaps(api: Client) -> None:
    path = f"{with_volume(api)}/{VOLUME_ID}"
    same = {"volumeAttachment": {"volumeId": VOLUME_ID}}
    fault(api("PUT", path, same, version="2.84"), "forbidden", 403)
    assert api("PUT", path, same, version="2.85").status_code == 202


def create(api: Client, status: int = 202, image: str | None = IMAGE_ID, **server: Any) -> Any:
    body: dict[str, Any] = {"name": "vm", "flavorRef": "1", **server}
    if image is not None:
        body["imageRef"] = image
    response = api("POST", "/servers", {"server": body})
    assert response.status_code == status, response.text
    return api.last_call("create_instances")[-1] if status == 202 else response.json["badRequest"]["message"]


def test_create_with_local_disks_is_accepted(api: Client) -> None:
    request = create(
        api,
        block_device_mapping_v2=[
            {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": IMAGE_ID},
            {"source_type": "blank", "destination_type": "local", "guest_format": "swap", "volume_size": 64},
            {"source_type": "blank", "destination_type": "local", "guest_format": "ext3", "boot_index": -1},
        ],
    )
    assert request.image_ref == IMAGE_ID
    assert [(device.is_swap, device.is_ephemeral, device.volume_size) for device in request.block_devices] == [
        (True, False, 64),
        (False, True, None),
    ]
    assert all(device.delete_on_termination for device in request.block_devices)


def test_create_from_volume_is_accepted(api: Client) -> None:
    root = {"source_type": "volume", "destination_type": "volume", "uuid": VOLUME_ID, "boot_index": "0"}
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "boot_index": None}
    request = create(api, image=None, block_device_mapping_v2=[root, blank])
    assert request.image_ref == ""
    assert [(device.volume_id, device.boot_index) for device in request.block_devices] == [(VOLUME_ID, 0), (None, None)]


def test_boot_volume_takes_precedence_over_image(api: Client) -> None:
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "boot_index": 0}
    request = create(api, block_device_mapping_v2=[blank])
    assert (request.image_ref, [device.is_root for device in request.block_devices]) == ("", [True])


def test_legacy_block_device_mapping_is_translated(api: Client) -> None:
    mapping = [
        {"device_name": "vda", "volume_id": VOLUME_ID, "delete_on_termination": True},
        {"device_name": "vdb", "snapshot_id": OTHER_ID, "volume_size": "3"},
        {"device_name": "vdc", "virtual_name": "swap", "volume_size": 8},
        {"device_name": "vdd", "no_device": True},
    ]
    request = create(api, image=None, block_device_mapping=mapping)
    root, snapshot, swap = request.block_devices
    assert (root.volume_id, root.is_root, root.delete_on_termination) == (VOLUME_ID, True, True)
    assert (snapshot.snapshot_id, snapshot.volume_size, snapshot.boot_index) == (OTHER_ID, 3, None)
    assert swap.is_swap


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            {"block_device_mapping": [{"volume_id": VOLUME_ID}], "block_device_mapping_v2": [{"boot_index": 0}]},
            "Using different block_device_mapping syntaxes",
        ),
        (
            {
                "block_device_mapping_v2": [
                    {"source_type": "blank", "destination_type": "local", "guest_format": "swap"} for _ in range(2)
                ]
            },
            "More than one swap drive requested.",
        ),
        (
            {"block_device_mapping_v2": [{"source_type": "blank", "destination_type": "local"} for _ in range(4)]},
            "You specified more local devices than the limit allows",
        ),
        (
            {
                "block_device_mapping_v2": [
                    {"source_type": "volume", "destination_type": "volume", "uuid": VOLUME_ID} for _ in range(2)
                ]
            },
            "one volume is named more than once",
        ),
        ({"block_device_mapping": [{"virtual_name": "what"}]}, "Unrecognized legacy format"),
    ],
)
def test_invalid_block_devices_are_refused(api: Client, server: dict[str, Any], said: str) -> None:
    assert said in create(api, status=400, **server)


def test_create_without_boot_device_is_refused(api: Client) -> None:
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 2}
    assert create(api, status=400, image=None, block_device_mapping_v2=[blank]) == "Missing imageRef attribute"
