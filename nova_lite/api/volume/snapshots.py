"""Snapshots of volumes, and their actions."""

from __future__ import annotations

import re
from typing import Annotated, Any

from nova_lite.api.http.bodies import Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource, action
from nova_lite.base import exceptions
from nova_lite.objects import VolumeSnapshot
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/snapshots", "/snapshots/{id}", "snapshot"

#: New statuses of `os-update_snapshot_status` by the present one.
_CHANGES = {"creating": ("creating", "available", "error"), "deleting": ("deleting", "error_deleting")}

#: States that `os-reset_status` accepts.
STATES = ("available", "creating", "deleting", "error", "error_deleting")


def _volume_id(fields: dict[str, Any], name: str) -> str:
    value = requests.an_id(fields, name)
    if value is None and name in fields:
        raise exceptions.VolumeNotFound(volume_id=None)
    if value is None:
        raise exceptions.ValidationError(detail="'volume_id' must be specified")
    return value


def _force(fields: dict[str, Any], name: str) -> bool | None:
    return None if fields.get(name) is None else requests.flag(fields[name], name)


def _progress(fields: dict[str, Any], name: str) -> str | None:
    progress = fields.get(name)
    if progress is None:
        return None
    if not isinstance(progress, str) or not re.fullmatch(r"(100|[0-9]{1,2})%", progress, re.ASCII):
        raise exceptions.ValidationError(detail="progress must be a percentage, as in 80%.")
    return progress


class NewSnapshot(requests.Named, kw_only=True):
    volume_id: Annotated[str, checked(_volume_id, format="uuid")]
    force: Annotated[bool | None, checked(_force)] = None


class SnapshotStatus(Body):
    status: Annotated[str, requests.state(*STATES)]


class SnapshotProgress(Body):
    status: requests.Anything = None
    progress: Annotated[str | None, checked(_progress)] = None


class Snapshots(VolumeResource):
    """Snapshots of volumes."""

    @route("GET", _ALL, policies.SNAPSHOT_LIST, query=listing.PARAMETERS, response="snapshots")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.conductor.snapshot_list, lambda snapshot: views.snapshot(snapshot, False, 0))

    @route("GET", f"{_ALL}/detail", policies.SNAPSHOT_LIST, query=listing.PARAMETERS, response="snapshots")
    def detail(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req)
        return self.listed(req, self.conductor.snapshot_list, lambda snapshot: views.snapshot(snapshot, True, minor))

    @route("GET", _ONE, policies.SNAPSHOT_SHOW, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return views.snapshot(self.conductor.snapshot_get(req.context, id), True, versions.minor_of(req))

    @route("POST", _ALL, policies.SNAPSHOT_CREATE, body=NewSnapshot, key=_KEY, response=_KEY, status=202)
    def create(self, req: ServiceRequest) -> views.View:
        body, minor = requests.read(req, NewSnapshot), versions.minor_of(req)
        snapshot = requests.new(VolumeSnapshot, body, project_id="")
        force = body.force
        if minor >= versions.SNAPSHOTS_IN_USE:
            if force is False:
                raise exceptions.ValidationError(
                    detail="Since microversion 3.66 the 'force' flag is invalid for this request: leave it out. A "
                    "volume in use needs none. True is ignored."
                )
            force = True
        created = self.conductor.snapshot_create(req.context, snapshot, **({"force": True} if force else {}))
        return views.snapshot(created, False, minor)

    @route("PUT", _ONE, policies.SNAPSHOT_UPDATE, body=requests.Named, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changed = self.conductor.snapshot_update(req.context, id, requests.changes(req, requests.Named))
        return views.snapshot(changed, False, versions.minor_of(req))

    @route("DELETE", _ONE, policies.SNAPSHOT_DELETE, status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.snapshot_delete(req.context, id)

    # --- actions

    @route("POST", f"{_ONE}/action", policies.SNAPSHOT_UPDATE, status=202)
    def act(self, req: ServiceRequest, id: str) -> Response:
        return super().act(req, id)

    @action("os-force_delete", policies.SNAPSHOT_FORCE_DELETE)
    def force_delete(self, req: ServiceRequest, id: str) -> None:
        if self.conductor.snapshot_get(req.context, id).status != "deleting":
            self.conductor.snapshot_update(req.context, id, {"status": "error"})
        self.conductor.snapshot_delete(req.context, id)

    @action("os-reset_status", policies.SNAPSHOT_RESET_STATUS, body=SnapshotStatus)
    def reset_status(self, req: ServiceRequest, id: str, body: SnapshotStatus) -> None:
        self.conductor.snapshot_update(req.context, id, {"status": body.status})

    @action("os-update_snapshot_status", policies.SNAPSHOT_UPDATE_STATUS, body=SnapshotProgress)
    def update_status(self, req: ServiceRequest, id: str, body: SnapshotProgress) -> None:
        present = self.conductor.snapshot_get(req.context, id).status
        allowed = _CHANGES.get(present, ())
        if not allowed:
            raise exceptions.ValidationError(detail=f"The status of a snapshot that is {present} cannot be updated.")
        if body.status not in allowed:
            raise exceptions.ValidationError(detail=requests.WRONG_STATUS.format(", ".join(allowed)))
        progress = {} if body.progress is None else {"progress": body.progress}
        self.conductor.snapshot_update(req.context, id, {"status": body.status, **progress})
