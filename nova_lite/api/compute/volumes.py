"""``/os-volumes`` and ``/os-snapshots`` until 2.35: the built-in backend's volumes, for clients of the compute API.

``/os-volumes_boot`` until 2.102 is ``/servers`` under another name.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute.servers import routes
from nova_lite.api.compute.view_helpers import iso_micros
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import LAST_WITH_PROXIES, Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Volume, VolumeFilters, VolumeSnapshot
from nova_lite.policies import volumes as policies

# --- schemas

_TEXT: t.Schema = {"type": "string", "maxLength": 255, "format": "printable"}

CREATE_BODY: t.Schema = t.wrapped(
    "volume",
    {
        "type": "object",
        "properties": {
            "size": t.POSITIVE,
            "display_name": _TEXT,
            "display_description": _TEXT,
            "metadata": t.METADATA,
            "snapshot_id": {"oneOf": [t.UUID, {"type": "string", "maxLength": 0}]},
            "volume_type": _TEXT,
            "availability_zone": _TEXT,
        },
        "required": ["size"],
    },
)

CREATE_SNAPSHOT_BODY: t.Schema = t.wrapped(
    "snapshot",
    {
        "type": "object",
        "properties": {
            "volume_id": t.UUID,
            "force": t.BOOLEAN,
            "display_name": _TEXT,
            "display_description": _TEXT,
        },
        "required": ["volume_id"],
    },
)


# --- routes

T = TypeVar("T")

_LAST_BOOT = Change.NO_VOLUMES_BOOT - 1


class Volumes(Extension):
    alias = "os-volumes"
    title = "Volumes and their snapshots"
    routes = (
        Route("GET", "/os-volumes", "index", until=LAST_WITH_PROXIES),
        Route("POST", "/os-volumes", "create", until=LAST_WITH_PROXIES),
        Route("GET", "/os-volumes/detail", "detail", until=LAST_WITH_PROXIES),
        Route("GET", "/os-volumes/{id}", "show", until=LAST_WITH_PROXIES),
        Route("DELETE", "/os-volumes/{id}", "delete", until=LAST_WITH_PROXIES),
        Route("GET", "/os-snapshots", "snapshots", until=LAST_WITH_PROXIES),
        Route("POST", "/os-snapshots", "create_snapshot", until=LAST_WITH_PROXIES),
        Route("GET", "/os-snapshots/detail", "snapshots_detail", until=LAST_WITH_PROXIES),
        Route("GET", "/os-snapshots/{id}", "snapshot", until=LAST_WITH_PROXIES),
        Route("DELETE", "/os-snapshots/{id}", "delete_snapshot", until=LAST_WITH_PROXIES),
    )

    @declares(policies.LIST, query=t.OFFSET_PAGING, response="volumes")
    def index(self, req: Request) -> Response:
        return self._volumes(req)

    @declares(policies.DETAIL, query=t.OFFSET_PAGING, response="volumes")
    def detail(self, req: Request) -> Response:
        return self._volumes(req)

    def _volumes(self, req: Request) -> Response:
        filters = VolumeFilters(project_id=req.context.project_id)
        volumes = self.conductor.volume_list(req.context, filters, None, None, [], [], 0)
        return Response({"volumes": [_volume_view(volume) for volume in _page(req, volumes)]})

    @declares(policies.SHOW, response="volume")
    def show(self, req: Request, id: str) -> Response:
        return Response(
            {"volume": _volume_view(self.conductor.volume_get(req.context, _id(id, exceptions.VolumeNotFound)))}
        )

    @declares(policies.CREATE, body=CREATE_BODY, response="volume")
    def create(self, req: Request) -> Response:
        body = req.data["volume"]
        kind = body.get("volume_type") or self.conf.volume.default_type
        zone = self.conf.compute.default_availability_zone
        if body.get("availability_zone") not in (None, "", zone):
            raise exceptions.InvalidInput(reason=f"Availability zone '{body['availability_zone'][:64]}' is invalid")
        volume = Volume(
            id="",
            project_id="",
            name=body.get("display_name") or "",
            description=body.get("display_description"),
            size=int(body["size"]),
            availability_zone=zone,
            volume_type=kind,
            metadata=body.get("metadata") or {},
            snapshot_id=body.get("snapshot_id") or None,
            multiattach=True,
        )
        try:
            created = self.conductor.volume_create(req.context, volume, {})
        except exceptions.VolumeTypeNotFound as error:
            raise exceptions.InvalidInput(reason=f"there is no volume type {kind[:64]}") from error
        return Response({"volume": _volume_view(created)}, headers={"Location": req.link("os-volumes", created.id)})

    @declares(policies.DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        self.conductor.volume_delete(req.context, _id(id, exceptions.VolumeNotFound))
        return Response(status=202)

    # --- snapshots

    @declares(policies.SNAPSHOTS_LIST, query=t.OFFSET_PAGING, response="snapshots")
    def snapshots(self, req: Request) -> Response:
        return self._snapshots(req)

    @declares(policies.SNAPSHOTS_DETAIL, query=t.OFFSET_PAGING, response="snapshots")
    def snapshots_detail(self, req: Request) -> Response:
        return self._snapshots(req)

    def _snapshots(self, req: Request) -> Response:
        filters = VolumeFilters(project_id=req.context.project_id)
        snapshots = self.conductor.snapshot_list(req.context, filters, None, None, [], [], 0)
        return Response({"snapshots": [_snapshot_view(snapshot) for snapshot in _page(req, snapshots)]})

    @declares(policies.SNAPSHOTS_SHOW, response="snapshot")
    def snapshot(self, req: Request, id: str) -> Response:
        snapshot = self.conductor.snapshot_get(req.context, _id(id, exceptions.SnapshotNotFound))
        return Response({"snapshot": _snapshot_view(snapshot)})

    @declares(policies.SNAPSHOTS_CREATE, body=CREATE_SNAPSHOT_BODY, response="snapshot")
    def create_snapshot(self, req: Request) -> Response:
        """Create a snapshot. ``force`` allows it for an attached volume."""
        body = req.data["snapshot"]
        snapshot = VolumeSnapshot(
            id=str(uuid.uuid4()),
            volume_id=body["volume_id"],
            project_id="",
            name=body.get("display_name") or "",
            description=body.get("display_description"),
        )
        force = {"force": True} if strutils.bool_from_string(body.get("force") or False) else {}
        return Response({"snapshot": _snapshot_view(self.conductor.snapshot_create(req.context, snapshot, **force))})

    @declares(policies.SNAPSHOTS_DELETE, status=202)
    def delete_snapshot(self, req: Request, id: str) -> Response:
        self.conductor.snapshot_delete(req.context, _id(id, exceptions.SnapshotNotFound))
        return Response(status=202)


class VolumesBoot(routes.Servers):
    alias = "os-volumes-boot"
    title = "Servers that boot from volumes"
    routes = tuple(
        Route(route.method, route.path.replace("/servers", "/os-volumes_boot"), route.handler, until=_LAST_BOOT)
        for route in routes.Servers.routes
        if route.action is None
    )


def _page(req: Request, items: Sequence[T]) -> Sequence[T]:
    return items[int(req.query.one("offset") or 0) :][: req.query.limit]


def _id(text: str, missing: type[exceptions.NotFound]) -> str:
    """Return the id if it is a uuid. Raise the error ``missing`` if it cannot exist."""
    if not validation.is_uuid(text):
        what = "volume_id" if missing is exceptions.VolumeNotFound else "snapshot_id"
        raise missing(**{what: text[:64]})
    return text


def _volume_view(volume: Volume) -> dict[str, Any]:
    attachment: dict[str, Any] = {}
    if found := [item for item in volume.all_attachments() if not item.recorded]:
        attachment = {
            "id": volume.id,
            "volumeId": volume.id,
            "serverId": found[0].instance_uuid,
            "device": found[0].device,
        }
    return {
        "id": volume.id,
        "status": volume.status,
        "size": volume.size,
        "availabilityZone": volume.availability_zone,
        "createdAt": iso_micros(volume.created_at),
        "attachments": [attachment],
        "displayName": volume.name,
        "displayDescription": volume.description,
        "volumeType": volume.volume_type,
        "snapshotId": volume.snapshot_id,
        "metadata": volume.metadata,
    }


def _snapshot_view(snapshot: VolumeSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "volumeId": snapshot.volume_id,
        "status": snapshot.status,
        "size": snapshot.size,
        "createdAt": iso_micros(snapshot.created_at),
        "displayName": snapshot.name,
        "displayDescription": snapshot.description,
    }
