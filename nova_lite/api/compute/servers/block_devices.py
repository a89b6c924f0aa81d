"""From the block device mappings of ``POST /servers``, of either form, to `BlockDevice`: what a schema cannot say."""

from __future__ import annotations

import uuid
from typing import Any

from oslo_utils import strutils

from nova_lite.api.http import validation
from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice
from nova_lite.objects.block_device import PREFIXES, DeviceSource

#: Disks of one server that are no volumes.
MAX_LOCAL = 3

#: File systems that an ephemeral disk may be made with; "default" is the cloud's choice.
_FORMATS = ("ext2", "ext3", "ext4", "default", "swap")

_ID_OF = {DeviceSource.VOLUME: "volume_id", DeviceSource.IMAGE: "image_id", DeviceSource.SNAPSHOT: "snapshot_id"}

_ROOT_NAMES = ("vda", "/dev/vda")

_LOCAL, _VOLUME = "local", "volume"


def of_server(server: dict[str, Any]) -> tuple[str, list[BlockDevice]]:
    """The image that the root disk is a local copy of ("": it is a volume, whatever image is named beside), and the
    devices beside it. Raises a 400."""
    image: str = server.get("imageRef", "")
    legacy, asked = server.get("block_device_mapping", []), server.get("block_device_mapping_v2", [])
    if legacy and asked:
        raise exceptions.ValidationError(
            detail="Using different block_device_mapping syntaxes is not allowed in the same request."
        )
    translated = [_translated(item) for item in legacy]
    devices = [_device(item) for item in [*translated, *asked] if not _is_nothing(item)]
    roots = [each for each in devices if each.is_root]
    local = next((each for each in roots if not each.is_volume), None)
    if local is not None:
        if image and image != local.image_id:
            raise exceptions.InvalidBDM(reason="its image is not the one that imageRef names.")
        image = local.image_id or ""
        devices.remove(local)
    _check_boot_sequence(devices, root_known=(bool(image) and local is not None) or (bool(image) and not roots))
    if not image and not roots:
        raise exceptions.ValidationError(detail="Missing imageRef attribute")
    if sum(not each.is_volume for each in devices) + (local is not None) > MAX_LOCAL:
        raise exceptions.InvalidBDM(reason="You specified more local devices than the limit allows")
    if sum(each.is_swap for each in devices) > 1:
        raise exceptions.InvalidBDM(reason="More than one swap drive requested.")
    ids = [each.volume_id for each in devices if each.volume_id is not None]
    if len(ids) != len(set(ids)):
        raise exceptions.InvalidBDM(reason="one volume is named more than once.")
    return "" if roots and local is None else image, devices


def _check_boot_sequence(devices: list[BlockDevice], root_known: bool) -> None:
    """0, 1, 2 and so on, each once."""
    indexes = sorted(each.boot_index for each in devices if each.boot_index is not None)
    first = 1 if root_known else 0
    if indexes != list(range(first, first + len(indexes))):
        raise exceptions.InvalidBDM(
            reason="Boot sequence for the instance and image/block device mapping combination is not valid."
        )


def _is_nothing(item: dict[str, Any]) -> bool:
    return strutils.bool_from_string(item.get("no_device") or False)


def _translated(item: dict[str, Any]) -> dict[str, Any]:
    """The old form (EC2's), in the words of the new one."""
    known = {"device_name", "virtual_name", "volume_id", "snapshot_id", "volume_size", "delete_on_termination"}
    if not isinstance(item, dict) or item.keys() - known - {"no_device", "connection_info"}:
        raise exceptions.InvalidBDM(reason="Unrecognized legacy format.")
    name, virtual = item.get("device_name"), str(item.get("virtual_name") or "")
    more: dict[str, Any] = {
        key: item[key] for key in ("volume_size", "delete_on_termination", "no_device") if key in item
    }
    if name is not None and not isinstance(name, str):
        raise exceptions.InvalidBDM(reason="Device name empty or too long.")
    index = {"boot_index": 0} if name in _ROOT_NAMES else {}
    if virtual == "swap" or virtual.startswith("ephemeral"):
        kind = {"guest_format": "swap"} if virtual == "swap" else {}
        return {"source_type": "blank", "destination_type": _LOCAL, **more, **kind}
    if item.get("volume_id") is not None:
        return {"source_type": "volume", "destination_type": _VOLUME, "uuid": item["volume_id"], **more, **index}
    if item.get("snapshot_id") is not None:
        return {"source_type": "snapshot", "destination_type": _VOLUME, "uuid": item["snapshot_id"], **more, **index}
    if _is_nothing(item):
        return dict(item)
    raise exceptions.InvalidBDM(reason="Unrecognized legacy format.")


def _device(item: dict[str, Any]) -> BlockDevice:
    source = DeviceSource(item.get("source_type") or _source_of(item))
    destination = item.get("destination_type") or (
        _LOCAL if source in (DeviceSource.IMAGE, DeviceSource.BLANK) else _VOLUME
    )
    found = _id(item, source)
    index = _number(item, "boot_index")
    index = None if index is None or index < 0 else index
    _check_way(source, destination, index)
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
        volume_id=found if source == DeviceSource.VOLUME else None,
        image_id=found if source == DeviceSource.IMAGE else None,
        snapshot_id=found if source == DeviceSource.SNAPSHOT else None,
        volume_type=item.get("volume_type"),
        delete_on_termination=strutils.bool_from_string(item.get("delete_on_termination", default)),
        tag=item.get("tag"),
    )


def _source_of(item: dict[str, Any]) -> str:
    return next((str(source) for source, key in _ID_OF.items() if item.get(key)), str(DeviceSource.BLANK))


def _id(item: dict[str, Any], source: DeviceSource) -> str | None:
    given = item.get("uuid") or item.get(_ID_OF.get(source, "")) or None
    if source == DeviceSource.BLANK:
        if given:
            raise exceptions.InvalidBDM(reason="Invalid device UUID.")
        return None
    if not given:
        raise exceptions.InvalidBDM(reason="Missing device UUID.")
    if not validation.is_uuid(given):
        raise exceptions.InvalidBDM(reason=f"failed to get {source} {str(given)[:64]}.")
    return str(given)


def _check_way(source: DeviceSource, destination: str, index: int | None) -> None:
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
