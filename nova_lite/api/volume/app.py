"""The volume API: the part of Cinder's v3 API that clients use.

Metadata of volumes are rows of the conductor's database. Compute hosts do the work on volumes' files.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import webob
import webob.exc

from nova_lite.api.audit import notes
from nova_lite.api.http import deploy, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import (
    absent,
    attachments,
    backends,
    backups,
    listing,
    qos,
    requests,
    transfers,
    types,
    versions,
    views,
)
from nova_lite.base import exceptions
from nova_lite.objects import Image, Volume, VolumeSnapshot
from nova_lite.policies import volume_service as policies

_ONE = "/volumes/{id}"
_SNAPSHOT = "/snapshots/{id}"

#: The project that has no limits of its own, so that its limits are the defaults.
_NO_PROJECT = ""

#: Handlers of the actions on a volume.
_ACTIONS = {
    "os-extend": "_extend",
    "os-reset_status": "_reset_status",
    "os-set_bootable": "_set_bootable",
    "os-retype": "_retype",
    "os-volume_upload_image": "_upload_image",
    "os-force_delete": "_force_delete",
    "os-show_image_metadata": "_show_image_metadata",
    "os-set_image_metadata": "_set_image_metadata",
    "os-unset_image_metadata": "_unset_image_metadata",
    "os-unmanage": "_unmanage",
    "os-update_readonly_flag": "_update_readonly_flag",
    "os-attach": "_attach",
    "os-reserve": "_reserve",
    "os-unreserve": "_unreserve",
    **dict.fromkeys(("os-detach", "os-force_detach"), "_detach"),
    **dict.fromkeys(
        (
            "os-begin_detaching",
            "os-roll_detaching",
            "os-initialize_connection",
            "os-terminate_connection",
        ),
        "_refuse_connection",
    ),
}

_NAMES = ("name", "description", "display_name", "display_description", "metadata")
_NEW_SNAPSHOT = (*_NAMES, "volume_id", "force")
_NEW = (
    *_NAMES,
    "volume_type",
    "snapshot_id",
    "source_volid",
    "consistencygroup_id",
    "group_id",
    "backup_id",
    "size",
    "availability_zone",
    "multiattach",
    "image_id",
    "imageRef",
)
_HINTS = "OS-SCH-HNT:scheduler_hints"
#: Fields of actions. Others take any value, as in Cinder.
_FIELDS = {
    "os-extend": ("new_size",),
    "os-reset_status": ("status", "attach_status", "migration_status"),
    "os-set_bootable": ("bootable",),
    "os-retype": ("new_type", "migration_policy"),
    "os-volume_upload_image": (
        "image_name",
        "force",
        "disk_format",
        "container_format",
        "visibility",
        "protected",
    ),
    "os-set_image_metadata": ("metadata",),
    "os-unset_image_metadata": ("key",),
    "os-update_readonly_flag": ("readonly",),
    "os-attach": ("instance_uuid", "mountpoint", "host_name", "mode"),
    "os-detach": ("attachment_id",),
    "os-force_detach": ("attachment_id", "connector"),
}
_SNAPSHOT_FIELDS = {"os-reset_status": ("status",), "os-update_snapshot_status": ("status", "progress")}

_SNAPSHOT_ACTIONS = ("os-force_delete", "os-reset_status", "os-update_snapshot_status")

#: New statuses of `os-update_snapshot_status` by the present one.
_SNAPSHOT_CHANGES = {"creating": ("creating", "available", "error"), "deleting": ("deleting", "error_deleting")}

#: States that `os-reset_status` accepts.
_SNAPSHOT_STATES = ("available", "creating", "deleting", "error", "error_deleting")
_STATES = (*_SNAPSHOT_STATES, "error_extending", "in-use", "attaching", "detaching", "maintenance", "reserved")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> VolumeApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.volume.backend
    if backend == "cinder":
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: volume needs [volume] backend = local or rbd, which is {backend}."
        )
    return VolumeApp(services)


class VolumeApp(
    absent.AbsentResources, attachments.Attachments, backends.Backends, backups.Backups, qos.Qos, transfers.Transfers
):
    """WSGI application, mounted at ``/v3``. The rest of the path may start with the caller's project id."""

    strict_slashes = True

    routes = (
        ServiceRoute("GET", "/volumes", "index", policies.LIST),
        ServiceRoute("GET", "/volumes/detail", "detail", policies.LIST),
        ServiceRoute("GET", "/volumes/summary", "summary", policies.LIST),
        ServiceRoute("POST", "/volumes", "create", policies.CREATE),
        ServiceRoute("GET", _ONE, "show", policies.SHOW),
        ServiceRoute("PUT", _ONE, "update", policies.UPDATE),
        ServiceRoute("DELETE", _ONE, "delete", policies.DELETE),
        ServiceRoute("POST", f"{_ONE}/action", "action", policies.UPDATE),
        ServiceRoute("GET", f"{_ONE}/encryption", "volume_encryption", policies.VOLUME_ENCRYPTION),
        ServiceRoute("GET", f"{_ONE}/encryption/{{field}}", "volume_encryption_item", policies.VOLUME_ENCRYPTION),
        ServiceRoute("GET", f"{_ONE}/metadata", "metadata", policies.METADATA),
        ServiceRoute("POST", f"{_ONE}/metadata", "add_metadata", policies.CHANGE_METADATA),
        ServiceRoute("PUT", f"{_ONE}/metadata", "set_metadata", policies.CHANGE_METADATA),
        ServiceRoute("GET", f"{_ONE}/metadata/{{key}}", "metadata_item", policies.METADATA),
        ServiceRoute("PUT", f"{_ONE}/metadata/{{key}}", "set_metadata_item", policies.CHANGE_METADATA),
        ServiceRoute("DELETE", f"{_ONE}/metadata/{{key}}", "remove_metadata", policies.CHANGE_METADATA),
        ServiceRoute("GET", "/snapshots", "snapshots", policies.SNAPSHOT_LIST),
        ServiceRoute("GET", "/snapshots/detail", "snapshots_detail", policies.SNAPSHOT_LIST),
        ServiceRoute("POST", "/snapshots", "create_snapshot", policies.SNAPSHOT_CREATE),
        ServiceRoute("GET", _SNAPSHOT, "show_snapshot", policies.SNAPSHOT_SHOW),
        ServiceRoute("PUT", _SNAPSHOT, "update_snapshot", policies.SNAPSHOT_UPDATE),
        ServiceRoute("DELETE", _SNAPSHOT, "delete_snapshot", policies.SNAPSHOT_DELETE),
        ServiceRoute("POST", f"{_SNAPSHOT}/action", "snapshot_action", policies.SNAPSHOT_UPDATE),
        ServiceRoute("GET", f"{_SNAPSHOT}/metadata", "snapshot_metadata", policies.SNAPSHOT_SHOW),
        ServiceRoute("POST", f"{_SNAPSHOT}/metadata", "add_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        ServiceRoute("PUT", f"{_SNAPSHOT}/metadata", "set_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        ServiceRoute("GET", f"{_SNAPSHOT}/metadata/{{key}}", "snapshot_metadata_item", policies.SNAPSHOT_SHOW),
        ServiceRoute("PUT", f"{_SNAPSHOT}/metadata/{{key}}", "set_snapshot_metadata_item", policies.SNAPSHOT_UPDATE),
        ServiceRoute("DELETE", f"{_SNAPSHOT}/metadata/{{key}}", "remove_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        *attachments.Attachments.attachment_routes,
        *types.Types.type_routes,
        *qos.Qos.qos_routes,
        ServiceRoute("GET", "/limits", "limits", policies.LIMITS),
        ServiceRoute("GET", "/os-quota-sets/{id}", "quotas", policies.QUOTAS, target={"project_id": "id"}),
        ServiceRoute("PUT", "/os-quota-sets/{id}", "update_quotas", policies.UPDATE_QUOTAS),
        ServiceRoute("DELETE", "/os-quota-sets/{id}", "delete_quotas", policies.DELETE_QUOTAS),
        ServiceRoute(
            "GET", "/os-quota-sets/{id}/defaults", "quota_defaults", policies.QUOTAS, target={"project_id": "id"}
        ),
        ServiceRoute("GET", "/os-quota-class-sets/{name}", "quota_class", policies.TYPES),
        ServiceRoute("PUT", "/os-quota-class-sets/{name}", "update_quota_class", policies.UPDATE_CLASSES),
        ServiceRoute("GET", "/resource_filters", "resource_filters", policies.EXTENSIONS),
        ServiceRoute("GET", "/os-availability-zone", "zones", policies.ZONES),
        *backends.Backends.backend_routes,
        *transfers.Transfers.transfer_routes,
        *backups.Backups.backup_routes,
        *absent.routes(),
    )

    def __init__(self, services: wsgi.ApiServices) -> None:
        super().__init__(services)
        self._collections = {route.path.split("/")[1] for route in self.routes}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Remove a leading id of the caller's project from the path. Add the version header to every response.

        The id of another project stays in the path, and is refused.
        """
        path = environ.get("PATH_INFO", "")
        first, _, rest_of_path = path.lstrip("/").partition("/")
        context = environ.get(wsgi.CONTEXT)
        if first not in self._collections and context is not None and first == context.project_id:
            environ["SCRIPT_NAME"] = f"{environ.get('SCRIPT_NAME', '')}/{first}"
            environ["PATH_INFO"] = "/" + rest_of_path
        return super().__call__(environ, versions.with_header(environ, start_response))

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        """Refuse an unsupported version, also where the version changes nothing, and a URL of another project."""
        versions.minor_of(req.headers)
        first, *rest = req.environ.get("PATH_INFO", "").strip("/").split("/")
        has_project = bool(rest) and first not in self._collections and rest[0] in self._collections
        if has_project and wsgi.CONTEXT in req.environ and first != req.context.project_id:
            raise wsgi.wrong_project(first, req.context)
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return wsgi.fault(code, message)

    # --- volumes

    def index(self, req: ServiceRequest) -> Response:
        volumes, links = self._volumes(req)
        return Response({"volumes": [views.summary(req, volume) for volume in volumes], **links})

    def _with_type_ids(self, req: ServiceRequest, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add the ids of volume types to views of volumes, in versions that have them."""
        if versions.minor_of(req.headers) >= versions.TYPE_IDS and shown:
            ids = {kind.name: kind.id for kind in self.conductor.volume_type_list(req.context)}
            for view in shown:
                view["volume_type_id"] = ids.get(view["volume_type"])
        return shown

    def detail(self, req: ServiceRequest) -> Response:
        volumes, links = self._volumes(req)
        minor = versions.minor_of(req.headers)
        shown = self._with_type_ids(req, [views.volume(req, volume, minor) for volume in volumes])
        return Response({"volumes": shown, **links})

    def _volumes(self, req: ServiceRequest) -> tuple[list[Volume], dict[str, Any]]:
        query = listing.query_of(req, self.conf.api.max_limit)
        volumes = self.conductor.volume_list(req.context, **query)
        last = volumes[-1].id if len(volumes) == query["limit"] and volumes else None
        number = listing.count(req, query, volumes, self.conductor.volume_list)
        return volumes, listing.next_link(req, "volumes_links", last) | number

    def summary(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req.headers)
        if minor < versions.SUMMARY:
            raise wsgi.UnknownUrl()
        query = listing.query_of(req, self.conf.api.max_limit)
        volumes = self.conductor.volume_list(req.context, **{**query, "limit": None, "marker": None, "offset": 0})
        return Response({"volume-summary": views.volume_summary(volumes, minor)})

    def show(self, req: ServiceRequest, id: str) -> Response:
        volume = self.conductor.volume_get(req.context, id)
        (shown,) = self._with_type_ids(req, [views.volume(req, volume, versions.minor_of(req.headers))])
        return Response({"volume": shown})

    def volume_encryption(self, req: ServiceRequest, id: str) -> Response:
        """Show the encryption of a volume. A plain volume has a key id of null, and nothing else."""
        return Response(views.volume_encryption(self.conductor.volume_encryption_get(req.context, id)))

    def volume_encryption_item(self, req: ServiceRequest, id: str, field: str) -> Response:
        shown = views.volume_encryption(self.conductor.volume_encryption_get(req.context, id))
        if field not in shown:
            raise exceptions.NotFound(f"Volume {id[:64]} has no encryption metadata {field[:64]}.")
        return Response({field: shown[field]})

    def create(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req.headers)
        fields = requests.body(req, "volume", _NEW if minor >= versions.STRICT_VOLUMES else None, (_HINTS,))
        if any(requests.an_id(fields, name) for name in ("consistencygroup_id", "group_id")):
            raise exceptions.ValidationError(detail="This cloud has no groups of volumes.")
        backup_id = requests.an_id(fields, "backup_id")
        image_ref = requests.an_id(fields, "imageRef") or requests.an_id(fields, "image_id")
        snapshot_id, source = requests.an_id(fields, "snapshot_id"), requests.an_id(fields, "source_volid")
        if sum(origin is not None for origin in (image_ref, snapshot_id, source, backup_id)) > 1:
            raise exceptions.ValidationError(
                detail="A volume is made from an image, a snapshot, a volume or a backup, not several."
            )
        if requests.flag(fields.get("multiattach") or False, "multiattach"):
            raise exceptions.ValidationError(detail="This cloud does not attach a volume to several servers.")
        if backup_id is not None:
            return self._create_from_backup(req, backup_id, fields)
        images = {} if image_ref is None else self.services.images.describe(req.context, [image_ref])
        size = requests.size(fields.get("size"))
        if not size and snapshot_id is None and source is None:
            raise exceptions.ValidationError(detail="Invalid input received: size is required.")
        volume = Volume(
            id="",
            project_id="",
            name=requests.text(fields, "name", "display_name") or "",
            description=requests.text(fields, "description", "display_description"),
            size=size,
            availability_zone=requests.zone(fields, self.conf.compute.default_availability_zone),
            volume_type=self._kind(req, requests.text(fields, "volume_type")),
            metadata=requests.metadata(fields.get("metadata")),
            image=None if image_ref is None else _named(image_ref),
            snapshot_id=snapshot_id,
            source_volid=source,
        )
        created = self.conductor.volume_create(req.context, volume, images)
        (shown,) = self._with_type_ids(req, [views.changed(req, created, minor)])
        return Response({"volume": shown}, 202)

    def _create_from_backup(self, req: ServiceRequest, backup_id: str, fields: dict[str, Any]) -> Response:
        """Restore a backup into a new volume, of the size of the backup, and of the type of the backup's volume."""
        minor = versions.minor_of(req.headers)
        if minor < versions.FROM_BACKUP:
            raise exceptions.ValidationError(detail="A volume is made from a backup from version 3.47 on.")
        req.authorize(policies.BACKUP_RESTORE)
        size = requests.size(fields.get("size"))
        if size not in (0, self.conductor.backup_get(req.context, backup_id).size):
            raise exceptions.ValidationError(detail="The volume has the size of the backup; extend it afterwards.")
        requests.zone(fields, self.conf.compute.default_availability_zone)
        given = _given({name: value for name, value in fields.items() if value is not None})
        made = self.conductor.backup_restore(req.context, backup_id, None, given.pop("name", ""))
        if given:
            made = self.conductor.volume_update(req.context, made.id, given)
        (shown,) = self._with_type_ids(req, [views.changed(req, made, minor)])
        return Response({"volume": shown}, 202)

    def _kind(self, req: ServiceRequest, reference: str | None) -> str:
        """Return the reference to a type. Empty: the conductor takes the default of the project."""
        return self._reference(req, reference) if reference else ""

    def update(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "volume", _NAMES)
        volume = self.conductor.volume_update(req.context, id, _changes(fields))
        (shown,) = self._with_type_ids(req, [views.changed(req, volume, versions.minor_of(req.headers))])
        return Response({"volume": shown})

    def delete(self, req: ServiceRequest, id: str) -> Response:
        cascade = requests.flag(req.GET.get("cascade", False), "cascade")
        self.conductor.volume_delete(req.context, id, **({"cascade": True} if cascade else {}))
        return Response(status=202)

    def action(self, req: ServiceRequest, id: str) -> Response:
        name, fields = requests.action(req, _FIELDS)
        if name not in _ACTIONS:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        notes.of(req.environ).action = name
        response: Response = getattr(self, _ACTIONS[name])(req, id, fields)
        return response

    def _extend(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        req.authorize(policies.EXTEND)
        size = requests.size(fields.get("new_size") or 0, "new_size")
        attached = versions.minor_of(req.headers) >= versions.EXTEND_ATTACHED
        self.conductor.volume_extend(req.context, id, size, attached)
        return Response(status=202)

    def _reset_status(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        req.authorize(policies.RESET_STATUS)
        for name in ("attach_status", "migration_status"):
            if fields.get(name) is not None:
                raise exceptions.ValidationError(detail=f"{name} follows from the volume's status: set that alone.")
        self.conductor.volume_update(req.context, id, {"status": _state(fields, _STATES)})
        return Response(status=202)

    def _set_bootable(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        bootable = requests.flag(fields.get("bootable"), "bootable")
        self.conductor.volume_update(req.context, id, {"bootable": bootable})
        return Response(status=200)

    def _retype(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        """Give a volume another type. Its file stays, since all types have the same files."""
        req.authorize(policies.RETYPE)
        wanted = requests.text(fields, "new_type")
        if not wanted:
            raise exceptions.ValidationError(detail="new_type must be specified")
        try:
            self.conductor.volume_update(req.context, id, {"volume_type": wanted})
        except exceptions.VolumeTypeNotFound as error:
            raise exceptions.ValidationError(detail=error.message) from error
        return Response(status=202)

    def _upload_image(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        req.authorize(policies.UPLOAD_IMAGE)
        volume = self.conductor.volume_get(req.context, id)
        image = requests.image_of(fields, volume)
        if image.visibility == "public":
            req.authorize(policies.UPLOAD_PUBLIC)
        image.owner = req.context.project_id
        kinds = {kind.name: kind for kind in self.conductor.volume_type_list(req.context)}
        changed = self.conductor.volume_upload(req.context, id, image)
        return Response({"os-volume_upload_image": views.upload(changed, kinds.get(changed.volume_type), image)}, 202)

    def _force_delete(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        """Delete a volume in any state but one: the volume that is attached."""
        req.authorize(policies.FORCE_DELETE)
        volume = self.conductor.volume_get(req.context, id)
        if views.attachment_id(volume) is None and volume.instance_uuid is None and volume.status != "deleting":
            self.conductor.volume_update(req.context, id, {"status": "error"})
        self.conductor.volume_delete(req.context, id)
        return Response(status=202)

    def _show_image_metadata(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        return Response({"metadata": self.conductor.volume_get(req.context, id).shown_image_metadata()})

    def _set_image_metadata(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        req.authorize(policies.IMAGE_METADATA)
        if "metadata" not in fields:
            raise exceptions.ValidationError(detail="'metadata' must be specified")
        return self._merge_image_metadata(req, id, dict(requests.metadata(fields["metadata"])))

    def _unset_image_metadata(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        req.authorize(policies.IMAGE_METADATA)
        key = requests.text(fields, "key")
        if not key:
            raise exceptions.ValidationError(detail="The key of an item is needed.")
        _item(self.conductor.volume_get(req.context, id).shown_image_metadata(), key)
        self._merge_image_metadata(req, id, {key: None})
        return Response(status=200)

    def _merge_image_metadata(self, req: ServiceRequest, id: str, items: dict[str, str | None]) -> Response:
        changed = self.conductor.volume_update(req.context, id, {"image_metadata": items}, merge=True)
        return Response({"metadata": changed.shown_image_metadata()})

    def _unmanage(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        self.conductor.volume_get(req.context, id)
        raise exceptions.NotServed(
            what="Removing a volume without its data", instead=" Make an image of the volume, and download that."
        )

    def _update_readonly_flag(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        self.conductor.volume_get(req.context, id)
        if requests.flag(fields.get("readonly"), "readonly"):
            raise exceptions.ValidationError(detail="This cloud has no read-only volumes. Use a snapshot to keep data.")
        return Response(status=202)

    def _refuse_connection(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        self.conductor.volume_get(req.context, id)
        raise exceptions.ValidationError(
            detail="Volumes of this cloud are files of its compute hosts. Attach one to a server with the compute API."
        )

    # --- metadata

    def metadata(self, req: ServiceRequest, id: str) -> Response:
        return Response({"metadata": self.conductor.volume_get(req.context, id).metadata})

    def metadata_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        metadata = self.conductor.volume_get(req.context, id).metadata
        return Response({"meta": {key: _item(metadata, key)}})

    def set_metadata_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        item = _one_item(req, key)
        self._merge_metadata(req, id, dict(item))
        return Response({"meta": item})

    def add_metadata(self, req: ServiceRequest, id: str) -> Response:
        return self._merge_metadata(req, id, dict(requests.metadata(requests.body(req, "metadata"))))

    def set_metadata(self, req: ServiceRequest, id: str) -> Response:
        metadata = requests.metadata(requests.body(req, "metadata"))
        return Response({"metadata": self.conductor.volume_update(req.context, id, {"metadata": metadata}).metadata})

    def remove_metadata(self, req: ServiceRequest, id: str, key: str) -> Response:
        _item(self.conductor.volume_get(req.context, id).metadata, key)
        self._merge_metadata(req, id, {key: None})
        return Response(status=200)

    def _merge_metadata(self, req: ServiceRequest, id: str, items: dict[str, str | None]) -> Response:
        changed = self.conductor.volume_update(req.context, id, {"metadata": items}, merge=True)
        return Response({"metadata": changed.metadata})

    # --- snapshots

    def snapshots(self, req: ServiceRequest) -> Response:
        return self._snapshots(req, whole=False)

    def snapshots_detail(self, req: ServiceRequest) -> Response:
        return self._snapshots(req, whole=True)

    def _snapshots(self, req: ServiceRequest, whole: bool) -> Response:
        query = listing.query_of(req, self.conf.api.max_limit)
        snapshots = self.conductor.snapshot_list(req.context, **query)
        last = snapshots[-1].id if len(snapshots) == query["limit"] and snapshots else None
        minor = versions.minor_of(req.headers) if whole else 0
        shown = [views.snapshot(snapshot, whole, minor) for snapshot in snapshots]
        number = listing.count(req, query, snapshots, self.conductor.snapshot_list)
        return Response({"snapshots": shown, **listing.next_link(req, "snapshots_links", last), **number})

    def show_snapshot(self, req: ServiceRequest, id: str) -> Response:
        found = self.conductor.snapshot_get(req.context, id)
        return Response({"snapshot": views.snapshot(found, True, versions.minor_of(req.headers))})

    def create_snapshot(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "snapshot", _NEW_SNAPSHOT)
        volume_id = requests.an_id(fields, "volume_id")
        if volume_id is None and "volume_id" in fields:
            raise exceptions.VolumeNotFound(volume_id=None)
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_id' must be specified")
        snapshot = VolumeSnapshot(
            id=str(uuid.uuid4()),
            volume_id=volume_id,
            project_id="",
            name=requests.text(fields, "name", "display_name") or "",
            description=requests.text(fields, "description", "display_description"),
            metadata=requests.metadata(fields.get("metadata")),
        )
        minor = versions.minor_of(req.headers)
        force = None if fields.get("force") is None else requests.flag(fields["force"], "force")
        if minor >= versions.SNAPSHOTS_IN_USE:
            if force is False:
                raise exceptions.ValidationError(
                    detail="Since microversion 3.66 the 'force' flag is invalid for this request: leave it out. A "
                    "volume in use needs none. True is ignored."
                )
            force = True
        created = self.conductor.snapshot_create(req.context, snapshot, **({"force": True} if force else {}))
        return Response({"snapshot": views.snapshot(created, False, minor)}, 202)

    def update_snapshot(self, req: ServiceRequest, id: str) -> Response:
        changes = _changes(requests.body(req, "snapshot", _NAMES))
        changed = self.conductor.snapshot_update(req.context, id, changes)
        return Response({"snapshot": views.snapshot(changed, False, versions.minor_of(req.headers))})

    def delete_snapshot(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.snapshot_delete(req.context, id)
        return Response(status=202)

    def snapshot_action(self, req: ServiceRequest, id: str) -> Response:
        name, fields = requests.action(req, _SNAPSHOT_FIELDS)
        notes.of(req.environ).action = name if name in _SNAPSHOT_ACTIONS else ""
        if name == "os-force_delete":
            req.authorize(policies.SNAPSHOT_FORCE_DELETE)
            if self.conductor.snapshot_get(req.context, id).status != "deleting":
                self.conductor.snapshot_update(req.context, id, {"status": "error"})
            self.conductor.snapshot_delete(req.context, id)
        elif name == "os-reset_status":
            req.authorize(policies.SNAPSHOT_RESET_STATUS)
            self.conductor.snapshot_update(req.context, id, {"status": _state(fields, _SNAPSHOT_STATES)})
        elif name == "os-update_snapshot_status":
            req.authorize(policies.SNAPSHOT_UPDATE_STATUS)
            self._update_snapshot_status(req, id, fields)
        else:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        return Response(status=202)

    def _update_snapshot_status(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> None:
        present = self.conductor.snapshot_get(req.context, id).status
        allowed = _SNAPSHOT_CHANGES.get(present, ())
        if not allowed:
            raise exceptions.ValidationError(detail=f"The status of a snapshot that is {present} cannot be updated.")
        changes: dict[str, Any] = {"status": _state(fields, allowed)}
        if fields.get("progress") is not None:
            progress = fields["progress"]
            if not isinstance(progress, str) or not re.fullmatch(r"(100|[0-9]{1,2})%", progress, re.ASCII):
                raise exceptions.ValidationError(detail="progress must be a percentage, as in 80%.")
            changes["progress"] = progress
        self.conductor.snapshot_update(req.context, id, changes)

    def snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        return Response({"metadata": self.conductor.snapshot_get(req.context, id).metadata})

    def snapshot_metadata_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        return Response({"meta": {key: _item(self.conductor.snapshot_get(req.context, id).metadata, key)}})

    def set_snapshot_metadata_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        item = _one_item(req, key)
        self._merge_snapshot_metadata(req, id, dict(item))
        return Response({"meta": item})

    def add_snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        return self._merge_snapshot_metadata(req, id, dict(requests.metadata(requests.body(req, "metadata"))))

    def set_snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        metadata = requests.metadata(requests.body(req, "metadata"))
        return Response({"metadata": self.conductor.snapshot_update(req.context, id, {"metadata": metadata}).metadata})

    def remove_snapshot_metadata(self, req: ServiceRequest, id: str, key: str) -> Response:
        _item(self.conductor.snapshot_get(req.context, id).metadata, key)
        self._merge_snapshot_metadata(req, id, {key: None})
        return Response(status=200)

    def _merge_snapshot_metadata(self, req: ServiceRequest, id: str, items: dict[str, str | None]) -> Response:
        changed = self.conductor.snapshot_update(req.context, id, {"metadata": items}, merge=True)
        return Response({"metadata": changed.metadata})

    # --- limits, quotas, zones

    def limits(self, req: ServiceRequest) -> Response:
        return Response({"limits": views.limits(self.conductor.volume_usage(req.context, str(req.context.project_id)))})

    def quotas(self, req: ServiceRequest, id: str) -> Response:
        with_usage = req.GET.get("usage", "").lower() in ("true", "1")
        use = self.conductor.volume_usage(req.context, id)
        return Response({"quota_set": views.quota_set(use, id, with_usage)})

    def update_quotas(self, req: ServiceRequest, id: str) -> Response:
        limits = requests.quotas(requests.body(req, "quota_set"), self._resources(req))
        if len(id) > 255 or not id:
            raise exceptions.ValidationError(detail="A project's id has at most 255 characters.")
        use = self.conductor.volume_quota_update(req.context, id, limits)
        view = views.quota_set(use, id, with_usage=False)
        del view["id"]
        return Response({"quota_set": view})

    def _resources(self, req: ServiceRequest) -> list[str]:
        """Return the names of all limits."""
        return sorted(self.conductor.volume_usage(req.context, _NO_PROJECT).limits)

    def update_quota_class(self, req: ServiceRequest, name: str) -> Response:
        """Set the limits of all projects that have no own ones, which are those of the class ``default``."""
        if name != "default":
            raise exceptions.NotFound(f"Quota class {name[:64]} could not be found.")
        limits = requests.quotas(requests.body(req, "quota_class_set"), self._resources(req))
        use = self.conductor.volume_quota_update(req.context, _NO_PROJECT, limits)
        view = views.quota_set(use, name, with_usage=False)
        del view["id"]
        return Response({"quota_class_set": view})

    def delete_quotas(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_quota_delete(req.context, id)
        return Response(status=200)

    def quota_defaults(self, req: ServiceRequest, id: str) -> Response:
        use = self.conductor.volume_usage(req.context, _NO_PROJECT)
        return Response({"quota_set": views.quota_set(use, id, with_usage=False)})

    def quota_class(self, req: ServiceRequest, name: str) -> Response:
        """Show the limits of all projects, which are those of the class ``default``."""
        if name != "default":
            raise exceptions.NotFound(f"Quota class {name[:64]} could not be found.")
        use = self.conductor.volume_usage(req.context, _NO_PROJECT)
        return Response({"quota_class_set": views.quota_set(use, name, with_usage=False)})

    def resource_filters(self, req: ServiceRequest) -> Response:
        if versions.minor_of(req.headers) < versions.RESOURCE_FILTERS:
            raise wsgi.UnknownUrl()
        resource = req.GET.get("resource")
        shown = [item for item in views.RESOURCE_FILTERS if resource in (None, item["resource"])]
        return Response({"resource_filters": shown})

    def zones(self, req: ServiceRequest) -> Response:
        zone = {"zoneName": self.conf.compute.default_availability_zone, "zoneState": {"available": True}}
        return Response({"availabilityZoneInfo": [zone]})


def _named(image_ref: str) -> Image:
    """Return an image with only its id. The conductor looks up the rest."""
    return Image(id=image_ref, name="", status="active", disk_format="", container_format="")


def _changes(fields: dict[str, Any]) -> dict[str, Any]:
    changes = _given(fields)
    if not changes:
        raise exceptions.ValidationError(detail="The request body has no changes.")
    return changes


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return name, description and metadata, as far as the request has them."""
    changes: dict[str, Any] = {}
    for name in ("name", "description"):
        if name in fields or f"display_{name}" in fields:
            changes[name] = requests.text(fields, name, f"display_{name}")
    if "name" in changes:
        changes["name"] = changes["name"] or ""
    if "metadata" in fields:
        changes["metadata"] = requests.metadata(fields["metadata"])
    return changes


def _state(fields: dict[str, Any], states: tuple[str, ...]) -> str:
    status = fields.get("status")
    if status not in states:
        raise exceptions.ValidationError(detail=f"Invalid status: it must be one of {', '.join(states)}.")
    return str(status)


def _item(metadata: dict[str, str], key: str) -> str:
    if key not in metadata:
        raise exceptions.NotFound(f"There is no metadata with key {key[:64]}.")
    return metadata[key]


def _one_item(req: ServiceRequest, key: str) -> dict[str, str]:
    """Return the item of a body that has to be about this key alone."""
    item = requests.metadata(requests.body(req, "meta"))
    if item.keys() != {key}:
        raise exceptions.ValidationError(detail="Request body and URI mismatch")
    return item
