"""A small Cinder over HTTP: volumes, snapshots and attachments with Cinder's states, in memory. It can be made to
fail.
"""

from __future__ import annotations

import json
import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from nova_lite.api.http import server
from nova_lite.daemon import sockets
from tests.support.waiting import wait_for_none

#: Environment of daemons that connect volumes in files, by a small os-brick.
BRICK = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "brick"), os.environ.get("PYTHONPATH", "")])}

SECRET = "the-key-of-the-volume"
SERVICE = "service-token"

#: Failures in `Cinder.troubles`: done, then 500; not done, and 500; done, and a response after ``seconds``; done only
#: after ``seconds``; done, and the connection is cut.
ERROR_AFTER, ERROR_BEFORE, LATE, DONE_LATE, CUT = "error after", "error before", "late", "done late", "cut"


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cinder:
    """``transport``: "rbd" or "nfs". ``reports``: snapshots and statuses that were reported to it.

    ``token``s of users are ``user:project``, as with noauth2. ``troubles``: (method, pattern of the path, what),
    taken once each, in order. ``asked``: method and path of each request, and whether a service token came with it."""

    def __init__(self) -> None:
        self.volumes: dict[str, dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.attachments: dict[str, dict[str, Any]] = {}
        self.troubles: list[tuple[str, str, str]] = []
        self.seconds = 0.0
        self.asked: list[tuple[str, str, bool]] = []
        self.becomes = "available"
        self.transport = "rbd"
        self.reports: list[tuple[str, str]] = []
        self._mutex = threading.RLock()
        self._running = 0
        self._stopped = threading.Event()
        self._port = 0
        self.start()

    def start(self) -> None:
        sock = sockets.listen("127.0.0.1", self._port)
        self._port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v3"
        self._server = server.make_server(sock, self._answer, 8, None)
        self._server.start()
        self._stopped.clear()

    def stop(self) -> None:
        self._stopped.set()
        self._server.stop(1)

    def options(self, timeout: float = 2) -> str:
        return f"""
[volume]
backend = cinder
[cinder]
auth_type = admin_token
endpoint = {self.url}
token = {SERVICE}
timeout = {timeout}
connect_retries = 0
"""

    # --- what tests say and see

    def volume(self, project: str = "p1", **values: Any) -> str:
        volume_id = str(uuid.uuid4())
        self.volumes[volume_id] = {
            "id": volume_id,
            "name": "",
            "size": 1,
            "status": "available",
            "bootable": "false",
            "multiattach": False,
            "os-vol-tenant-attr:tenant_id": project,
            "metadata": {},
            **values,
        }
        return volume_id

    def snapshot(self, volume_id: str) -> str:
        snapshot_id = str(uuid.uuid4())
        of = self.volumes[volume_id]
        self.snapshots[snapshot_id] = {
            "id": snapshot_id,
            "volume_id": volume_id,
            "size": of["size"],
            "status": "available",
            "os-vol-tenant-attr:tenant_id": of["os-vol-tenant-attr:tenant_id"],
        }
        return snapshot_id

    def begun(self, volume_id: str, status: str = "creating") -> str:
        """Return a snapshot for which this Cinder needs help."""
        snapshot_id = self.snapshot(volume_id)
        self.snapshots[snapshot_id] |= {"status": status, "progress": "0%"}
        return snapshot_id

    def held(self, volume_id: str) -> list[tuple[str, str, str | None]]:
        """Return server, status and host of each attachment of a volume."""
        with self._mutex:
            mine = [attachment for attachment in self.attachments.values() if attachment["volume_id"] == volume_id]
        return sorted((item["instance"], item["status"], item["host"]) for item in mine)

    def count(self, method: str, pattern: str) -> int:
        return sum(item[0] == method and re.search(pattern, item[1]) is not None for item in self.asked)

    # --- HTTP

    def wait_idle(self) -> None:
        """Wait until no request runs, also of a caller that has given up."""
        wait_for_none("running requests", lambda: self._running, 30)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with self._mutex:
            self._running += 1
        try:
            return self._handle(environ, start_response)
        finally:
            with self._mutex:
                self._running -= 1

    def _handle(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = json.loads(environ["wsgi.input"].read(length) or b"{}")
        self.asked.append((method, path, environ.get("HTTP_X_SERVICE_TOKEN") == SERVICE))
        trouble = self._trouble(method, path)
        if trouble == ERROR_BEFORE:
            return _say(start_response, 500, {})
        if trouble == DONE_LATE:
            self._stopped.wait(self.seconds)
        try:
            with self._mutex:
                status, answer = self._do(environ, method, path, body)
        except Refused as error:
            status, answer = error.status, {"badRequest": {"code": error.status, "message": str(error)}}
        if trouble == LATE:
            self._stopped.wait(self.seconds)
        if trouble == CUT:
            raise ConnectionError("a test cuts it")
        return _say(start_response, 500, {}) if trouble == ERROR_AFTER else _say(start_response, status, answer)

    def _trouble(self, method: str, path: str) -> str | None:
        with self._mutex:
            for trouble in self.troubles:
                if trouble[0] == method and re.search(trouble[1], path):
                    self.troubles.remove(trouble)
                    return trouble[2]
        return None

    def _do(self, environ: dict[str, Any], method: str, path: str, body: Any) -> tuple[int, Any]:
        token = environ.get("HTTP_X_AUTH_TOKEN", "")
        project = None if token == SERVICE else token.partition(":")[2]
        query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        _, _, _, kind, *rest = path.split("/")
        if kind == "attachments" and project is not None:
            raise Refused(403, "Policy doesn't allow it to be performed.")
        handler: Callable[..., tuple[int, Any]] = getattr(self, f"_{method.lower()}_{kind}")
        return handler(project, query, body, *rest)

    def _visible(self, things: dict[str, dict[str, Any]], thing_id: str, project: str | None) -> dict[str, Any]:
        found = things.get(thing_id)
        if found is None or project not in (None, found["os-vol-tenant-attr:tenant_id"]):
            raise Refused(404, f"{thing_id} could not be found.")
        return found

    def _get_volumes(self, project: str | None, query: dict[str, str], body: Any, which: str) -> tuple[int, Any]:
        if which != "detail":
            return 200, {"volume": self._visible(self.volumes, which, project)}
        wanted = dict(re.findall(r"'([^']*)': '([^']*)'", query.get("metadata", "{}")))
        return 200, {
            "volumes": [volume for volume in self.volumes.values() if wanted.items() <= volume["metadata"].items()]
        }

    def _post_volumes(self, project: str | None, query: dict[str, str], body: Any) -> tuple[int, Any]:
        asked = body["volume"]
        if asked["size"] > 100:
            raise Refused(413, "VolumeSizeExceedsAvailableQuota")
        image = {"volume_image_metadata": {"image_id": asked["imageRef"]}} if asked.get("imageRef") else {}
        volume_id = self.volume(
            str(project),
            size=asked["size"],
            metadata=asked["metadata"],
            status=self.becomes,
            snapshot_id=asked.get("snapshot_id"),
            **image,
        )
        return 202, {"volume": {**self.volumes[volume_id], "status": "creating"}}

    def _delete_volumes(self, project: str | None, query: dict[str, str], body: Any, which: str) -> tuple[int, Any]:
        found = self._visible(self.volumes, which, project)
        if found["status"] not in ("available", "error") or self.held(which):
            raise Refused(400, f"Volume status must be available or error, it is {found['status']}")
        del self.volumes[which]
        return 202, {}

    def _get_snapshots(self, project: str | None, query: dict[str, str], body: Any, which: str) -> tuple[int, Any]:
        return 200, {"snapshot": self._visible(self.snapshots, which, project)}

    def _post_snapshots(
        self, project: None, query: dict[str, str], body: Any, which: str, action: str
    ) -> tuple[int, Any]:
        """Take a report about a snapshot. A finished one has its file, which the attachment names then."""
        found, (kind, report) = self._visible(self.snapshots, which, project), *body.items()
        allowed = {"creating": ("creating", "error"), "deleting": ("deleting", "error_deleting")}
        if kind != "os-update_snapshot_status" or report["status"] not in allowed.get(found["status"], ()):
            raise Refused(400, f"Snapshot status {found['status']} not allowed for update_snapshot_status")
        found |= report
        self.reports.append((which, report["status"]))
        for attachment in self.attachments.values():
            if report["status"] == "creating" and attachment["volume_id"] == found["volume_id"]:
                attachment["connection_info"]["name"] = f"volume-{found['volume_id']}.{which}"
        return 202, {}

    def _get_attachments(self, project: None, query: dict[str, str], body: Any, which: str = "") -> tuple[int, Any]:
        if which:
            return 200, self._shown(which)
        found = [
            {
                "id": attachment["id"],
                "status": attachment["status"],
                "instance": attachment["instance"],
                "volume_id": attachment["volume_id"],
            }
            for attachment in self.attachments.values()
            if (attachment["volume_id"], attachment["instance"]) == (query["volume_id"], query["instance_id"])
        ]
        return 200, {"attachments": found}

    def _shown(self, which: str) -> dict[str, Any]:
        if which not in self.attachments:
            raise Refused(404, f"Attachment {which} could not be found.")
        return {"attachment": self.attachments[which]}

    def _post_attachments(
        self, project: None, query: dict[str, str], body: Any, which: str = "", action: str = ""
    ) -> tuple[int, Any]:
        if action:
            self._shown(which)
            self.attachments[which]["status"] = "attached"
            self.volumes[self.attachments[which]["volume_id"]]["status"] = "in-use"
            return 204, {}
        wanted = body["attachment"]
        volume, instance = self._visible(self.volumes, wanted["volume_uuid"], None), wanted["instance_uuid"]
        others = {item[0] for item in self.held(volume["id"])}
        allowed = ("available", "in-use") if volume["multiattach"] else ("available",)
        if volume["status"] not in allowed and instance not in others:
            raise Refused(400, f"Invalid volume: Volume {volume['id']} status must be {' or '.join(allowed)}")
        made = {"id": str(uuid.uuid4()), "status": "reserved", "instance": instance, "volume_id": volume["id"]}
        self.attachments[made["id"]] = {**made, "host": None, "connection_info": {}}
        if volume["status"] in allowed:
            volume["status"] = "reserved"
        return 200, self._shown(made["id"])

    def _put_attachments(self, project: None, query: dict[str, str], body: Any, which: str) -> tuple[int, Any]:
        self._shown(which)
        info = {
            "driver_volume_type": "rbd",
            "name": f"volumes/volume-{self.attachments[which]['volume_id']}",
            "hosts": ["127.0.0.1"],
            "ports": ["6789"],
            "auth_enabled": True,
            "auth_username": "cinder",
            "secret_uuid": str(uuid.uuid4()),
            "keyring": SECRET,
        }
        if self.transport == "nfs":
            file = f"volume-{self.attachments[which]['volume_id']}"
            info = {"driver_volume_type": "nfs", "export": "127.0.0.1:/v", "name": file, "format": "raw"}
        volume = self.volumes[self.attachments[which]["volume_id"]]
        info["access_mode"] = "ro" if volume["metadata"].get("readonly") == "True" else "rw"
        host = body["attachment"]["connector"]["host"]
        self.attachments[which] |= {"status": "attaching", "host": host, "connection_info": info}
        return 200, self._shown(which)

    def _delete_attachments(self, project: None, query: dict[str, str], body: Any, which: str) -> tuple[int, Any]:
        self._shown(which)
        volume_id = self.attachments.pop(which)["volume_id"]
        left = {status for _, status, _ in self.held(volume_id)}
        if not left or self.volumes[volume_id]["multiattach"]:
            self.volumes[volume_id]["status"] = "in-use" if "attached" in left else max(left, default="available")
        return 200, {"attachments": []}


def _say(start_response: Any, status: int, body: Any) -> list[bytes]:
    data = b"" if status == 204 else json.dumps(body).encode()
    start_response(f"{status} -", [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]
