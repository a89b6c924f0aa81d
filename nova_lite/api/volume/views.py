"""Responses of the volume API in the form of Cinder's v3."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.volume import versions
from nova_lite.base import exceptions
from nova_lite.objects import (
    Image,
    Service,
    Volume,
    VolumeAttachment,
    VolumeBackup,
    VolumeEncryption,
    VolumeQosSpecs,
    VolumeSnapshot,
    VolumeTransfer,
    VolumeType,
    VolumeUse,
)
from nova_lite.policies import volume_service as policies

View: TypeAlias = dict[str, Any]

#: Binary of the daemons that do the work on volumes, and the name that clients know.
COMPUTE, BINARY = "nova-compute", "cinder-volume"
#: Services that each host is to clients. Some ask for the second one before they make backups.
BINARIES = (BINARY, "cinder-backup")

#: Filters of lists.
RESOURCE_FILTERS = (
    {"resource": "volume", "filters": ["name", "status", "bootable", "metadata"]},
    {"resource": "backup", "filters": ["name", "status", "volume_id"]},
    {"resource": "snapshot", "filters": ["name", "status", "volume_id", "metadata"]},
)


def item(found: View, key: str, missing: str) -> View:
    """Return one item of an object. Raises a 404 with the sentence ``missing``."""
    if key not in found:
        raise exceptions.NotFound(missing)
    return {key: found[key]}


def volume_type(shown: VolumeType) -> View:
    return {**created_type(shown), "qos_specs_id": shown.qos_specs_id}


def qos(shown: VolumeQosSpecs) -> View:
    return {"id": shown.id, "name": shown.name, "consumer": shown.consumer, "specs": shown.specs}


def created_type(shown: VolumeType) -> View:
    """Return the view for responses to creations, without Cinder's extension for quality of service."""
    return {**changed_type(shown), "os-volume-type-access:is_public": shown.is_public}


def changed_type(shown: VolumeType) -> View:
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "is_public": shown.is_public,
        "extra_specs": shown.extra_specs,
    }


def summary(req: ServiceRequest, volume: Volume) -> View:
    return {"id": volume.id, "name": volume.name, "links": links(req, volume.id)}


def volume(req: ServiceRequest, shown: Volume, minor: int) -> View:
    """Return the complete view of a volume. ``minor``: minor part of the microversion."""
    view = changed(req, shown, minor) | {"os-vol-tenant-attr:tenant_id": shown.project_id}
    if found := shown.shown_image_metadata():
        view["volume_image_metadata"] = found
    if req.allows(policies.SHOW_HOST):
        view["os-vol-host-attr:host"] = None
        if minor >= versions.CLUSTER_NAME:
            view["cluster_name"] = None
        view["os-vol-mig-status-attr:migstat"] = view["os-vol-mig-status-attr:name_id"] = None
    return view


def changed(req: ServiceRequest, shown: Volume, minor: int) -> View:
    """Return the view for responses to creations and changes, without Cinder's extensions."""
    view: View = {
        **summary(req, shown),
        "status": shown.status,
        "size": shown.size,
        "availability_zone": shown.availability_zone,
        "created_at": time(shown.created_at),
        "updated_at": time(shown.updated_at),
        "attachments": attached(shown),
        "description": shown.description,
        "volume_type": shown.volume_type,
        "snapshot_id": shown.snapshot_id,
        "source_volid": shown.source_volid,
        "metadata": shown.metadata | ({"readonly": "True"} if shown.read_only else {}),
        "user_id": shown.user_id,
        "bootable": "true" if shown.bootable else "false",
        "encrypted": shown.encrypted,
        "replication_status": None,
        "consistencygroup_id": None,
        "multiattach": shown.multiattach,
        "migration_status": None,
    }
    if minor >= versions.GROUPS:
        view["group_id"] = None
    if minor >= versions.SHARED_TARGETS:
        view |= {"shared_targets": False, "service_uuid": None}
    if minor >= versions.ENCRYPTION_KEYS and shown.encryption_key_id is not None:
        view["encryption_key_id"] = shown.encryption_key_id
    if minor >= versions.CONSUMES_QUOTA:
        view["consumes_quota"] = True
    return view


def volume_encryption(shown: VolumeEncryption) -> View:
    """Return the view of a volume's encryption. A plain volume has no key id, and nothing else."""
    if shown.encryption_key_id is None:
        return {"encryption_key_id": None}
    described: View = msgspec.to_builtins(shown)
    return described


#: Statuses of an attachment, or of a volume with one server, whose guest has the volume.
_WITH_GUEST = ("attached", "detaching", "extending", "backing-up")


def attached(shown: Volume) -> list[View]:
    """Return the views of the servers and clients that have the volume by now."""
    return [
        {
            "id": shown.id,
            "attachment_id": item.id,
            "volume_id": shown.id,
            "server_id": item.instance_uuid,
            "host_name": item.host,
            "device": item.device,
            "attached_at": time(item.attached_at),
        }
        for item in shown.all_attachments()
        if item.status in _WITH_GUEST
    ]


def attachment(volume_id: str, shown: VolumeAttachment, whole: bool) -> View:
    view: View = {
        "id": shown.id,
        "status": shown.status,
        "instance": shown.instance_uuid,
        "volume_id": volume_id,
    }
    if whole:
        view |= {
            "attached_at": time(shown.attached_at),
            "detached_at": None,
            "attach_mode": shown.mode,
            "connection_info": {},
        }
    return view


def snapshot(shown: VolumeSnapshot, whole: bool, minor: int) -> View:
    view: View = {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "volume_id": shown.volume_id,
        "status": shown.status,
        "size": shown.size,
        "metadata": shown.metadata,
        "created_at": time(shown.created_at),
        "updated_at": time(shown.updated_at),
    }
    if minor >= versions.GROUP_SNAPSHOTS:
        view["group_snapshot_id"] = None
    if minor >= versions.SNAPSHOT_USER:
        view["user_id"] = shown.user_id
    if minor >= versions.CONSUMES_QUOTA:
        view["consumes_quota"] = True
    if whole:
        progress = shown.progress or ("100%" if shown.status == "available" else "0%")
        view["os-extended-snapshot-attributes:progress"] = progress
        view["os-extended-snapshot-attributes:project_id"] = shown.project_id
    return view


def quota_set(use: VolumeUse, project_id: str, with_usage: bool) -> View:
    """Return the quota set of a project. ``with_usage``: include the usage of each resource."""

    def entry(limit: int, used: int) -> Any:
        return {"limit": limit, "in_use": used, "reserved": 0, "allocated": 0} if with_usage else limit

    known = {name: entry(limit, use.used.get(name, 0)) for name, limit in use.limits.items()}
    return {"id": project_id, "groups": entry(0, 0), **known}


def limits(use: VolumeUse) -> View:
    return {
        "rate": [],
        "absolute": {
            "maxTotalVolumes": use.limits["volumes"],
            "maxTotalVolumeGigabytes": use.limits["gigabytes"],
            "maxTotalSnapshots": use.limits["snapshots"],
            "maxTotalBackups": use.limits["backups"],
            "maxTotalBackupGigabytes": use.limits["backup_gigabytes"],
            "totalVolumesUsed": use.used["volumes"],
            "totalGigabytesUsed": use.used["gigabytes"],
            "totalSnapshotsUsed": use.used["snapshots"],
            "totalBackupsUsed": use.used["backups"],
            "totalBackupGigabytesUsed": use.used["backup_gigabytes"],
        },
    }


def transfer(req: ServiceRequest, shown: VolumeTransfer, whole: bool, minor: int) -> View:
    """Return the view of an offer. Offers that were accepted are gone."""
    collection = "volume-transfers" if minor >= versions.TRANSFERS else "os-volume-transfer"
    view: View = {
        "id": shown.id,
        "name": shown.name,
        "volume_id": shown.volume_id,
        "links": links(req, shown.id, collection),
    }
    if not whole:
        return view
    view["created_at"] = time(shown.created_at)
    if minor >= versions.TRANSFERS:
        view["no_snapshots"] = False
    if minor >= versions.TRANSFER_PROJECTS:
        view |= {"source_project_id": shown.project_id, "destination_project_id": None, "accepted": False}
    return view


def upload(shown: Volume, kind: VolumeType | None, image: Image) -> View:
    """Return the view of a volume of which an image is made."""
    return {
        "id": shown.id,
        "updated_at": time(shown.updated_at),
        "status": shown.status,
        "display_description": shown.description,
        "size": shown.size,
        "volume_type": None if kind is None else volume_type(kind),
        "image_id": image.id,
        "image_name": image.name,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "visibility": image.visibility,
        "protected": image.protected,
    }


def volume_summary(volumes: Sequence[Volume], minor: int) -> View:
    view: View = {"total_size": sum(volume.size for volume in volumes), "total_count": len(volumes)}
    if minor >= versions.SUMMARY_METADATA:
        pairs = {pair for volume in volumes for pair in volume.metadata.items()}
        names = sorted({name for name, _ in pairs})
        view["metadata"] = {name: sorted(value for key, value in pairs if key == name) for name in names}
    return view


def encryption(shown: VolumeType) -> View:
    """Return the view of a type's encryption. Empty for none."""
    return {} if shown.encryption is None else _NEVER_DELETED | shown.encryption


#: Fields of Cinder's rows.
_NEVER_DELETED = {"created_at": None, "updated_at": None, "deleted_at": None, "deleted": False}


def service(shown: Service, binary: str, minor: int) -> View:
    view: View = {
        "binary": binary,
        "host": shown.host,
        "zone": shown.availability_zone,
        "status": "disabled" if shown.disabled else "enabled",
        "state": "up" if shown.up else "down",
        "updated_at": time(shown.last_seen_up or shown.updated_at),
        "disabled_reason": shown.disabled_reason,
    }
    if binary == BINARY:
        view |= {"replication_status": "disabled", "active_backend_id": None, "frozen": False}
        if minor >= versions.BACKEND_STATE:
            view["backend_state"] = view["state"]
    if minor >= versions.CLUSTERS:
        view["cluster"] = None
    return view


def backup_summary(req: ServiceRequest, shown: VolumeBackup) -> View:
    return {"id": shown.id, "name": shown.name, "links": links(req, shown.id, "backups")}


def backup(req: ServiceRequest, shown: VolumeBackup, minor: int) -> View:
    view: View = {
        **backup_summary(req, shown),
        "status": shown.status,
        "size": shown.size,
        "object_count": 0,
        "container": "backups",
        "description": shown.description,
        "availability_zone": None,
        "created_at": time(shown.created_at),
        "updated_at": time(shown.updated_at),
        "fail_reason": shown.fail_reason,
        "volume_id": shown.volume_id,
        "snapshot_id": shown.snapshot_id,
        "data_timestamp": time(shown.data_timestamp or shown.created_at),
        "is_incremental": False,
        "has_dependent_backups": False,
    }
    if minor >= versions.BACKUP_PROJECT and req.allows(policies.BACKUP_PROJECT):
        view["os-backup-project-attr:project_id"] = shown.project_id
    if minor >= versions.BACKUP_METADATA:
        view["metadata"] = shown.metadata
    if minor >= versions.BACKUP_USER:
        view["user_id"] = shown.user_id
    if minor >= versions.ENCRYPTION_KEYS and shown.encryption_key_id is not None:
        view["encryption_key_id"] = shown.encryption_key_id
    return view


def links(req: ServiceRequest, thing_id: str, collection: str = "volumes") -> list[dict[str, str]]:
    root = req.base_url
    return [
        {"rel": "self", "href": f"{root}/{collection}/{thing_id}"},
        {"rel": "bookmark", "href": f"{root.removesuffix('/v3')}/{collection}/{thing_id}"},
    ]


def time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
