"""Requests of Kubernetes' Cinder CSI plug-in (cloud-provider-openstack), which it sends with gophercloud.

They were written down from its source, method by method: the plug-in itself does not run here. Like gophercloud it
names no version of an API, except the two that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import webob

from tests.support.waiting import wait_for

#: Sends a request: service, method, path, body, and the header with the API's version.
Send = Callable[[str, str, str, Any, str], webob.Response]

CLUSTER = "cinder.csi.openstack.org/cluster"
DESCRIPTION = "Created by OpenStack Cinder CSI driver"
#: Versions for extending a volume that a node has, and for a volume of a backup.
EXPAND_IN_USE, FROM_BACKUP = "volume 3.42", "volume 3.51"


class CinderCsi:
    """The controller service."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def call(self, service: str, method: str, path: str, body: Any = None, version: str = "") -> Any:
        """Return the body of a response that gophercloud accepts."""
        response = self._send(service, method, path, body, version)
        accepted = {"GET": (200,), "POST": (200, 201, 202), "DELETE": (202, 204)}[method]
        assert response.status_code in accepted, f"{method} {path}: {response.status_code} {response.text}"
        return response.json if response.body else None

    def status(self, service: str, method: str, path: str, body: Any = None) -> int:
        return int(self._send(service, method, path, body, "").status_code)

    # --- volumes

    def create_volume(self, name: str, size: int, version: str = "", **source: Any) -> dict[str, Any]:
        """Return the volume of this name, which is created unless there is one."""
        found = self.call("volume", "GET", f"/volumes/detail?name={name}")["volumes"]
        if found:
            assert [volume["size"] for volume in found] == [size]
            return dict(found[0])
        metadata = {CLUSTER: "kubernetes", "csi.storage.k8s.io/pvc/name": "data", **source.pop("metadata", {})}
        body = {"volume": {"name": name, "size": size, "metadata": metadata, **source}}
        made = self.call("volume", "POST", "/volumes", body, version)["volume"]
        assert made["size"] == size
        assert made["availability_zone"]
        return dict(made)

    def volume(self, volume_id: str) -> dict[str, Any]:
        return dict(self.call("volume", "GET", f"/volumes/{volume_id}")["volume"])

    def settle(self, volume_id: str, status: str) -> dict[str, Any]:
        wait_for(f"the volume is {status}", lambda: self.volume(volume_id)["status"] == status)
        return self.volume(volume_id)

    def list_volumes(self, limit: int) -> list[list[str]]:
        """Return pages of ids. The plug-in takes the next marker out of the link."""
        pages, path = [], f"/volumes/detail?limit={limit}"
        while path:
            found = self.call("volume", "GET", path)
            pages.append([volume["id"] for volume in found["volumes"]])
            links = [link["href"] for link in found.get("volumes_links", []) if link["rel"] == "next"]
            path = f"/volumes/detail?{links[0].partition('?')[2]}" if links else ""
        return pages

    def delete_volume(self, volume_id: str) -> None:
        assert not self.volume(volume_id)["attachments"]
        self.call("volume", "DELETE", f"/volumes/{volume_id}")
        wait_for("it is gone", lambda: self.status("volume", "GET", f"/volumes/{volume_id}") == 404)

    def expand(self, volume_id: str, size: int) -> None:
        status = self.volume(volume_id)["status"]
        version = EXPAND_IN_USE if status == "in-use" else ""
        self.call("volume", "POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": size}}, version)
        assert self.settle(volume_id, status)["size"] == size

    # --- nodes

    def publish(self, node_id: str, volume_id: str) -> str:
        """Attach a volume to a node, unless it has it. Return the path of the device."""
        assert self.call("compute", "GET", f"/servers/{node_id}")["server"]["id"] == node_id
        if not self._nodes(volume_id):
            body = {"volumeAttachment": {"volumeId": volume_id}}
            self.call("compute", "POST", f"/servers/{node_id}/os-volume_attachments", body)
        wait_for("it is attached", lambda: self._nodes(volume_id) == [node_id])
        (attachment,) = self.settle(volume_id, "in-use")["attachments"]
        return str(attachment["device"])

    def unpublish(self, node_id: str, volume_id: str) -> None:
        if self.volume(volume_id)["status"] == "available":
            return
        assert self._nodes(volume_id) == [node_id]
        self.call("compute", "DELETE", f"/servers/{node_id}/os-volume_attachments/{volume_id}")
        wait_for("it is detached", lambda: self._nodes(volume_id) == [])

    def _nodes(self, volume_id: str) -> list[str]:
        return [attachment["server_id"] for attachment in self.volume(volume_id)["attachments"]]

    # --- snapshots and backups

    def create_snapshot(self, name: str, volume_id: str, force: bool = False) -> str:
        """Return the id of the snapshot of this name, once it is available."""
        found = self.call("volume", "GET", f"/snapshots?name={name}")["snapshots"]
        if found:
            assert [snapshot["volume_id"] for snapshot in found] == [volume_id]
            return str(found[0]["id"])
        values = {"name": name, "volume_id": volume_id, "description": DESCRIPTION, "metadata": {CLUSTER: "kubernetes"}}
        if force:
            values["force"] = True
        made = self.call("volume", "POST", "/snapshots", {"snapshot": values})["snapshot"]
        path = f"/snapshots/{made['id']}"

        def ready() -> bool:
            return bool(self.call("volume", "GET", path)["snapshot"]["status"] == "available")

        wait_for("the snapshot is ready", ready)
        return str(made["id"])

    def create_backup(self, name: str, volume_id: str) -> str:
        """Make a backup of a snapshot, which is deleted then."""
        assert not self.call("volume", "GET", f"/backups?name={name}")["backups"]
        snapshot_id = self.create_snapshot(name, volume_id)
        values = {"name": name, "volume_id": volume_id, "snapshot_id": snapshot_id, "description": DESCRIPTION}
        made = self.call("volume", "POST", "/backups", {"backup": values})["backup"]
        path = f"/backups/{made['id']}"
        wait_for("the backup is ready", lambda: self.call("volume", "GET", path)["backup"]["status"] == "available")
        backup = self.call("volume", "GET", path)["backup"]
        assert (backup["volume_id"], backup["snapshot_id"]) == (volume_id, snapshot_id)
        self.call("volume", "DELETE", f"/snapshots/{backup['snapshot_id']}")
        return str(made["id"])

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete the backup with this id, or the snapshot."""
        kind = "backups" if self.status("volume", "GET", f"/backups/{snapshot_id}") == 200 else "snapshots"
        self.call("volume", "DELETE", f"/{kind}/{snapshot_id}")
        wait_for("it is gone", lambda: self.status("volume", "GET", f"/{kind}/{snapshot_id}") == 404)
