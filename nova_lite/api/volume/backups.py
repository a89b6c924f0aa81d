"""Full backups of volumes and snapshots: copies in a directory of their own, with a sum of their data."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec

from nova_lite.api.http import json_text
from nova_lite.api.http.bodies import Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource, action
from nova_lite.base import exceptions
from nova_lite.objects import BackedUpVolume, VolumeBackup
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/backups", "/backups/{id}", "backup"
_RESTORE, _IMPORT = f"{_ONE}/restore", f"{_ALL}/import_record"

#: Ids in an exported record. The key itself stays in the database.
_RECORD_IDS = ("id", "volume_id", "data_id", "snapshot_id", "encryption_key_id")

#: Name of the format of exported records. Clients of Cinder expect the name of a driver.
SERVICE = "cinder.backup.drivers.nova_lite.LocalBackups"


def _backup_of(fields: dict[str, Any], name: str) -> VolumeBackup:
    """Return the backup of a record. Raises `ValidationError`."""
    url = fields.get(name)
    try:
        record = json_text.parse(base64.b64decode(url if isinstance(url, str) else "", validate=True))
        found = msgspec.convert(record, VolumeBackup)
    except (binascii.Error, msgspec.ValidationError, exceptions.ValidationError) as error:
        raise exceptions.ValidationError(detail="backup_url is not that of an exported record.") from error
    ids = {name: getattr(found, name) for name in _RECORD_IDS}
    for name in ids:
        if requests.an_id(ids, name) is None and name not in ("snapshot_id", "encryption_key_id"):
            raise exceptions.ValidationError(detail=f"The record has no {name}.")
    requests.size(found.size)
    texts = {"name": found.name, "description": found.description, "volume_type": found.volume.volume_type}
    texts |= {"volume_name": found.volume.name, "volume_description": found.volume.description}
    for name in texts:
        requests.text(texts, name)
    for items in (found.metadata, found.volume.metadata):
        requests.metadata(items)
    image = found.volume.image
    kept = None if image is None or requests.an_id({"id": image.id}, "id") is None else image
    volume: BackedUpVolume = msgspec.structs.replace(found.volume, image=kept)
    return msgspec.structs.replace(found, status="creating", fail_reason=None, volume=volume)


def _service(fields: dict[str, Any], name: str) -> str:
    if fields.get(name) != SERVICE:
        raise exceptions.ValidationError(detail=f"backup_service must be {SERVICE}.")
    return SERVICE


_no_container = requests.refused(requests.text, "This cloud keeps all backups in one place: leave out container.")
_no_increment = requests.refused(requests.is_set, "This cloud makes full backups only: leave out incremental.")


class NewBackup(requests.Described, kw_only=True):
    container: Annotated[str | None, _no_container] = None
    availability_zone: requests.Text = None
    volume_id: requests.VolumeId
    incremental: Annotated[bool, _no_increment] = False
    snapshot_id: requests.Id = None
    force: requests.Flag = False


class BackupStatus(Body):
    status: Annotated[str, requests.state("available", "error")]


class Restoration(Body):
    volume_id: requests.Id = None
    name: requests.Name = ""


class Record(Body):
    """Exported record of a backup. ``backup_url`` is the backup itself."""

    backup_service: Annotated[str, checked(_service)]
    backup_url: Annotated[Any, checked(_backup_of, type="string")]


class Backups(VolumeResource):
    """Backups of volumes and snapshots."""

    @route("GET", _ALL, policies.BACKUP_LIST, query=listing.PARAMETERS, response="backups")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.conductor.backup_list, lambda backup: views.backup_summary(req, backup))

    @route("GET", f"{_ALL}/detail", policies.BACKUP_LIST, query=listing.PARAMETERS, response="backups")
    def detail(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req)
        return self.listed(req, self.conductor.backup_list, lambda backup: views.backup(req, backup, minor))

    @route("GET", _ONE, policies.BACKUP_SHOW, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return views.backup(req, self.conductor.backup_get(req.context, id), versions.minor_of(req))

    @route("POST", _ALL, policies.BACKUP_CREATE, body=NewBackup, key=_KEY, response=_KEY, status=202)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewBackup)
        requests.zone(body.availability_zone, self.conf)
        wanted = requests.new(VolumeBackup, body)
        return views.backup_summary(req, self.conductor.backup_create(req.context, wanted, body.force))

    @route("PUT", _ONE, policies.BACKUP_UPDATE, body=requests.Described, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, requests.Described)
        return views.backup_summary(req, self.conductor.backup_update(req.context, id, changes))

    @route("DELETE", _ONE, policies.BACKUP_DELETE, status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.backup_delete(req.context, id, False)

    @route("POST", f"{_ONE}/action", policies.BACKUP_UPDATE, status=202)
    def act(self, req: ServiceRequest, id: str) -> Response:
        return super().act(req, id)

    @action("os-force_delete", policies.BACKUP_FORCE_DELETE)
    def force_delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.backup_delete(req.context, id, True)

    @action("os-reset_status", policies.BACKUP_RESET_STATUS, body=BackupStatus)
    def reset_status(self, req: ServiceRequest, id: str, body: BackupStatus) -> None:
        self.conductor.backup_update(req.context, id, {"status": body.status})

    @route("POST", _RESTORE, policies.BACKUP_RESTORE, body=Restoration, key="restore", response="restore", status=202)
    def restore(self, req: ServiceRequest, id: str) -> views.View:
        body = requests.read(req, Restoration)
        volume = self.conductor.backup_restore(req.context, id, body.volume_id, body.name)
        return {"backup_id": id, "volume_id": volume.id, "volume_name": volume.name}

    # --- records

    @route("GET", f"{_ONE}/export_record", policies.BACKUP_EXPORT, response="backup-record")
    def export_record(self, req: ServiceRequest, id: str) -> views.View:
        """Return the record of a backup, with which it can be imported after its row is lost."""
        found = self.conductor.backup_get(req.context, id)
        if found.status != "available":
            raise exceptions.ValidationError(detail=f"Backup status must be available, it is {found.status}.")
        record = msgspec.to_builtins(msgspec.structs.replace(found, project_id="", user_id="", fail_reason=None))
        return {"backup_service": SERVICE, "backup_url": base64.b64encode(msgspec.json.encode(record)).decode()}

    @route("POST", _IMPORT, policies.BACKUP_IMPORT, body=Record, key="backup-record", response=_KEY, status=201)
    def import_record(self, req: ServiceRequest) -> views.View:
        record = requests.read(req, Record)
        return views.backup_summary(req, self.conductor.backup_import(req.context, record.backup_url))
