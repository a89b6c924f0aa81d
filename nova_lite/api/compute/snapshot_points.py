"""``/servers/{server_id}/os-snapshot-points``: states of servers' own disks, to which they can be reverted."""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Instance, SnapshotPoint
from nova_lite.policies import servers as policies

# --- schemas

POINT_BODY = t.wrapped(
    "snapshot_point",
    t.strict({"name": t.NAME, "description": t.DESCRIPTION, "memory": {"type": "boolean"}}, ("name",)),
)
REVERT_BODY = t.wrapped("revert", t.strict({"memory": {"type": "boolean"}}))


# --- routes

_PATH = "/servers/{server_id}/os-snapshot-points"
_ONE = _PATH + "/{id}"


class SnapshotPoints(Extension):
    alias = "os-snapshot-points"
    title = "Snapshot points of a server"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("GET", _ONE, "show"),
        Route("DELETE", _ONE, "delete"),
        Route("POST", _ONE + "/revert", "revert"),
    )

    @declares(policies.POINTS_INDEX, query=t.NO_PARAMETERS_STRICT, response="snapshot_points")
    def index(self, req: Request, server_id: str) -> Response:
        """List the snapshot points of a server, the oldest first.

        ``parent_id`` of each names the point from which the disk came when it was made. The disk comes from the point
        that ``is_current`` now.
        """
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"snapshot_points": [_view(point) for point in instance.points]})

    @declares(policies.POINTS_CREATE, body=POINT_BODY, status=202, response="snapshot_point", faults=(409,))
    def create(self, req: Request, server_id: str) -> Response:
        """Create a snapshot point of a server, with ``memory`` if it is active.

        It is ``available`` as soon as its host has made it, and disappears if that fails. The guest continues. It
        stands still while its memory is written to a file.
        """
        body = req.data["snapshot_point"]
        payload = {"name": body["name"], "description": body.get("description"), "memory": body.get("memory", False)}
        command = self.compute.accept(req.context, server_id, operations.CREATE_POINT.kind, payload)
        return Response({"snapshot_point": _view(_find(command.instance, command.payload["point_id"]))}, 202)

    @declares(policies.POINTS_SHOW, query=t.NO_PARAMETERS_STRICT, response="snapshot_point")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        return Response({"snapshot_point": _view(_find(self.conductor.instance_get(req.context, server_id), id))})

    @declares(policies.POINTS_DELETE, status=202, faults=(409,))
    def delete(self, req: Request, server_id: str, id: str) -> Response:
        """Delete a snapshot point. The points that were made after it stay, and get its parent."""
        self.compute.accept(req.context, server_id, operations.DELETE_POINT.kind, {"point_id": id})
        return Response(status=202)

    @declares(policies.POINTS_REVERT, body=REVERT_BODY, status=202, faults=(409,))
    def revert(self, req: Request, server_id: str, id: str) -> Response:
        """Revert a server to a snapshot point. Later data of its disk are lost, unless another point has them.

        With the memory of the point the server continues as it was then. ``memory`` false boots an active server, and
        leaves others off. Without it the memory is used if the point has it.
        """
        payload = {"point_id": id, "memory": req.data["revert"].get("memory")}
        self.compute.accept(req.context, server_id, operations.REVERT_TO_POINT.kind, payload)
        return Response(status=202)


def _find(instance: Instance, point_id: str) -> SnapshotPoint:
    for point in instance.points:
        if point.id == point_id:
            return point
    raise exceptions.PointNotFound(point_id=point_id[:64])


def _view(point: SnapshotPoint) -> dict[str, Any]:
    return {
        "id": point.id,
        "name": point.name,
        "description": point.description,
        "parent_id": point.parent_id,
        "is_current": point.is_current,
        "memory": point.memory_of is not None,
        "status": point.state,
        "created_at": view_helpers.iso_seconds(point.created_at),
    }
