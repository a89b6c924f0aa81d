"""Rebuild: the instance gets a new disk on its host, made of the same image or of another one.

On acceptance it gets the next generation, and so does its claim. The build replaces the old guest, or the host destroys
it. The instance keeps its addresses, and also its claim if the build fails.
"""

from __future__ import annotations

from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations import checks
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import Instance
from nova_lite.db.image import images
from nova_lite.db.servers import claims, disk_keys, keypairs, tpms
from nova_lite.db.volume import block_devices, cinder, volumes
from nova_lite.hardware import mem_encryption, pci
from nova_lite.objects import BlockDevice, Flavor, Image, RequestedDestination, RequestSpec
from nova_lite.objects.block_device import root_volume
from nova_lite.operations import states

#: Attributes of the instance that the request may change, besides image and key.
CHANGEABLE = (
    "display_name",
    "display_description",
    "hostname",
    "metadata_",
    "user_data",
    "access_ip_v4",
    "access_ip_v6",
    "auto_disk_config",
)

#: Key in the payload of a build: the volume to write an image to before, with its size in GB, and the image.
REIMAGE = "reimage"
#: Key in the payload of a rebuild: the guest runs afterwards, although it was off.
STARTS = "starts"


class RebuildHandler(OperationHandler):
    """Checks and writes a rebuild.

    ``payload``: ``image_ref``; ``images`` by id if the API describes them; ``changes`` of `CHANGEABLE`; ``key_name`` to
    change the key (None: remove it); ``injected_files``, path to base64; ``admin_password``; ``reimage_boot_volume`` to
    write the image to the volume that the server boots from.
    """

    has_preflight = True

    def preflight(
        self,
        uow: UnitOfWork,
        conf: cfg.ConfigOpts,
        context: RequestContext,
        instance: Instance,
        payload: dict[str, Any],
    ) -> RequestSpec | None:
        """Return the request whether another image may run on the host."""
        limits = quotas.bounds(uow, conf, instance.project_id, context.user_id)
        checks.check_limits(limits, payload["changes"].get("metadata_", {}), payload["injected_files"])
        image, _ = _images(uow, context, instance, payload)
        if image.id == (instance.image or {}).get("id"):
            return None
        return RequestSpec(
            instance_uuids=[instance.uuid],
            project_id=instance.project_id,
            user_id=instance.user_id,
            flavor=msgspec.convert(instance.flavor, Flavor),
            image=image,
            requested_destination=RequestedDestination(host=instance.host, node=instance.node),
            stays=True,
        )

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        image, parts = _images(uow, context, instance, payload)
        _check_numa(uow.conf, instance, image)
        disk_keys.require_same(instance, msgspec.convert(instance.flavor, Flavor), image)
        root = root_volume(block_devices.of(instance))
        reimaged = _reimage(uow, root, image) if root is not None and payload.get("reimage_boot_volume") else {}
        if "key_name" in payload:
            _set_key(uow, context, instance, payload["key_name"])
        for name, value in payload["changes"].items():
            if name not in CHANGEABLE:
                raise exceptions.InvalidInput(reason=f"{name} of a server cannot be changed by a rebuild")
            setattr(instance, name, value)
        if "hostname" in payload["changes"]:
            uow.publish(FiltersChanged(instance.project_id))
        if root is None:
            instance.image_ref = image.id
        instance.image = msgspec.to_builtins(image)
        instance.boot_images = msgspec.to_builtins(parts)
        instance.kernel_id, instance.ramdisk_id = image.kernel_id or "", image.ramdisk_id or ""
        tpms.delete(uow, instance)  # of a TPM that a resize has taken away
        instance.system_metadata = image.as_metadata()
        instance.progress = 0
        instance.request = {
            "injected_files": payload["injected_files"],
            "admin_password": payload.get("admin_password"),
        }
        claims.renew(uow, instance)
        return {"stop": instance.vm_state == states.STOPPED and not payload.get(STARTS), **reimaged}


def _check_numa(conf: cfg.ConfigOpts, instance: Instance, image: Image) -> None:
    """Raise `HardwareRefused` if the image needs other NUMA cells, because the server stays in its own."""
    flavor, old = msgspec.convert(instance.flavor, Flavor), msgspec.convert(instance.image, Image | None)
    mem_encryption.require_same(flavor, old, image)
    numa = hardware.numa_of(flavor, image)
    near = numa is not None and pci.requests(conf, flavor, image) != pci.requests(conf, flavor, old)
    if numa != hardware.numa_of(flavor, old) or near:
        raise exceptions.HardwareRefused(
            reason="The image asks for other CPUs or memory of the server's host than it has (hw_cpu_policy, "
            "hw_mem_page_size, hw_numa_nodes, hw_pci_numa_affinity_policy and what goes with them): a rebuild cannot "
            "change that."
        )


def _reimage(uow: UnitOfWork, root: BlockDevice, image: Image) -> dict[str, Any]:
    """Mark the volume as made of this image, which the build writes to it.

    Raises `InvalidInput` if it is too small, and `InvalidVolume` if it is one of Cinder.
    """
    if cinder.is_backend(uow):
        raise exceptions.InvalidVolume(
            reason=f"volume {root.volume_id}, from which the server boots, is one of Cinder, and no image can be "
            "written to it in place. Create a new server of the image or the backup."
        )
    row = volumes.by_id(uow, str(root.volume_id), lock=True)
    if row is None:
        raise exceptions.VolumeNotFound(volume_id=root.volume_id)
    if row.multiattach:
        raise exceptions.MultiattachReimage(volume_id=row.id)
    least = checks.least_disk_gb(image)
    if row.size < least:
        raise exceptions.InvalidInput(
            reason=f"Volume size {row.size}GB cannot be smaller than the image minDisk size {least}GB."
        )
    volumes.change(row, uow, {"image": msgspec.to_builtins(image), "bootable": True})
    return {REIMAGE: {"volume_id": row.id, "size": row.size, "image": msgspec.to_builtins(image)}}


def _images(
    uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
) -> tuple[Image, dict[str, Image]]:
    described = msgspec.convert(payload["images"], dict[str, Image])
    flavor = msgspec.convert(instance.flavor, Flavor)
    image_id = payload["image_ref"]
    image, parts = checks.boot_image(described or images.with_boot_parts(uow, context, image_id), image_id)
    if root_volume(block_devices.of(instance)) is None:
        checks.check_flavor_fits(image, flavor)
    else:
        if not payload.get("reimage_boot_volume") and image.id != (instance.image or {}).get("id"):
            raise exceptions.ImageUnacceptable(
                image_id=image.id, reason="Unable to rebuild with a different image for a volume-backed server."
            )
        checks.check_guest_fits(image, flavor)
    hardware.check_disks(flavor, image, block_devices.of(instance))
    return image, parts


def _set_key(uow: UnitOfWork, context: RequestContext, instance: Instance, name: str | None) -> None:
    key = None if name is None else keypairs.find(uow, context.user_id or "", name)
    if name is not None and key is None:
        raise exceptions.KeypairUnavailable()
    instance.key_name = None if key is None else key.name
    instance.key_data = None if key is None else key.public_key
