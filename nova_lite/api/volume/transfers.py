"""Transfers of volumes to other projects: an offer has a key, and who has the key accepts it."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from nova_lite.api.http import rest
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, views
from nova_lite.base import exceptions
from nova_lite.objects import VolumeTransfer
from nova_lite.objects.volume import transfer_digest
from nova_lite.policies import volume_service as policies

_ALL = "/os-volume-transfer"
_ONE = f"{_ALL}/{{id}}"


class Transfers(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    transfer_routes = (
        ServiceRoute("GET", _ALL, "transfers", policies.TRANSFER_LIST),
        ServiceRoute("GET", f"{_ALL}/detail", "transfers_detail", policies.TRANSFER_LIST),
        ServiceRoute("POST", _ALL, "create_transfer", policies.TRANSFER_CREATE),
        ServiceRoute("GET", _ONE, "show_transfer", policies.TRANSFER_LIST),
        ServiceRoute("POST", f"{_ONE}/accept", "accept_transfer", policies.TRANSFER_ACCEPT),
        ServiceRoute("DELETE", _ONE, "delete_transfer", policies.TRANSFER_DELETE),
    )

    def transfers(self, req: ServiceRequest) -> Response:
        return Response({"transfers": [views.transfer(req, found, whole=False) for found in self._transfers(req)]})

    def transfers_detail(self, req: ServiceRequest) -> Response:
        return Response({"transfers": [views.transfer(req, found, whole=True) for found in self._transfers(req)]})

    def _transfers(self, req: ServiceRequest) -> list[VolumeTransfer]:
        query = listing.query_of(req, self.conf.api.max_limit)
        all_projects = any(req.GET.get(name, "").lower() in ("1", "true") for name in ("all_tenants", "all_projects"))
        found = self.conductor.volume_transfer_list(req.context, all_projects)
        return found[query["offset"] :][: query["limit"]]

    def show_transfer(self, req: ServiceRequest, id: str) -> Response:
        found = self.conductor.volume_transfer_get(req.context, id)
        return Response({"transfer": views.transfer(req, found, whole=True)})

    def create_transfer(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "transfer")
        volume_id = requests.an_id(fields, "volume_id")
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_id' must be specified")
        name = requests.text(fields, "name") or ""
        key, salt = secrets.token_hex(8), secrets.token_hex(16)
        wanted = VolumeTransfer(id=str(uuid.uuid4()), volume_id=volume_id, name=name)
        made = self.conductor.volume_transfer_create(req.context, wanted, salt, transfer_digest(salt, key))
        view: dict[str, Any] = {**views.transfer(req, made, whole=True), "auth_key": key}
        return Response({"transfer": view}, 202)

    def accept_transfer(self, req: ServiceRequest, id: str) -> Response:
        key = requests.text(requests.body(req, "accept"), "auth_key")
        if not key:
            raise exceptions.ValidationError(detail="'auth_key' must be specified")
        accepted = self.conductor.volume_transfer_accept(req.context, id, key)
        return Response({"transfer": views.transfer(req, accepted, whole=False)}, 202)

    def delete_transfer(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_transfer_delete(req.context, id)
        return Response(status=202)
