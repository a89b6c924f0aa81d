"""``/os-assisted-volume-snapshots``: what Cinder's drivers of files need of servers for snapshots of volumes in use.

The result reaches Cinder later, as the status of its snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http import validation
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects.volume import FILE_NAME
from nova_lite.policies import assisted_volume_snapshots as policies

# --- schemas

_FILE: t.Schema = {"type": "string", "pattern": FILE_NAME}
_TYPE = t.one_of("qcow2")

_CREATE_INFO = t.strict(
    {"snapshot_id": t.UUID, "type": _TYPE, "new_file": _FILE, "id": t.TEXT}, ("snapshot_id", "type", "new_file")
)
CREATE_BODY = t.wrapped(
    "snapshot", t.strict({"volume_id": t.UUID, "create_info": _CREATE_INFO}, ("volume_id", "create_info"))
)

DELETE_QUERY = t.query({"delete_info": t.Q_ANY})

_FILE_OR_NONE: t.Schema = {"type": ["string", "null"], "pattern": FILE_NAME}
#: JSON in the parameter ``delete_info``. As in Nova, more keys do not matter.
DELETE_INFO: t.Schema = {
    "type": "object",
    "properties": {
        "volume_id": t.UUID,
        "type": _TYPE,
        "file_to_merge": _FILE_OR_NONE,
        "merge_target_file": _FILE_OR_NONE,
    },
    "required": ["volume_id", "type"],
}


# --- routes


class AssistedVolumeSnapshots(Extension):
    alias = "os-assisted-volume-snapshots"
    title = "Snapshots of volumes in use, for Cinder"
    routes = (
        Route("POST", "/os-assisted-volume-snapshots", "create"),
        Route("DELETE", "/os-assisted-volume-snapshots/{id}", "delete"),
    )

    @declares(policies.CREATE, body=CREATE_BODY, response="snapshot")
    def create(self, req: Request) -> Response:
        body = req.data["snapshot"]
        info = body["create_info"]
        payload = {"snapshot_id": info["snapshot_id"].lower(), "new_file": info["new_file"]}
        self._accept(req, body["volume_id"], operations.VOLUME_SNAPSHOT_CREATE, payload)
        return Response({"snapshot": {"id": info.get("id"), "volumeId": body["volume_id"]}})

    @declares(policies.DELETE, query=DELETE_QUERY, status=204)
    def delete(self, req: Request, id: str) -> Response:
        if not validation.is_uuid(id):
            raise exceptions.SnapshotNotFound(snapshot_id=id[:64])
        info = _delete_info(req.query.one("delete_info"))
        files = {key: info.get(key) for key in ("file_to_merge", "merge_target_file")}
        self._accept(req, info["volume_id"], operations.VOLUME_SNAPSHOT_DELETE, {"snapshot_id": id.lower(), **files})
        return Response(status=204)

    def _accept(self, req: Request, volume_id: str, operation: operations.Operation, payload: dict[str, Any]) -> None:
        """Request the operation. Nova returns a 400 if the server's state does not allow it."""
        try:
            self.compute.accept_volume_snapshot(req.context.elevated(), volume_id.lower(), operation.kind, payload)
        except exceptions.Conflict as error:
            raise exceptions.Invalid(error.message) from error


def _delete_info(text: str | None) -> dict[str, Any]:
    """Return the content of the parameter. Raises a 400."""
    try:
        info: dict[str, Any] = msgspec.json.decode((text or "").encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise exceptions.InvalidInput(reason="delete_info is no JSON") from error
    validation.validate_body(DELETE_INFO, info)
    if info.get("merge_target_file") is not None and info.get("file_to_merge") is None:
        raise exceptions.InvalidInput(reason="merge_target_file needs a file_to_merge")
    return info
