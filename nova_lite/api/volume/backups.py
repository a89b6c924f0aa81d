"""Full backups of volumes and snapshots: copies in a directory of their own, with a sum of their data."""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import Any

import msgspec

from nova_lite.api.audit import notes
from nova_lite.api.http import json_text, rest
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.base import exceptions
from nova_lite.objects import BackedUpVolume, VolumeBackup
from nova_lite.policies import volume_service as policies

_ALL = "/backups"
_ONE = f"{_ALL}/{{id}}"

#: Ids in an exported record. The key itself stays in the database.
_RECORD_IDS = ("id", "volume_id", "data_id", "snapshot_id", "encryption_key_id")

#: Name of the format of exported records. Clients of Cinder expect the name of a driver.
SERVICE = "cinder.backup.drivers.nova_lite.LocalBackups"
_STATES = ("available", "error")
_ACTIONS = ("os-reset_status", "os-force_delete")
_CHANGES = ("name", "description", "metadata")
_NEW = (*_CHANGES, "volume_id", "container", "incremental", "force", "snapshot_id", "availability_zone")


class Backups(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    backup_routes = (
        ServiceRoute("GET", _ALL, "backups", policies.BACKUP_LIST),
        ServiceRoute("GET", f"{_ALL}/detail", "backups_detail", policies.BACKUP_LIST),
        ServiceRoute("POST", _ALL, "create_backup", policies.BACKUP_CREATE),
        ServiceRoute("GET", _ONE, "show_backup", policies.BACKUP_SHOW),
        ServiceRoute("PUT", _ONE, "update_backup", policies.BACKUP_UPDATE),
        ServiceRoute("DELETE", _ONE, "delete_backup", policies.BACKUP_DELETE),
        ServiceRoute("POST", f"{_ONE}/restore", "restore_backup", policies.BACKUP_RESTORE),
        ServiceRoute("POST", f"{_ONE}/action", "backup_action", policies.BACKUP_UPDATE),
        ServiceRoute("GET", f"{_ONE}/export_record", "export_backup", policies.BACKUP_EXPORT),
        ServiceRoute("POST", f"{_ALL}/import_record", "import_backup", policies.BACKUP_IMPORT),
    )

    def backups(self, req: ServiceRequest) -> Response:
        found, links = self._backups(req)
        return Response({"backups": [views.backup_summary(req, backup) for backup in found], **links})

    def backups_detail(self, req: ServiceRequest) -> Response:
        found, links = self._backups(req)
        minor = versions.minor_of(req.headers)
        return Response({"backups": [views.backup(req, backup, minor) for backup in found], **links})

    def _backups(self, req: ServiceRequest) -> tuple[list[VolumeBackup], dict[str, Any]]:
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self.conductor.backup_list(req.context, **query)
        last = found[-1].id if found and len(found) == query["limit"] else None
        number = listing.count(req, query, found, self.conductor.backup_list)
        return found, listing.next_link(req, "backups_links", last) | number

    def show_backup(self, req: ServiceRequest, id: str) -> Response:
        found = self.conductor.backup_get(req.context, id)
        return Response({"backup": views.backup(req, found, versions.minor_of(req.headers))})

    def create_backup(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "backup", _NEW)
        if requests.text(fields, "container"):
            raise exceptions.ValidationError(detail="This cloud keeps all backups in one place: leave out container.")
        requests.zone(fields, self.conf.compute.default_availability_zone)
        volume_id = requests.an_id(fields, "volume_id")
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_id' must be specified")
        if requests.flag(fields.get("incremental") or False, "incremental"):
            raise exceptions.ValidationError(detail="This cloud makes full backups only: leave out incremental.")
        wanted = VolumeBackup(
            id=str(uuid.uuid4()),
            volume_id=volume_id,
            snapshot_id=requests.an_id(fields, "snapshot_id"),
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description"),
            metadata=requests.metadata(fields.get("metadata")),
        )
        force = requests.flag(fields.get("force") or False, "force")
        made = self.conductor.backup_create(req.context, wanted, force)
        return Response({"backup": views.backup_summary(req, made)}, 202)

    def update_backup(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "backup", _CHANGES)
        changes: dict[str, Any] = {
            name: requests.text(fields, name) for name in ("name", "description") if name in fields
        }
        if "name" in changes:
            changes["name"] = changes["name"] or ""
        if "metadata" in fields:
            changes["metadata"] = requests.metadata(fields["metadata"])
        if not changes:
            raise exceptions.ValidationError(detail="The request body has no changes.")
        changed = self.conductor.backup_update(req.context, id, changes)
        return Response({"backup": views.backup_summary(req, changed)})

    def delete_backup(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.backup_delete(req.context, id, False)
        return Response(status=202)

    def backup_action(self, req: ServiceRequest, id: str) -> Response:
        name, fields = requests.action(req, {"os-reset_status": ("status",)})
        notes.of(req.environ).action = name if name in _ACTIONS else ""
        if name == "os-force_delete":
            req.authorize(policies.BACKUP_FORCE_DELETE)
            self.conductor.backup_delete(req.context, id, True)
        elif name == "os-reset_status":
            req.authorize(policies.BACKUP_RESET_STATUS)
            if fields.get("status") not in _STATES:
                raise exceptions.ValidationError(detail=f"Invalid status: it must be one of {', '.join(_STATES)}.")
            self.conductor.backup_update(req.context, id, {"status": fields["status"]})
        else:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        return Response(status=202)

    def restore_backup(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "restore", ("name", "volume_id"))
        volume_id = requests.an_id(fields, "volume_id")
        name = requests.text(fields, "name") or ""
        volume = self.conductor.backup_restore(req.context, id, volume_id, name)
        return Response({"restore": {"backup_id": id, "volume_id": volume.id, "volume_name": volume.name}}, 202)

    # --- records

    def export_backup(self, req: ServiceRequest, id: str) -> Response:
        """Return the record of a backup, with which it can be imported after its row is lost."""
        found = self.conductor.backup_get(req.context, id)
        if found.status != "available":
            raise exceptions.ValidationError(detail=f"Backup status must be available, it is {found.status}.")
        record = msgspec.to_builtins(msgspec.structs.replace(found, project_id="", user_id="", fail_reason=None))
        url = base64.b64encode(msgspec.json.encode(record)).decode()
        return Response({"backup-record": {"backup_service": SERVICE, "backup_url": url}})

    def import_backup(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "backup-record", ("backup_service", "backup_url"))
        if fields.get("backup_service") != SERVICE:
            raise exceptions.ValidationError(detail=f"backup_service must be {SERVICE}.")
        wanted = _backup_of(fields.get("backup_url"))
        made = self.conductor.backup_import(req.context, wanted)
        return Response({"backup": views.backup_summary(req, made)}, 201)


def _backup_of(url: Any) -> VolumeBackup:
    """Return the backup of a record. Raises `ValidationError`."""
    try:
        record = json_text.parse(base64.b64decode(url if isinstance(url, str) else "", validate=True))
        found = msgspec.convert(record, VolumeBackup)
    except (binascii.Error, msgspec.ValidationError, exceptions.ValidationError) as error:
        raise exceptions.ValidationError(detail="backup_url is not that of an exported record.") from error
    fields = {name: getattr(found, name) for name in _RECORD_IDS}
    for name in fields:
        if requests.an_id(fields, name) is None and name not in ("snapshot_id", "encryption_key_id"):
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
