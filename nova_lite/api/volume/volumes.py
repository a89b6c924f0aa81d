"""Volumes: lists, creation from an image, a snapshot, a volume or a backup, changes, and the encryption of each."""

from __future__ import annotations

from typing import Annotated

from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.types import Types
from nova_lite.base import exceptions
from nova_lite.objects import Image, Volume
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/volumes", "/volumes/{id}", "volume"
_HINTS = "OS-SCH-HNT:scheduler_hints"

_no_group = requests.refused(requests.an_id, "This cloud has no groups of volumes.")
_by_type = requests.refused(
    requests.is_set,
    "multiattach parameter has been removed. Name a volume type with the extra spec multiattach; an admin makes it.",
)


class NewVolume(requests.Named):
    consistencygroup_id: Annotated[str | None, _no_group] = None
    group_id: Annotated[str | None, _no_group] = None
    backup_id: requests.Id = None
    imageRef: requests.Id = None
    image_id: requests.Id = None
    snapshot_id: requests.Id = None
    source_volid: requests.Id = None
    multiattach: Annotated[bool, _by_type] = False
    size: requests.Size = 0
    volume_type: requests.Name = ""
    availability_zone: requests.Text = None


class Volumes(VolumeResource):
    """Volumes."""

    @route("GET", _ALL, policies.LIST, query=listing.PARAMETERS, response="volumes")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.conductor.volume_list, lambda volume: views.summary(req, volume))

    @route("GET", f"{_ALL}/detail", policies.LIST, query=listing.PARAMETERS, response="volumes")
    def detail(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req)
        response = self.listed(req, self.conductor.volume_list, lambda volume: views.volume(req, volume, minor))
        self._add_type_ids(req, response.body["volumes"])
        return response

    @route("GET", f"{_ALL}/summary", policies.LIST, query=listing.PARAMETERS, response="volume-summary")
    def summary(self, req: ServiceRequest) -> views.View:
        minor = versions.require(req, versions.SUMMARY)
        query = listing.query_of(req, self.conf.api.max_limit)
        volumes = self.conductor.volume_list(req.context, **{**query, "limit": None, "marker": None, "offset": 0})
        return views.volume_summary(volumes, minor)

    @route("GET", _ONE, policies.SHOW, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        volume = self.conductor.volume_get(req.context, id)
        return self._add_type_ids(req, [views.volume(req, volume, versions.minor_of(req))])[0]

    @route("GET", f"{_ONE}/encryption", policies.VOLUME_ENCRYPTION)
    def encryption(self, req: ServiceRequest, id: str) -> views.View:
        """Show the encryption of a volume. A plain volume has a key id of null, and nothing else."""
        return views.volume_encryption(self.conductor.volume_encryption_get(req.context, id))

    @route("GET", f"{_ONE}/encryption/{{field}}", policies.VOLUME_ENCRYPTION)
    def encryption_item(self, req: ServiceRequest, id: str, field: str) -> views.View:
        missing = f"Volume {id[:64]} has no encryption metadata {field[:64]}."
        return views.item(self.encryption(req, id), field, missing)

    @route("POST", _ALL, policies.CREATE, body=NewVolume, key=_KEY, response=_KEY, status=202)
    def create(self, req: ServiceRequest) -> views.View:
        is_strict = versions.minor_of(req) >= versions.STRICT_VOLUMES
        sent = requests.body(req, bodies.names(NewVolume) if is_strict else None, (_HINTS,))
        body = bodies.read(NewVolume, sent)
        image_ref = body.imageRef or body.image_id
        origins = (image_ref, body.snapshot_id, body.source_volid, body.backup_id)
        if sum(origin is not None for origin in origins) > 1:
            raise exceptions.ValidationError(
                detail="A volume is made from an image, a snapshot, a volume or a backup, not several."
            )
        if body.backup_id is not None:
            return self._restored(req, body.backup_id, body, sent)
        images = {} if image_ref is None else self.app.services.images.describe(req.context, [image_ref])
        if not body.size and body.snapshot_id is None and body.source_volid is None:
            raise exceptions.ValidationError(detail="Invalid input received: size is required.")
        volume = requests.new(
            Volume,
            body,
            id="",
            project_id="",
            availability_zone=requests.zone(body.availability_zone, self.conf),
            volume_type=self.app.part(Types).reference(req, body.volume_type),
            image=None if image_ref is None else _named(image_ref),
            multiattach=req.allows(policies.MULTIATTACH),
        )
        return self._changed(req, self.conductor.volume_create(req.context, volume, images))

    def _restored(self, req: ServiceRequest, backup_id: str, body: NewVolume, sent: views.View) -> views.View:
        """Restore a backup into a new volume, of the size of the backup, and of the type of the backup's volume."""
        if versions.minor_of(req) < versions.FROM_BACKUP:
            raise exceptions.ValidationError(detail="A volume is made from a backup from version 3.47 on.")
        req.authorize(policies.BACKUP_RESTORE)
        if body.size not in (0, self.conductor.backup_get(req.context, backup_id).size):
            raise exceptions.ValidationError(detail="The volume has the size of the backup; extend it afterwards.")
        requests.zone(body.availability_zone, self.conf)
        given = requests.given(requests.Named, {name: value for name, value in sent.items() if value is not None})
        made = self.conductor.backup_restore(req.context, backup_id, None, given.pop("name", ""))
        if given:
            made = self.conductor.volume_update(req.context, made.id, given)
        return self._changed(req, made)

    @route("PUT", _ONE, policies.UPDATE, body=requests.Named, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        return self._changed(req, self.conductor.volume_update(req.context, id, requests.changes(req, requests.Named)))

    @route("DELETE", _ONE, policies.DELETE, query=("cascade",), status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        cascade = requests.flag(req.GET.get("cascade", False), "cascade")
        self.conductor.volume_delete(req.context, id, **({"cascade": True} if cascade else {}))

    def _changed(self, req: ServiceRequest, volume: Volume) -> views.View:
        return self._add_type_ids(req, [views.changed(req, volume, versions.minor_of(req))])[0]

    def _add_type_ids(self, req: ServiceRequest, shown: list[views.View]) -> list[views.View]:
        """Add the ids of volume types to views of volumes, in versions that have them."""
        if versions.minor_of(req) >= versions.TYPE_IDS and shown:
            ids = {kind.name: kind.id for kind in self.conductor.volume_type_list(req.context)}
            for view in shown:
                view["volume_type_id"] = ids.get(view["volume_type"])
        return shown


def _named(image_ref: str) -> Image:
    """Return an image with only its id. The conductor looks up the rest."""
    return Image(id=image_ref, name="", status="active", disk_format="", container_format="")
