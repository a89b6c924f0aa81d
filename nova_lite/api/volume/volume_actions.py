"""Actions of volumes: sizes, types, states, images of volumes, image metadata, and attachments of other users."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from nova_lite.api.http.bodies import Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image.requests import properties as image_properties
from nova_lite.api.image.views import FIELDS, VISIBILITIES
from nova_lite.api.volume import attachments, metadata, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource, action
from nova_lite.api.volume.snapshots import STATES
from nova_lite.base import exceptions
from nova_lite.objects import Image, Volume, VolumeAttachment
from nova_lite.policies import volume_service as policies

#: Items of a volume's image metadata that an image of the volume does not have: they are about the older image's data.
_NOT_COPIED = {
    "checksum", "container_format", "disk_format", "image_id", "image_name", "min_disk", "min_ram", "name", "size",
    "kernel_id", "ramdisk_id",
}  # fmt: skip


_TO_HOST = (
    "This cloud connects no volume to a host_name. Give os-attach the instance_uuid of a server, or attach the volume "
    "with the compute API."
)
_STATES = (*STATES, "error_extending", "in-use", "attaching", "detaching", "maintenance", "reserved")


def _new_size(fields: dict[str, Any], name: str) -> int:
    return requests.size(fields.get(name) or 0, name)


def _derived(fields: dict[str, Any], name: str) -> None:
    if fields.get(name) is not None:
        raise exceptions.ValidationError(detail=f"{name} follows from the volume's status: set that alone.")


def _items(fields: dict[str, Any], name: str) -> dict[str, str]:
    if name not in fields:
        raise exceptions.ValidationError(detail="'metadata' must be specified")
    return requests.metadata(fields[name])


class Extension(Body):
    new_size: Annotated[int, checked(_new_size, minimum=1, maximum=requests.MAX_GB)]


class VolumeStatus(Body, kw_only=True):
    attach_status: Annotated[str | None, checked(_derived)] = None
    migration_status: Annotated[str | None, checked(_derived)] = None
    status: Annotated[str, requests.state(*_STATES)]


class Bootable(Body):
    bootable: requests.RequiredFlag


class NewType(Body):
    new_type: Annotated[str, requests.needed(requests.text, "new_type must be specified")]
    migration_policy: requests.Anything = None


def _choice(sentence: str, *allowed: str) -> msgspec.Meta:
    return requests.choice(sentence, None, "", *allowed, check=requests.text)


_FORMAT = _choice("An image of a volume has the disk_format raw or qcow2.", "raw", "qcow2")
_CONTAINER = _choice("An image of a volume has the container_format bare.", "bare")
_VISIBILITY = _choice("visibility must be private, shared, community or public.", *VISIBILITIES)


class ImageOfVolume(Body):
    image_name: Annotated[str, requests.needed(requests.text, "image_name must be specified")]
    force: requests.Anything = None
    disk_format: Annotated[str, _FORMAT] = "raw"
    container_format: Annotated[str, _CONTAINER] = "bare"
    visibility: Annotated[str, _VISIBILITY] = "private"
    protected: requests.Flag = False


class ImageMetadata(Body):
    metadata: Annotated[dict[str, str], checked(_items)]


class ImageMetadataKey(Body):
    key: Annotated[str, requests.needed(requests.text, "The key of an item is needed.")]


class ReadOnly(Body):
    readonly: requests.RequiredFlag


class Attachment(Body):
    host_name: Annotated[str | None, requests.refused(requests.text, _TO_HOST)] = None
    instance_uuid: requests.Id = None
    mountpoint: requests.Text = None
    mode: attachments.Mode = "rw"


class Detachment(Body):
    attachment_id: requests.Anything = None


class ForcedDetachment(Detachment):
    connector: requests.Anything = None


class VolumeActions(VolumeResource):
    """Actions of volumes."""

    @route("POST", "/volumes/{id}/action", policies.UPDATE, status=202)
    def act(self, req: ServiceRequest, id: str) -> Response:
        return super().act(req, id)

    @action("os-extend", policies.EXTEND, body=Extension)
    def extend(self, req: ServiceRequest, id: str, body: Extension) -> None:
        attached = versions.minor_of(req) >= versions.EXTEND_ATTACHED
        self.conductor.volume_extend(req.context, id, body.new_size, attached)

    @action("os-reset_status", policies.RESET_STATUS, body=VolumeStatus)
    def reset_status(self, req: ServiceRequest, id: str, body: VolumeStatus) -> None:
        self.conductor.volume_update(req.context, id, {"status": body.status})

    @action("os-set_bootable", body=Bootable, status=200)
    def set_bootable(self, req: ServiceRequest, id: str, body: Bootable) -> None:
        self.conductor.volume_update(req.context, id, {"bootable": body.bootable})

    @action("os-retype", policies.RETYPE, body=NewType)
    def retype(self, req: ServiceRequest, id: str, body: NewType) -> None:
        """Give a volume another type. Its file stays, since all types have the same files."""
        try:
            changes = {"volume_type": body.new_type, "multiattach": req.allows(policies.MULTIATTACH)}
            self.conductor.volume_update(req.context, id, changes)
        except exceptions.VolumeTypeNotFound as error:
            raise exceptions.ValidationError(detail=error.message) from error

    @action("os-volume_upload_image", policies.UPLOAD_IMAGE, body=ImageOfVolume, response="os-volume_upload_image")
    def upload_image(self, req: ServiceRequest, id: str, body: ImageOfVolume) -> views.View:
        image = _image_of(body, self.conductor.volume_get(req.context, id))
        if image.visibility == "public":
            req.authorize(policies.UPLOAD_PUBLIC)
        image.owner = req.context.project_id
        kinds = {kind.name: kind for kind in self.conductor.volume_type_list(req.context)}
        changed = self.conductor.volume_upload(req.context, id, image)
        return views.upload(changed, kinds.get(changed.volume_type), image)

    @action("os-force_delete", policies.FORCE_DELETE)
    def force_delete(self, req: ServiceRequest, id: str) -> None:
        """Delete a volume in any state but one: the volume that is attached."""
        volume = self.conductor.volume_get(req.context, id)
        if not volume.all_attachments() and volume.instance_uuid is None and volume.status != "deleting":
            self.conductor.volume_update(req.context, id, {"status": "error"})
        self.conductor.volume_delete(req.context, id)

    @action("os-show_image_metadata", response="metadata", status=200)
    def show_image_metadata(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self.conductor.volume_get(req.context, id).shown_image_metadata()

    @action("os-set_image_metadata", policies.IMAGE_METADATA, body=ImageMetadata, response="metadata", status=200)
    def set_image_metadata(self, req: ServiceRequest, id: str, body: ImageMetadata) -> dict[str, str]:
        return self._merge_image_metadata(req, id, {**body.metadata})

    @action("os-unset_image_metadata", policies.IMAGE_METADATA, body=ImageMetadataKey, status=200)
    def unset_image_metadata(self, req: ServiceRequest, id: str, body: ImageMetadataKey) -> None:
        metadata.item(self.conductor.volume_get(req.context, id).shown_image_metadata(), body.key)
        self._merge_image_metadata(req, id, {body.key: None})

    def _merge_image_metadata(self, req: ServiceRequest, id: str, items: dict[str, str | None]) -> dict[str, str]:
        changed = self.conductor.volume_update(req.context, id, {"image_metadata": items}, merge=True)
        return changed.shown_image_metadata()

    @action("os-unmanage")
    def unmanage(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_get(req.context, id)
        raise exceptions.NotServed(
            what="Removing a volume without its data", instead=" Make an image of the volume, and download that."
        )

    @action("os-update_readonly_flag", body=ReadOnly)
    def set_readonly(self, req: ServiceRequest, id: str, body: ReadOnly) -> None:
        """Let servers only read the volume from their next attachment on, or write again."""
        self.conductor.volume_update(req.context, id, {"read_only": body.readonly})

    # --- attachments of other users (`nova_lite.api.volume.attachments`)

    @action("os-reserve")
    def reserve(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_reserve(req.context, id, True)

    @action("os-unreserve")
    def unreserve(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_reserve(req.context, id, False)

    @action("os-attach", body=Attachment)
    def attach(self, req: ServiceRequest, id: str, body: Attachment) -> None:
        """Record that a server has the volume, as a client of Cinder does that connects it."""
        if body.instance_uuid is None or not body.mountpoint:
            raise exceptions.ValidationError(detail="os-attach needs the instance_uuid of a server, and a mountpoint.")
        wanted = requests.new(VolumeAttachment, body, device=body.mountpoint, status="attached")
        self.conductor.volume_attachment_set(req.context, id, wanted, None)

    @action("os-detach", body=Detachment)
    @action("os-force_detach", body=ForcedDetachment)
    def detach(self, req: ServiceRequest, id: str, body: Detachment) -> None:
        """End an attachment of this API. Refuse others, as Cinder does: only the host knows when the guest let go."""
        volume = self.conductor.volume_get(req.context, id)
        known = volume.all_attachments()
        found = [item for item in known if body.attachment_id in (None, item.id)]
        found = found or [item for item in known if not item.recorded][:1]
        if not found:
            raise exceptions.InvalidVolume(reason=f"volume {id} is not attached.")
        if len(found) > 1:
            raise exceptions.InvalidVolume(
                reason="Detach volume failed: More than one attachment, but no attachment_id provided."
            )
        if not found[0].recorded:
            raise attachments.of_compute_api(found[0])
        self.conductor.volume_attachment_set(req.context, id, None, found[0].id)

    @action("os-begin_detaching")
    @action("os-roll_detaching")
    @action("os-initialize_connection")
    @action("os-terminate_connection")
    def refuse_connection(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_get(req.context, id)
        raise exceptions.ValidationError(
            detail="Volumes of this cloud are files of its compute hosts. Attach one to a server with the compute API."
        )


def _image_of(body: ImageOfVolume, volume: Volume) -> Image:
    """Return the image to make of a volume. It has the properties of the volume's image metadata."""
    properties = {key: value for key, value in volume.shown_image_metadata().items() if key not in _NOT_COPIED}
    if taken := sorted(properties.keys() & FIELDS.keys()):
        raise exceptions.ValidationError(
            detail=f"An image cannot have a property {taken[0]}: remove it from the volume's image metadata first."
        )
    return requests.new(
        Image,
        body,
        name=body.image_name,
        status="queued",
        min_disk=volume.size,
        min_ram=0 if volume.image is None else volume.image.min_ram,
        properties=image_properties(properties),
    )
