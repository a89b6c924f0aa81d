"""Second pass of a create: check a request against its snapshot.

The functions are pure: the same request and snapshot give the same plan or the same error. Whether a host has room is
the scheduler's decision, and whether the project has quota left is decided in `write`, under locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.conductor.operations import checks
from nova_lite.db.core.models import KeyPair
from nova_lite.db.core.quotas import QuotaBounds
from nova_lite.db.creates import CreateSnapshot, IncomingCreate, SecurityGroups
from nova_lite.image import image_devices
from nova_lite.image.snapshots import DEVICES
from nova_lite.objects import BlockDevice, CreateRequest, Flavor, Image, NetworkRequest
from nova_lite.objects.block_device import root_volume

T = TypeVar("T")


class BootSource(NamedTuple):
    """The image of the root disk, or None, with its kernel and ramdisk by id. ``is_volume``: the disk is a volume."""

    image: Image | None
    parts: dict[str, Image]
    is_volume: bool


class Plan(NamedTuple):
    """A create that was checked. ``create.request`` has the block devices that its image names as well.

    ``new_interfaces``: how many new addresses each server gets. ``images``: by id, images to make volumes of.
    """

    create: IncomingCreate
    flavor: Flavor
    boot: BootSource
    key: KeyPair | None
    limits: QuotaBounds
    security_groups: SecurityGroups
    networks: list[NetworkRequest]
    new_interfaces: int
    images: Mapping[str, Image]


def validate(create: IncomingCreate, snapshot: CreateSnapshot) -> Plan:
    """Return the plan of a create. Raises the error that its user gets, mostly a 400."""
    request, flavor = create.request, snapshot.flavor
    if flavor is None or flavor.disabled:
        raise exceptions.FlavorUnavailable(flavor_id=request.flavor_id)
    if request.block_devices:
        check_devices(request, flavor)
    boot = _boot_source(request, flavor, snapshot)
    if boot.image is not None and not boot.is_volume and DEVICES in boot.image.properties:
        request = image_devices.with_devices_of(boot.image, request)
        check_devices(request, flavor)
        boot = _boot_source(request, flavor, snapshot)
    if boot.image is not None and not boot.is_volume and not flavor.root_gb and not request.may_have_zero_disk:
        raise exceptions.BootFromVolumeRequiredForZeroDiskFlavor()
    if request.key_name is not None and snapshot.key is None:
        raise exceptions.KeypairUnavailable()
    checks.check_limits(snapshot.limits.both, request.metadata, request.injected_files)
    security_groups = _loaded(snapshot.security_groups)
    if not snapshot.zone_exists:
        raise exceptions.AvailabilityZoneUnavailable()
    if snapshot.unknown_host is not None:
        raise exceptions.ComputeHostUnknown(host=snapshot.unknown_host)
    networks = _loaded(snapshot.networks)
    if request.max_count > 1:
        _check_count(networks)
    return Plan(
        create=create._replace(request=request),
        flavor=flavor,
        boot=boot,
        key=snapshot.key,
        limits=snapshot.limits,
        security_groups=security_groups,
        networks=networks,
        new_interfaces=sum(not network.port_id for network in networks),
        images=snapshot.images,
    )


def _loaded(value: T | exceptions.NovaLiteException) -> T:
    if isinstance(value, exceptions.NovaLiteException):
        raise value
    return value


def check_devices(request: CreateRequest, flavor: Flavor) -> None:
    """Check sizes and number of the block devices. Volumes are checked when they are reserved."""
    devices = request.block_devices
    ephemeral = [device.volume_size or flavor.ephemeral_gb for device in devices if device.is_ephemeral]
    if ephemeral and (sum(ephemeral) > flavor.ephemeral_gb or 0 in ephemeral):
        raise exceptions.InvalidInput(
            reason="Ephemeral disks requested are larger than the instance type allows. If no value is given in a "
            "mapping, the flavor's whole disk is requested."
        )
    swap = [device.volume_size or flavor.swap for device in devices if device.is_swap]
    if swap and (swap[0] > flavor.swap or not swap[0]):
        raise exceptions.InvalidInput(reason="Swap drive requested is larger than instance type allows.")
    if request.max_count > 1 and any(device.volume_id is not None for device in devices):
        raise exceptions.InvalidInput(reason="Cannot attach one or more volumes to multiple instances")


def _boot_source(request: CreateRequest, flavor: Flavor, snapshot: CreateSnapshot) -> BootSource:
    """Return the image that the server boots from, which fits the flavor."""
    root = root_volume(request.block_devices) if request.block_devices else None
    if root is not None:
        image, parts = _root_image(root, snapshot, must_be_bootable=not request.names_image)
        if image is not None and image.min_ram > flavor.memory_mb:
            raise exceptions.FlavorMemoryTooSmall(flavor_mb=flavor.memory_mb, image_mb=image.min_ram)
        hardware.resolve(flavor, image)
        hardware.check_disks(flavor, image, request.block_devices)
        return BootSource(image, parts, is_volume=True)
    if not request.image_ref:
        hardware.resolve(flavor, None)
        return BootSource(None, {}, is_volume=False)
    image, parts = checks.boot_image(snapshot.images, request.image_ref, needs_data=False)
    checks.check_flavor_fits(image, flavor)
    hardware.check_disks(flavor, image, request.block_devices)
    return BootSource(image, parts, is_volume=False)


def _root_image(
    root: BlockDevice, snapshot: CreateSnapshot, must_be_bootable: bool
) -> tuple[Image | None, dict[str, Image]]:
    """Return the image that the boot volume is made of, or None, with kernel and ramdisk. Raises `InvalidBDM`."""
    if root.image_id is not None:
        return device_image(snapshot.images, root.image_id)
    source_id = root.volume_id or root.snapshot_id
    source = snapshot.volumes.by_id.get(source_id or "")
    if source is None:
        if source_id is not None and snapshot.volumes.are_complete:
            kind = "snapshot" if root.volume_id is None else "volume"
            raise exceptions.InvalidBDM(reason=f"failed to get {kind} {source_id}.")
        return None, {}
    if must_be_bootable and root.volume_id is not None and not getattr(source, "bootable", True):
        raise exceptions.InvalidBDM(reason=f"Block Device {root.volume_id} is not bootable.")
    if source.image is None:
        return None, {}
    return source.image, checks.boot_parts(snapshot.images, source.image)


def device_image(images: Mapping[str, Image], image_id: str) -> tuple[Image, dict[str, Image]]:
    """Return an image that a volume can be made of, with kernel and ramdisk. Raises `InvalidBDM` if it is missing."""
    try:
        return checks.boot_image(images, image_id)
    except exceptions.ImageUnavailable as error:
        raise exceptions.InvalidBDM(reason=f"failed to get image {image_id}.") from error


def _check_count(networks: list[NetworkRequest]) -> None:
    """Check that several servers can have the requested interfaces."""
    if any(network.port_id for network in networks):
        raise exceptions.InvalidInput(reason="Unable to launch multiple instances with a single configured port ID")
    if any(network.fixed_ip for network in networks):
        raise exceptions.InvalidInput(reason="max_count cannot be greater than 1 if an fixed_ip is specified.")
