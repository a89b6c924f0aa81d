"""``/os-server-backups``: backups of servers that policies have made."""

from __future__ import annotations

from typing import Any

import msgspec
from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_password, view_helpers
from nova_lite.api.compute.servers import create
from nova_lite.api.compute.servers import view as view_of_server
from nova_lite.api.http import validation
from nova_lite.api.http.wsgi import ApiServices, Extension, Request, Response, Route, declares
from nova_lite.backups.files.client import DiskImage, Listing, Partitions, Readers
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import BackupDisk, BackupEngine, BackupQuery, BackupStatus, RestoreStatus, ServerBackup
from nova_lite.policies import backups as policies
from nova_lite.policies import servers as server_policies

# --- schemas

_GIB = 1024**3
_PASSWORD: t.Schema = {"type": "string"}

INDEX_QUERY = t.strict(
    {
        **t.PAGING,
        "all_projects": t.Q_BOOLEAN,
        "policy_id": t.repeatable(t.UUID),
        "server_id": t.repeatable(t.UUID),
        "status": t.repeatable(t.one_of(*BackupStatus)),
    }
)
IMAGE_BODY = t.wrapped("image", t.strict({}))
_DISK = {"volume_id": t.repeatable(t.UUID)}
PARTITIONS_QUERY = t.strict(_DISK)
FILE_QUERY = t.strict(
    {
        **_DISK,
        "partition": t.repeatable({"type": "string", "pattern": "^[0-9]{1,3}$"}),
        "path": t.repeatable({"type": "string", "maxLength": 4096}),
    }
)
LOCK_BODY = t.wrapped("lock", t.strict({"until": {"type": "string", "format": "date-time"}}, ("until",)))
RESTORE_BODY = t.wrapped("restore", t.strict({"adminPass": _PASSWORD}))
CREATE_SERVER_BODY = t.wrapped(
    "server",
    t.strict(
        {
            "name": t.NAME,
            "description": t.DESCRIPTION,
            "flavorRef": t.FLAVOR_REF,
            "networks": {
                "oneOf": [
                    {"type": "array", "items": t.strict({"uuid": t.UUID, "port": t.UUID}), "maxItems": 100},
                    t.one_of("auto", "none"),
                ]
            },
            "metadata": t.METADATA,
            "tags": t.TAGS,
            "security_groups": {"type": "array", "items": t.strict({"name": t.TEXT}, ("name",)), "maxItems": 100},
            "key_name": t.TEXT,
            "availability_zone": t.TEXT,
            "adminPass": _PASSWORD,
        }
    ),
)


# --- routes

_PATH = "/os-server-backups"
_ONE = _PATH + "/{id}"


class ServerBackups(Extension):
    alias = "os-server-backups"
    title = "Backups of servers by policies"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _ONE, "show"),
        Route("DELETE", _ONE, "delete"),
        Route("PUT", _ONE + "/lock", "lock"),
        Route("GET", _ONE + "/partitions", "partitions"),
        Route("GET", _ONE + "/files", "files"),
        Route("GET", _ONE + "/download", "download"),
        Route("POST", _ONE + "/image", "make_image"),
        Route("POST", _ONE + "/restore", "restore"),
        Route("POST", _ONE + "/servers", "create_server"),
    )

    def __init__(self, services: ApiServices) -> None:
        super().__init__(services)
        self._readers = Readers()

    @declares(policies.BACKUP_INDEX, query=INDEX_QUERY, response=("server_backups", "server_backups_links"))
    def index(self, req: Request) -> Response:
        """List the backups of servers, the newest first.

        Filters are ``policy_id``, ``server_id`` and ``status``. ``all_projects`` lists the backups of all projects, if
        a rule allows it to the caller.
        """
        query = BackupQuery(
            policy_id=req.query.one("policy_id"),
            instance_uuid=req.query.one("server_id"),
            status=req.query.one("status"),
            limit=req.query.limit,
            marker=req.query.marker,
            all_projects=all_projects(req, policies.BACKUP_INDEX_ALL),
        )
        found = self.conductor.server_backup_list(req.context, query)
        links = req.next_page("server_backups_links", found, req.query.limit, lambda backup: backup.id)
        return Response({"server_backups": [view(backup) for backup in found], **links})

    @declares(policies.BACKUP_SHOW, query=t.NO_PARAMETERS_STRICT, response="server_backup")
    def show(self, req: Request, id: str) -> Response:
        return Response({"server_backup": view(self.conductor.server_backup_get(req.context, id))})

    @declares(policies.BACKUP_DELETE, status=204, faults=(409,))
    def delete(self, req: Request, id: str) -> Response:
        """Delete a backup and its image, even the last one.

        A backup that is being made cannot be deleted, and a locked one not even by an admin.
        """
        self.conductor.server_backup_delete(req.context, id)
        return Response(status=204)

    @declares(policies.BACKUP_LOCK, body=LOCK_BODY, response="server_backup", faults=(409,))
    def lock(self, req: Request, id: str) -> Response:
        """Lock a complete backup in the repository until a time, or lengthen its lock. A lock is never shortened."""
        until = validation.parse_time(req.data["lock"]["until"])
        return Response({"server_backup": view(self.conductor.server_backup_lock(req.context, id, until))})

    @declares(policies.BACKUP_FILES, query=PARTITIONS_QUERY, response="partitions", faults=(409, 503))
    def partitions(self, req: Request, id: str) -> Response:
        """List the partitions of a disk of a backup that is an image, or of which an image was made.

        ``volume_id`` names a disk other than the root disk. Number 0 is a disk without partitions.
        """
        found = self._readers.ask(self._disk(req, id), {"verb": "partitions"}, Partitions)
        return Response({"partitions": msgspec.to_builtins(found.partitions)})

    @declares(policies.BACKUP_FILES, query=FILE_QUERY, response=("files", "truncated"), faults=(409, 503))
    def files(self, req: Request, id: str) -> Response:
        """List a directory of a disk of a backup: ``path`` on the file system of ``partition``.

        No link is followed. ``truncated``: the directory has more entries than are listed.
        """
        found = self._readers.ask(self._disk(req, id), _of_file("list", req), Listing)
        return Response({"files": msgspec.to_builtins(found.entries), "truncated": found.truncated})

    @declares(policies.BACKUP_FILES, query=FILE_QUERY, faults=(409, 503))
    def download(self, req: Request, id: str) -> Response:
        """Download a file of a disk of a backup, or a directory as a tar archive, from ``path`` on ``partition``.

        A download that cannot be completed ends early, and the connection with it.
        """
        found, data = self._readers.download(self._disk(req, id), _of_file("download", req))
        if found.size is None:
            return Response(headers={"Content-Type": "application/x-tar"}, data=data)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(found.size)}
        return Response(headers=headers, data=data)

    def _disk(self, req: Request, id: str) -> DiskImage:
        """Return the image of a disk of a complete backup. Raises an error if there is none in the built-in store."""
        backup = self.conductor.server_backup_hold(req.context, id)
        volume_id = req.query.one("volume_id")
        named = [disk for disk in backup.disks if disk.volume_id == volume_id]
        if volume_id is not None and not named:
            raise exceptions.BackupFileNotFound(backup_id=id, reason=f"it has no volume {volume_id}")
        if not self.images.has_local_rows:
            raise exceptions.BackupFilesUnreadable(backup_id=id, reason="its image is in Glance")
        try:
            image = self.conductor.image_get(req.context, (named[0].image_id if named else None) or backup.image_id)
        except exceptions.ImageNotFound as error:
            raise exceptions.ServerBackupInRepository(backup_id=id) from error
        path = store.file_path(self.conf.image.store_path, image.id)
        return DiskImage(backup_id=id, project_id=backup.project_id, path=path, format=str(image.disk_format))

    @declares(policies.BACKUP_IMAGE, body=IMAGE_BODY, status=202, response="server_backup", faults=(409,))
    def make_image(self, req: Request, id: str) -> Response:
        """Make an image of each disk of a complete backup in the repository, for a restoration or for volumes.

        The images are the project's: quotas hold, and they stay until a user deletes them. ``restore_status`` of the
        backup becomes ``ready``. ``image_id`` names the image of the root disk, and each of the ``disks`` its own. A
        backup that is an image is returned unchanged.
        """
        return Response({"server_backup": view(self.conductor.server_backup_want_image(req.context, id))}, 202)

    @declares(policies.BACKUP_RESTORE, body=RESTORE_BODY, status=202, response="server", faults=(409,))
    def restore(self, req: Request, id: str) -> Response:
        """Restore a server in place: rebuild it from a complete backup.

        It keeps its id, its addresses, its volumes and its flavor. What was written to its root disk since the backup
        is lost, also if that is a volume. Its other volumes stay as they are. A volume of Cinder that it boots from is
        a 400. The rule of rebuilds has to allow it, too.
        """
        req.authorize(server_policies.REBUILD)
        password = server_password.admin_password(req.data["restore"])
        backup = self.conductor.server_backup_hold(req.context, id)
        payload = {
            "image_ref": backup.image_id,
            "changes": {},
            "injected_files": {},
            "reimage_boot_volume": _boots_from_volume(backup),
            "admin_password": password,
        }
        try:
            instance = self.compute.rebuild(req.context, backup.instance_uuid, payload)
        except exceptions.InstanceNotFound as error:
            raise exceptions.ServerOfBackupGone(instance_id=backup.instance_uuid, backup_id=backup.id) from error
        location = {"Location": req.link("servers", backup.instance_uuid)}
        return Response({"server": view_of_server.rebuilt(req, instance, self._shown(password))}, 202, location)

    @declares(policies.BACKUP_CREATE_SERVER, body=CREATE_SERVER_BODY, status=202, response="server", faults=(409,))
    def create_server(self, req: Request, id: str) -> Response:
        """Create a new server of a complete backup, whether or not the old one exists.

        What the body does not name is as at the time of the backup: name, flavor, networks, metadata, tags and security
        groups. It gets new volumes with the data of those in the backup. Quotas hold. The rule of creates has to allow
        it, too.
        """
        req.authorize(server_policies.CREATE)
        given = req.data["server"]
        backup = self.conductor.server_backup_hold(req.context, id)
        req.data = {"server": {**_as_before(backup), **given, **_disks_of(backup)}}
        password = server_password.admin_password(given)
        created = self.compute.create(req.context, create.request_of(req, password)).instances[0]
        location = {"Location": req.link("servers", created.uuid)}
        return Response({"server": view_of_server.created(req, created, self._shown(password))}, 202, location)

    def _shown(self, password: str) -> str | None:
        return password if self.conf.api.enable_instance_password else None


def _of_file(verb: str, req: Request) -> dict[str, Any]:
    return {"verb": verb, "partition": int(req.query.one("partition") or 0), "path": req.query.one("path") or "/"}


def _as_before(backup: ServerBackup) -> dict[str, Any]:
    """Return the body of a create that has the properties of the server at the time of the backup."""
    server = backup.server
    networks: list[dict[str, str]] = [{"uuid": network_id} for network_id in server.get("networks", [])]
    return {
        "name": server["name"],
        "description": server.get("description"),
        "flavorRef": server["flavor_id"],
        "networks": networks or "none",
        "metadata": server.get("metadata", {}),
        "tags": server.get("tags", []),
        "security_groups": [{"name": name} for name in server.get("security_groups", [])],
        "config_drive": server.get("config_drive", False),
    }


def _disks_of(backup: ServerBackup) -> dict[str, Any]:
    """Return the image, or the volumes to make of images, of a new server that is made of the backup."""
    devices = [_volume(disk) for disk in backup.disks if disk.volume_id]
    found: dict[str, Any] = {} if _boots_from_volume(backup) else {"imageRef": backup.image_id}
    return {**found, "block_device_mapping_v2": devices} if devices else found


def _boots_from_volume(backup: ServerBackup) -> bool:
    return any(disk.is_root and disk.volume_id for disk in backup.disks)


def _volume(disk: BackupDisk) -> dict[str, Any]:
    return {
        "boot_index": 0 if disk.is_root else -1,
        "source_type": "image",
        "destination_type": "volume",
        "uuid": disk.image_id,
        "volume_size": max(1, -(-disk.size // _GIB)),
        "delete_on_termination": False,
    }


def all_projects(req: Request, rule: str) -> bool:
    """Check whether the query asks for all projects, and the rule allows it."""
    return strutils.bool_from_string(req.query.one("all_projects") or False) and req.allows(rule)


# --- views


def view(backup: ServerBackup) -> dict[str, Any]:
    in_repository = backup.engine != BackupEngine.IMAGES
    image_id = backup.image_id if backup.status is BackupStatus.COMPLETE else None
    if in_repository:
        image_id = backup.restored_image_id if backup.restore_status == RestoreStatus.READY else None
    return {
        "id": backup.id,
        "policy_id": backup.policy_id,
        "server_id": backup.instance_uuid,
        "server_name": backup.server.get("name", ""),
        "project_id": backup.project_id,
        "status": backup.status,
        "engine": backup.engine,
        "base_id": backup.base_id,
        "image_id": image_id,
        "restore_status": backup.restore_status,
        "restore_reason": backup.restore_reason,
        "disks": [_view_of_disk(disk, image_id is not None) for disk in backup.disks],
        "size": backup.size,
        "attempts": backup.attempts,
        "reason": backup.reason,
        "locked_until": view_helpers.iso_seconds(backup.locked_until),
        "scheduled_for": view_helpers.iso_seconds(backup.scheduled_for),
        "started_at": view_helpers.iso_seconds(backup.started_at),
        "finished_at": view_helpers.iso_seconds(backup.finished_at),
    }


def _view_of_disk(disk: BackupDisk, has_images: bool) -> dict[str, Any]:
    return {
        "volume_id": disk.volume_id or None,
        "device": disk.device or None,
        "root": disk.is_root,
        "size": disk.size,
        "image_id": disk.image_id if has_images else None,
    }
