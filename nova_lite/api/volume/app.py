"""The volume API: the part of Cinder's v3 that clients use, on the built-in backend. Rows are the conductor's, files
the hosts'."""

from __future__ import annotations

import uuid
from typing import Any

import webob
import webob.exc

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.base import exceptions
from nova_lite.objects import Image, Volume, VolumeSnapshot
from nova_lite.policies import volume_service as policies

_ONE = "/volumes/{id}"
_SNAPSHOT = "/snapshots/{id}"

#: States that `os-reset_status` takes.
_STATES = ("available", "creating", "deleting", "error", "error_deleting", "error_extending", "in-use")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> VolumeApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.volume.backend
    if backend != "local":
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: volume serves [volume] backend = local, which is {backend}."
        )
    return VolumeApp(services)


class VolumeApp(rest.ServiceApplication):
    """Mounted at ``/v3``; what follows may begin with the caller's project."""

    routes = (
        ServiceRoute("GET", "/volumes", "index", policies.LIST),
        ServiceRoute("GET", "/volumes/detail", "detail", policies.LIST),
        ServiceRoute("POST", "/volumes", "create", policies.CREATE),
        ServiceRoute("GET", _ONE, "show", policies.SHOW),
        ServiceRoute("PUT", _ONE, "update", policies.UPDATE),
        ServiceRoute("DELETE", _ONE, "delete", policies.DELETE),
        ServiceRoute("POST", f"{_ONE}/action", "act", policies.UPDATE),
        ServiceRoute("GET", f"{_ONE}/metadata", "metadata", policies.METADATA),
        ServiceRoute("POST", f"{_ONE}/metadata", "add_metadata", policies.CHANGE_METADATA),
        ServiceRoute("PUT", f"{_ONE}/metadata", "set_metadata", policies.CHANGE_METADATA),
        ServiceRoute("GET", f"{_ONE}/metadata/{{key}}", "metadata_item", policies.METADATA),
        ServiceRoute("DELETE", f"{_ONE}/metadata/{{key}}", "remove_metadata", policies.CHANGE_METADATA),
        ServiceRoute("GET", "/snapshots", "snapshots", policies.SNAPSHOT_LIST),
        ServiceRoute("GET", "/snapshots/detail", "snapshots_detail", policies.SNAPSHOT_LIST),
        ServiceRoute("POST", "/snapshots", "create_snapshot", policies.SNAPSHOT_CREATE),
        ServiceRoute("GET", _SNAPSHOT, "show_snapshot", policies.SNAPSHOT_SHOW),
        ServiceRoute("PUT", _SNAPSHOT, "update_snapshot", policies.SNAPSHOT_UPDATE),
        ServiceRoute("DELETE", _SNAPSHOT, "delete_snapshot", policies.SNAPSHOT_DELETE),
        ServiceRoute("POST", f"{_SNAPSHOT}/action", "act_on_snapshot", policies.SNAPSHOT_UPDATE),
        ServiceRoute("GET", f"{_SNAPSHOT}/metadata", "snapshot_metadata", policies.SNAPSHOT_SHOW),
        ServiceRoute("POST", f"{_SNAPSHOT}/metadata", "add_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        ServiceRoute("PUT", f"{_SNAPSHOT}/metadata", "set_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        ServiceRoute("DELETE", f"{_SNAPSHOT}/metadata/{{key}}", "remove_snapshot_metadata", policies.SNAPSHOT_UPDATE),
        ServiceRoute("GET", "/attachments", "attachments", policies.ATTACHMENTS),
        ServiceRoute("GET", "/attachments/detail", "attachments_detail", policies.ATTACHMENTS),
        ServiceRoute("GET", "/attachments/{id}", "attachment", policies.ATTACHMENTS),
        ServiceRoute("GET", "/types", "types", policies.TYPES),
        ServiceRoute("GET", "/types/{id}", "type", policies.TYPES),
        ServiceRoute("GET", "/types/{id}/extra_specs", "extra_specs", policies.TYPES),
        ServiceRoute("GET", "/limits", "limits", policies.LIMITS),
        ServiceRoute("GET", "/os-quota-sets/{id}", "quotas", policies.QUOTAS, target={"project_id": "id"}),
        ServiceRoute(
            "GET", "/os-quota-sets/{id}/defaults", "quota_defaults", policies.QUOTAS, target={"project_id": "id"}
        ),
        ServiceRoute("GET", "/os-availability-zone", "zones", policies.ZONES),
        ServiceRoute("GET", "/extensions", "extensions", policies.EXTENSIONS),
    )

    def __init__(self, services: wsgi.ApiServices) -> None:
        super().__init__(services)
        self._places = {route.path.split("/")[1] for route in self.routes}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Without the project's id that clients may put first; one that is not the caller's is nothing. Every answer
        says of which version it is."""
        path = environ.get("PATH_INFO", "")
        first, _, rest_of_path = path.lstrip("/").partition("/")
        context = environ.get(wsgi.CONTEXT)
        if first not in self._places and context is not None and first == context.project_id:
            environ["SCRIPT_NAME"] = f"{environ.get('SCRIPT_NAME', '')}/{first}"
            environ["PATH_INFO"] = "/" + rest_of_path
        return super().__call__(environ, versions.told(environ, start_response))

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return wsgi.fault(code, message)

    # --- volumes

    def index(self, req: ServiceRequest) -> Response:
        found, links = self._volumes(req)
        return Response({"volumes": [views.summary(req, each) for each in found], **links})

    def detail(self, req: ServiceRequest) -> Response:
        found, links = self._volumes(req)
        minor = versions.minor_of(req.headers)
        return Response({"volumes": [views.volume(req, each, minor) for each in found], **links})

    def _volumes(self, req: ServiceRequest) -> tuple[list[Volume], dict[str, Any]]:
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self.conductor.volume_list(req.context, **query)
        last = found[-1].id if len(found) == query["limit"] and found else None
        return found, listing.next_link(req, "volumes_links", last)

    def show(self, req: ServiceRequest, id: str) -> Response:
        volume = self.conductor.volume_get(req.context, id)
        return Response({"volume": views.volume(req, volume, versions.minor_of(req.headers))})

    def create(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "volume")
        kind = requests.text(wanted, "volume_type") or self.conf.volume.default_type
        self._require_type(kind)
        if requests.an_id(wanted, "consistencygroup_id") or requests.an_id(wanted, "backup_id"):
            raise exceptions.ValidationError(detail="There are no groups and no backups of volumes here.")
        image_ref = requests.an_id(wanted, "imageRef") or requests.an_id(wanted, "image_id")
        snapshot_id, source = requests.an_id(wanted, "snapshot_id"), requests.an_id(wanted, "source_volid")
        if sum(each is not None for each in (image_ref, snapshot_id, source)) > 1:
            raise exceptions.ValidationError(detail="A volume is made of an image, a snapshot or a volume: of one.")
        if wanted.get("multiattach") is True:
            raise exceptions.ValidationError(detail="A volume is attached to one server at a time here.")
        images = {} if image_ref is None else self.services.images.describe(req.context, [image_ref])
        size = requests.size(wanted.get("size"))
        if not size and snapshot_id is None and source is None:
            raise exceptions.ValidationError(detail="Invalid input received: size is required.")
        volume = Volume(
            id="",
            project_id="",
            name=requests.text(wanted, "name", "display_name") or "",
            description=requests.text(wanted, "description", "display_description"),
            size=size,
            availability_zone=self._zone(wanted),
            volume_type=self.conf.volume.default_type,
            metadata=requests.metadata(wanted.get("metadata")),
            image=None if image_ref is None else _named(image_ref),
            snapshot_id=snapshot_id,
            source_volid=source,
        )
        made = self.conductor.volume_create(req.context, volume, images)
        return Response({"volume": views.changed(req, made, versions.minor_of(req.headers))}, 202)

    def _require_type(self, kind: str) -> None:
        if kind not in (self.conf.volume.default_type, views.type_id(self.conf.volume.default_type)):
            raise exceptions.NotFound(f"Volume type {kind[:64]} could not be found.")

    def _zone(self, wanted: dict[str, Any]) -> str:
        zone = requests.text(wanted, "availability_zone")
        default = str(self.conf.compute.default_availability_zone)
        if zone not in (None, "", default):
            raise exceptions.ValidationError(detail=f"Invalid input received: Availability zone '{zone}' is invalid.")
        return default

    def update(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.body(req, "volume")
        volume = self.conductor.volume_update(req.context, id, _changes(wanted))
        return Response({"volume": views.changed(req, volume, versions.minor_of(req.headers))})

    def delete(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_delete(req.context, id)
        return Response(status=202)

    def act(self, req: ServiceRequest, id: str) -> Response:
        name, wanted = _action(req)
        if name == "os-extend":
            req.authorize(policies.EXTEND)
            size = requests.size(wanted.get("new_size") or 0, "new_size")
            attached = versions.minor_of(req.headers) >= versions.EXTEND_ATTACHED
            self.conductor.volume_extend(req.context, id, size, attached)
        elif name == "os-reset_status":
            req.authorize(policies.RESET_STATUS)
            self.conductor.volume_update(req.context, id, {"status": _state(wanted)})
        elif name == "os-set_bootable":
            self.conductor.volume_update(
                req.context, id, {"bootable": requests.flag(wanted.get("bootable"), "bootable")}
            )
            return Response(status=200)
        else:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        return Response(status=202)

    # --- metadata

    def metadata(self, req: ServiceRequest, id: str) -> Response:
        return Response({"metadata": self.conductor.volume_get(req.context, id).metadata})

    def metadata_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        metadata = self.conductor.volume_get(req.context, id).metadata
        return Response({"meta": {key: _item(metadata, key)}})

    def add_metadata(self, req: ServiceRequest, id: str) -> Response:
        metadata = self.conductor.volume_get(req.context, id).metadata
        return self._keep(req, id, {**metadata, **requests.metadata(requests.body(req, "metadata"))})

    def set_metadata(self, req: ServiceRequest, id: str) -> Response:
        return self._keep(req, id, requests.metadata(requests.body(req, "metadata")))

    def remove_metadata(self, req: ServiceRequest, id: str, key: str) -> Response:
        self._keep(req, id, _without(self.conductor.volume_get(req.context, id).metadata, key))
        return Response(status=200)

    def _keep(self, req: ServiceRequest, id: str, metadata: dict[str, str]) -> Response:
        return Response({"metadata": self.conductor.volume_update(req.context, id, {"metadata": metadata}).metadata})

    # --- snapshots

    def snapshots(self, req: ServiceRequest) -> Response:
        return self._snapshots(req, whole=False)

    def snapshots_detail(self, req: ServiceRequest) -> Response:
        return self._snapshots(req, whole=True)

    def _snapshots(self, req: ServiceRequest, whole: bool) -> Response:
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self.conductor.snapshot_list(req.context, **query)
        last = found[-1].id if len(found) == query["limit"] and found else None
        shown = [views.snapshot(each, whole) for each in found]
        return Response({"snapshots": shown, **listing.next_link(req, "snapshots_links", last)})

    def show_snapshot(self, req: ServiceRequest, id: str) -> Response:
        return Response({"snapshot": views.snapshot(self.conductor.snapshot_get(req.context, id), whole=True)})

    def create_snapshot(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "snapshot")
        volume_id = requests.an_id(wanted, "volume_id")
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_id' must be specified")
        snapshot = VolumeSnapshot(
            id=str(uuid.uuid4()),
            volume_id=volume_id,
            project_id="",
            name=requests.text(wanted, "name", "display_name") or "",
            description=requests.text(wanted, "description", "display_description"),
            metadata=requests.metadata(wanted.get("metadata")),
        )
        force = requests.flag(wanted.get("force") or False, "force")
        made = self.conductor.snapshot_create(req.context, snapshot, **({"force": True} if force else {}))
        return Response({"snapshot": views.snapshot(made, whole=False)}, 202)

    def update_snapshot(self, req: ServiceRequest, id: str) -> Response:
        changes = _changes(requests.body(req, "snapshot"))
        return Response({"snapshot": views.snapshot(self.conductor.snapshot_update(req.context, id, changes), False)})

    def delete_snapshot(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.snapshot_delete(req.context, id)
        return Response(status=202)

    def act_on_snapshot(self, req: ServiceRequest, id: str) -> Response:
        name, wanted = _action(req)
        if name != "os-reset_status":
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        req.authorize(policies.SNAPSHOT_RESET_STATUS)
        self.conductor.snapshot_update(req.context, id, {"status": _state(wanted)})
        return Response(status=202)

    def snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        return Response({"metadata": self.conductor.snapshot_get(req.context, id).metadata})

    def add_snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        metadata = self.conductor.snapshot_get(req.context, id).metadata
        return self._keep_of_snapshot(req, id, {**metadata, **requests.metadata(requests.body(req, "metadata"))})

    def set_snapshot_metadata(self, req: ServiceRequest, id: str) -> Response:
        return self._keep_of_snapshot(req, id, requests.metadata(requests.body(req, "metadata")))

    def remove_snapshot_metadata(self, req: ServiceRequest, id: str, key: str) -> Response:
        self._keep_of_snapshot(req, id, _without(self.conductor.snapshot_get(req.context, id).metadata, key))
        return Response(status=200)

    def _keep_of_snapshot(self, req: ServiceRequest, id: str, metadata: dict[str, str]) -> Response:
        return Response({"metadata": self.conductor.snapshot_update(req.context, id, {"metadata": metadata}).metadata})

    # --- attachments: the compute API makes and ends them

    def attachments(self, req: ServiceRequest) -> Response:
        return Response({"attachments": [views.attachment(each, whole=False) for each in self._attached(req)]})

    def attachments_detail(self, req: ServiceRequest) -> Response:
        return Response({"attachments": [views.attachment(each, whole=True) for each in self._attached(req)]})

    def attachment(self, req: ServiceRequest, id: str) -> Response:
        for volume in self._attached(req):
            if volume.attachment_id == id:
                return Response({"attachment": views.attachment(volume, whole=True)})
        raise exceptions.NotFound(f"Volume attachment could not be found with filter: attachment_id = {id[:64]}.")

    def _attached(self, req: ServiceRequest) -> list[Volume]:
        if versions.minor_of(req.headers) < versions.ATTACHMENTS:
            raise wsgi.UnknownUrl()
        query = listing.query_of(req, self.conf.api.max_limit)
        return [each for each in self.conductor.volume_list(req.context, **query) if each.attachment_id is not None]

    # --- what there is besides

    def types(self, req: ServiceRequest) -> Response:
        return Response({"volume_types": [views.volume_type(self.conf.volume.default_type)]})

    def type(self, req: ServiceRequest, id: str) -> Response:
        if id != "default":
            self._require_type(id)
        return Response({"volume_type": views.volume_type(self.conf.volume.default_type)})

    def extra_specs(self, req: ServiceRequest, id: str) -> Response:
        self._require_type(id)
        return Response({"extra_specs": {}})

    def limits(self, req: ServiceRequest) -> Response:
        return Response({"limits": views.limits(self.conductor.volume_usage(req.context, str(req.context.project_id)))})

    def quotas(self, req: ServiceRequest, id: str) -> Response:
        with_usage = req.GET.get("usage", "").lower() in ("true", "1")
        use = self.conductor.volume_usage(req.context, id)
        return Response({"quota_set": views.quota_set(use, id, with_usage)})

    def quota_defaults(self, req: ServiceRequest, id: str) -> Response:
        use = self.conductor.volume_usage(req.context, id)
        return Response({"quota_set": views.quota_set(use, id, with_usage=False)})

    def zones(self, req: ServiceRequest) -> Response:
        zone = {"zoneName": self.conf.compute.default_availability_zone, "zoneState": {"available": True}}
        return Response({"availabilityZoneInfo": [zone]})

    def extensions(self, req: ServiceRequest) -> Response:
        return Response({"extensions": []})


def _named(image_ref: str) -> Image:
    """No more than which: what it is the conductor finds out."""
    return Image(id=image_ref, name="", status="active", disk_format="", container_format="")


def _changes(wanted: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in ("name", "description"):
        if name in wanted or f"display_{name}" in wanted:
            changes[name] = requests.text(wanted, name, f"display_{name}")
    if "name" in changes:
        changes["name"] = changes["name"] or ""
    if "metadata" in wanted:
        changes["metadata"] = requests.metadata(wanted["metadata"])
    if not changes:
        raise exceptions.ValidationError(detail="There is nothing to change in the request body.")
    return changes


def _action(req: ServiceRequest) -> tuple[str, dict[str, Any]]:
    """The one key of the body, and what is under it."""
    value = req.json_object()
    if len(value) != 1:
        raise exceptions.ValidationError(detail="The body has one key, which names the action.")
    name, wanted = next(iter(value.items()))
    if wanted is not None and not isinstance(wanted, dict):
        raise exceptions.ValidationError(detail=f"What {name[:64]} takes is an object.")
    return name, wanted or {}


def _state(wanted: dict[str, Any]) -> str:
    status = wanted.get("status")
    if status not in _STATES:
        raise exceptions.ValidationError(detail=f"Invalid status: it has to be one of {', '.join(_STATES)}.")
    return str(status)


def _item(metadata: dict[str, str], key: str) -> str:
    if key not in metadata:
        raise exceptions.NotFound(f"There is no metadata with key {key[:64]}.")
    return metadata[key]


def _without(metadata: dict[str, str], key: str) -> dict[str, str]:
    _item(metadata, key)
    return {name: value for name, value in metadata.items() if name != key}
