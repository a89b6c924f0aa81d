"""Conversion of the block device mappings of ``POST /servers``, in both forms, to `BlockDevice`."""

from __future__ import annotations

import re
import uuid
from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http import validation
from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice
from nova_lite.objects.block_device import PREFIXES, DeviceSource

#: Maximum length of the name of a device.
MAX_NAME = 255
#: Maximum number of local disks of a server.
MAX_LOCAL = 3

#: File systems of ephemeral disks. The cloud chooses the one for "default".
_FORMATS = ("ext2", "ext3", "ext4", "default", "swap")

_ID_OF = {DeviceSource.VOLUME: "volume_id", DeviceSource.IMAGE: "image_id", DeviceSource.SNAPSHOT: "snapshot_id"}

_ROOT_NAMES = ("vda", "/dev/vda")

_LOCAL, _VOLUME = "local", "volume"


def of_server(server: dict[str, Any]) -> tuple[str, list[BlockDevice]]:
    """Return the image of the local root disk, and the other devices. Raises a 400.

    The image is "" if the root disk is a volume, even if ``imageRef`` names one.
    """
    image: str = server.get("imageRef", "")
    legacy, current = server.get("block_device_mapping", []), server.get("block_device_mapping_v2", [])
    if legacy and current:
        raise exceptions.ValidationError(
            detail="Using different block_device_mapping syntaxes is not allowed in the same request."
        )
    translated = [_translated(item) for item in legacy]
    devices = [_device(item) for item in [*translated, *current] if not _is_nothing(item)]
    roots = [device for device in devices if device.is_root]
    local_root = next((device for device in roots if not device.is_volume), None)
    if local_root is not None:
        if image and image != local_root.image_id:
            raise exceptions.InvalidBDM(reason="its image differs from imageRef.")
        image = local_root.image_id or ""
        devices.remove(local_root)
    has_local_root = local_root is not None or not roots
    _check_boot_sequence(devices, root_known=bool(image) and has_local_root)
    if not image and not roots:
        raise exceptions.ValidationError(detail="Missing imageRef attribute")
    if sum(not device.is_volume for device in devices) + (local_root is not None) > MAX_LOCAL:
        raise exceptions.InvalidBDM(reason="You specified more local devices than the limit allows")
    if sum(device.is_swap for device in devices) > 1:
        raise exceptions.InvalidBDM(reason="More than one swap drive requested.")
    ids = [device.volume_id for device in devices if device.volume_id is not None]
    if len(ids) != len(set(ids)):
        raise exceptions.InvalidBDM(reason="one volume is named more than once.")
    return image if has_local_root else "", devices


def _check_boot_sequence(devices: list[BlockDevice], root_known: bool) -> None:
    """Check that the boot indexes are 0, 1, 2 and so on. The index 0 is taken if the root disk is known."""
    indexes = sorted(device.boot_index for device in devices if device.boot_index is not None)
    first = 1 if root_known else 0
    if indexes != list(range(first, first + len(indexes))):
        raise exceptions.InvalidBDM(
            reason="Boot sequence for the instance and image/block device mapping combination is not valid."
        )


def _is_nothing(item: dict[str, Any]) -> bool:
    return strutils.bool_from_string(item.get("no_device") or False)


def _translated(item: dict[str, Any]) -> dict[str, Any]:
    """Translate a mapping of the legacy (EC2) form to the current form."""
    known = {"device_name", "virtual_name", "volume_id", "snapshot_id", "volume_size", "delete_on_termination"}
    if not isinstance(item, dict) or item.keys() - known - {"no_device", "connection_info"}:
        raise exceptions.InvalidBDM(reason="Unrecognized legacy format.")
    name, virtual = item.get("device_name"), str(item.get("virtual_name") or "")
    common: dict[str, Any] = {
        key: item[key] for key in ("volume_size", "delete_on_termination", "no_device") if key in item
    }
    if name is not None and not _is_device_name(name):
        raise exceptions.InvalidBDM(reason=f"device_name {str(name)[:64]!r} is no name of a disk, such as /dev/vdb.")
    index = {"boot_index": 0} if name in _ROOT_NAMES else {}
    if virtual == "swap" or virtual.startswith("ephemeral"):
        kind = {"guest_format": "swap"} if virtual == "swap" else {}
        return {"source_type": "blank", "destination_type": _LOCAL, **common, **kind}
    if item.get("volume_id") is not None:
        return {"source_type": "volume", "destination_type": _VOLUME, "uuid": item["volume_id"], **common, **index}
    if item.get("snapshot_id") is not None:
        return {"source_type": "snapshot", "destination_type": _VOLUME, "uuid": item["snapshot_id"], **common, **index}
    if _is_nothing(item):
        return dict(item)
    raise exceptions.InvalidBDM(reason="Unrecognized legacy format.")


def _is_device_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and re.fullmatch(t.DEVICE_PATTERN, name) is not None


def _device(item: dict[str, Any]) -> BlockDevice:
    source = DeviceSource(item.get("source_type") or _source_of(item))
    destination = item.get("destination_type") or (
        _LOCAL if source in (DeviceSource.IMAGE, DeviceSource.BLANK) else _VOLUME
    )
    source_id = _id(item, source)
    index = _number(item, "boot_index")
    index = None if index is None or index < 0 else index
    _check_combination(source, destination, index)
    _check_guest(item, destination, source)
    size = _number(item, "volume_size")
    if destination == _VOLUME and not size:
        if source == DeviceSource.IMAGE:
            raise exceptions.InvalidBDM(
                reason="Images with destination_type 'volume' need to have a non-zero size specified"
            )
        if source == DeviceSource.BLANK:
            raise exceptions.InvalidBDM(
                reason="Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size"
            )
    default = destination == _LOCAL
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type=source,
        destination_type=destination,
        boot_index=index,
        device_type=item.get("device_type"),
        disk_bus=item.get("disk_bus"),
        guest_format=item.get("guest_format"),
        volume_size=size,
        volume_id=source_id if source == DeviceSource.VOLUME else None,
        image_id=source_id if source == DeviceSource.IMAGE else None,
        snapshot_id=source_id if source == DeviceSource.SNAPSHOT else None,
        volume_type=item.get("volume_type"),
        delete_on_termination=strutils.bool_from_string(item.get("delete_on_termination", default)),
        tag=item.get("tag"),
    )


def _source_of(item: dict[str, Any]) -> str:
    return next((str(source) for source, key in _ID_OF.items() if item.get(key)), str(DeviceSource.BLANK))


def _id(item: dict[str, Any], source: DeviceSource) -> str | None:
    source_id = item.get("uuid") or item.get(_ID_OF.get(source, "")) or None
    if source == DeviceSource.BLANK:
        if source_id:
            raise exceptions.InvalidBDM(reason="Invalid device UUID.")
        return None
    if not source_id:
        raise exceptions.InvalidBDM(reason="Missing device UUID.")
    if not validation.is_uuid(source_id):
        raise exceptions.InvalidBDM(reason=f"failed to get {source} {str(source_id)[:64]}.")
    return str(source_id)


def _check_combination(source: DeviceSource, destination: str, index: int | None) -> None:
    if destination == _LOCAL and source == DeviceSource.IMAGE and index != 0:
        raise exceptions.InvalidBDM(reason="Mapping image to local is not supported.")
    if destination == _LOCAL and source in (DeviceSource.VOLUME, DeviceSource.SNAPSHOT):
        raise exceptions.InvalidBDM(reason=f"a {source} cannot be a local disk.")
    if destination == _LOCAL and source == DeviceSource.BLANK and index is not None:
        raise exceptions.InvalidBDM(reason="a blank local disk cannot be booted from.")


def _check_guest(item: dict[str, Any], destination: str, source: DeviceSource) -> None:
    bus, kind, form = item.get("disk_bus"), item.get("device_type"), item.get("guest_format")
    if bus is not None and (bus not in PREFIXES or (destination == _LOCAL and bus != "virtio")):
        buses = "virtio" if destination == _LOCAL else ", ".join(PREFIXES)
        raise exceptions.InvalidBDM(reason=f"disk_bus {bus[:64]} is not supported here, only {buses}.")
    if kind not in (None, "disk"):
        raise exceptions.InvalidBDM(reason=f"device_type {kind[:64]} is not supported, only disk.")
    if form is not None and destination == _LOCAL and source == DeviceSource.BLANK and form not in _FORMATS:
        raise exceptions.InvalidBDM(reason=f"guest_format {form[:64]} is not supported, only {', '.join(_FORMATS)}.")


def _number(item: dict[str, Any], name: str) -> int | None:
    value = item.get(name)
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise exceptions.InvalidBDM(reason=f"Invalid {name}.") from None
