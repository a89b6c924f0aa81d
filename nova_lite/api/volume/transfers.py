"""Transfers of volumes to other projects: an offer has a key, and who has the key accepts it."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from typing import Any

from nova_lite.api.http import rest, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.base import exceptions
from nova_lite.objects import VolumeTransfer
from nova_lite.objects.volume import transfer_digest
from nova_lite.policies import volume_service as policies

#: The URLs: the second one since 3.55.
_COLLECTIONS = ("/os-volume-transfer", "/volume-transfers")


def _routes(all_: str) -> Iterator[ServiceRoute]:
    one = f"{all_}/{{id}}"
    yield ServiceRoute("GET", all_, "transfers", policies.TRANSFER_LIST)
    yield ServiceRoute("GET", f"{all_}/detail", "transfers_detail", policies.TRANSFER_LIST)
    yield ServiceRoute("POST", all_, "create_transfer", policies.TRANSFER_CREATE)
    yield ServiceRoute("GET", one, "show_transfer", policies.TRANSFER_LIST)
    yield ServiceRoute("POST", f"{one}/accept", "accept_transfer", policies.TRANSFER_ACCEPT)
    yield ServiceRoute("DELETE", one, "delete_transfer", policies.TRANSFER_DELETE)


class Transfers(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    transfer_routes = tuple(route for all_ in _COLLECTIONS for route in _routes(all_))

    def transfers(self, req: ServiceRequest) -> Response:
        return self._list(req, whole=False)

    def transfers_detail(self, req: ServiceRequest) -> Response:
        return self._list(req, whole=True)

    def _list(self, req: ServiceRequest, whole: bool) -> Response:
        minor = _minor(req)
        return Response({"transfers": [views.transfer(req, found, whole, minor) for found in self._transfers(req)]})

    def _transfers(self, req: ServiceRequest) -> list[VolumeTransfer]:
        query = listing.query_of(req, self.conf.api.max_limit)
        all_projects = any(req.GET.get(name, "").lower() in ("1", "true") for name in ("all_tenants", "all_projects"))
        found = self.conductor.volume_transfer_list(req.context, all_projects)
        return found[query["offset"] :][: query["limit"]]

    def show_transfer(self, req: ServiceRequest, id: str) -> Response:
        minor = _minor(req)
        found = self.conductor.volume_transfer_get(req.context, id)
        return Response({"transfer": views.transfer(req, found, True, minor)})

    def create_transfer(self, req: ServiceRequest) -> Response:
        minor = _minor(req)
        fields = requests.body(req, "transfer", ("volume_id", "name", "no_snapshots"))
        volume_id = requests.an_id(fields, "volume_id")
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_id' must be specified")
        if requests.flag(fields.get("no_snapshots") or False, "no_snapshots"):
            raise exceptions.ValidationError(
                detail="The snapshots of a volume move with it: delete them first, or offer it with them."
            )
        name = requests.text(fields, "name") or ""
        key, salt = secrets.token_hex(8), secrets.token_hex(16)
        wanted = VolumeTransfer(id=str(uuid.uuid4()), volume_id=volume_id, name=name)
        made = self.conductor.volume_transfer_create(req.context, wanted, salt, transfer_digest(salt, key))
        view: dict[str, Any] = {**views.transfer(req, made, True, minor), "auth_key": key}
        return Response({"transfer": view}, 202)

    def accept_transfer(self, req: ServiceRequest, id: str) -> Response:
        minor = _minor(req)
        key = requests.text(requests.body(req, "accept", ("auth_key",)), "auth_key")
        if not key:
            raise exceptions.ValidationError(detail="'auth_key' must be specified")
        accepted = self.conductor.volume_transfer_accept(req.context, id, key)
        return Response({"transfer": views.transfer(req, accepted, False, minor)}, 202)

    def delete_transfer(self, req: ServiceRequest, id: str) -> Response:
        _minor(req)
        self.conductor.volume_transfer_delete(req.context, id)
        return Response(status=202)


def _minor(req: ServiceRequest) -> int:
    """Return the minor version of a request. The newer URL needs a version that has it."""
    minor = versions.minor_of(req.headers)
    if req.path_info.startswith(_COLLECTIONS[1]) and minor < versions.TRANSFERS:
        raise wsgi.UnknownUrl()
    return minor
