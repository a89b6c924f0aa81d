"""Metadata of volumes and snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.volume import requests, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.objects import Volume, VolumeSnapshot
from nova_lite.policies import volume_service as policies

_ALL = "/volumes/{id}/metadata"
_ONE = f"{_ALL}/{{key}}"


def item(metadata: dict[str, str], key: str) -> dict[str, Any]:
    return views.item(metadata, key, f"There is no metadata with key {key[:64]}.")


class VolumeMetadata(VolumeResource):
    """Metadata of volumes."""

    def _get(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self.conductor.volume_get(req.context, id).metadata

    def _set(self, req: ServiceRequest, id: str, items: dict[str, Any], merge: bool = True) -> Volume | VolumeSnapshot:
        return self.conductor.volume_update(req.context, id, {"metadata": items}, merge=merge)

    @route("GET", _ALL, policies.METADATA, response="metadata")
    def index(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self._get(req, id)

    @route("POST", _ALL, policies.CHANGE_METADATA, key="metadata", response="metadata")
    def add(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self._set(req, id, requests.items(req)).metadata

    @route("PUT", _ALL, policies.CHANGE_METADATA, key="metadata", response="metadata")
    def replace(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self._set(req, id, requests.items(req), merge=False).metadata

    @route("GET", _ONE, policies.METADATA, response="meta")
    def show(self, req: ServiceRequest, id: str, key: str) -> dict[str, str]:
        return item(self._get(req, id), key)

    @route("PUT", _ONE, policies.CHANGE_METADATA, key="meta", response="meta")
    def update(self, req: ServiceRequest, id: str, key: str) -> dict[str, str]:
        wanted = requests.one_item(requests.metadata(requests.body(req)), key)
        self._set(req, id, wanted)
        return wanted

    @route("DELETE", _ONE, policies.CHANGE_METADATA)
    def delete(self, req: ServiceRequest, id: str, key: str) -> None:
        item(self._get(req, id), key)
        self._set(req, id, {key: None})


_RULES = {policies.METADATA: policies.SNAPSHOT_SHOW, policies.CHANGE_METADATA: policies.SNAPSHOT_UPDATE}


class SnapshotMetadata(VolumeMetadata):
    """Metadata of snapshots."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for made in super().declared_routes():
            yield made._replace(path=made.path.replace("/volumes", "/snapshots"), policy=_RULES[made.policy])

    def _get(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self.conductor.snapshot_get(req.context, id).metadata

    def _set(self, req: ServiceRequest, id: str, items: dict[str, Any], merge: bool = True) -> Volume | VolumeSnapshot:
        return self.conductor.snapshot_update(req.context, id, {"metadata": items}, merge=merge)
