"""Transfers of volumes to other projects: an offer has a key, and who has the key accepts it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.objects import VolumeTransfer
from nova_lite.objects.volume import transfer_digest
from nova_lite.policies import volume_service as policies

#: The URLs: the second one since 3.55.
_ALL, _NEWER = "/os-volume-transfer", "/volume-transfers"
_ONE, _KEY = f"{_ALL}/{{id}}", "transfer"

_WHOLE = "The snapshots of a volume move with it: delete them first, or offer it with them."


class NewTransfer(Body):
    volume_id: requests.VolumeId
    no_snapshots: Annotated[bool, requests.refused(requests.is_set, _WHOLE)] = False
    name: requests.Name = ""


class Acceptance(Body):
    auth_key: Annotated[str, requests.needed(requests.text, "'auth_key' must be specified")]


class Transfers(VolumeResource):
    """Transfers of volumes."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for made in super().declared_routes():
            yield made
            yield made._replace(path=made.path.replace(_ALL, _NEWER))

    @route("GET", _ALL, policies.TRANSFER_LIST, query=listing.PARAMETERS, response="transfers")
    def index(self, req: ServiceRequest) -> list[views.View]:
        return self._list(req, whole=False)

    @route("GET", f"{_ALL}/detail", policies.TRANSFER_LIST, query=listing.PARAMETERS, response="transfers")
    def detail(self, req: ServiceRequest) -> list[views.View]:
        return self._list(req, whole=True)

    def _list(self, req: ServiceRequest, whole: bool) -> list[views.View]:
        minor = _minor(req)
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self.conductor.volume_transfer_list(req.context, listing.wants_all_projects(req))
        return [views.transfer(req, item, whole, minor) for item in found[query["offset"] :][: query["limit"]]]

    @route("GET", _ONE, policies.TRANSFER_LIST, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        minor = _minor(req)
        return views.transfer(req, self.conductor.volume_transfer_get(req.context, id), True, minor)

    @route("POST", _ALL, policies.TRANSFER_CREATE, body=NewTransfer, key=_KEY, response=_KEY, status=202)
    def create(self, req: ServiceRequest) -> views.View:
        minor, body = _minor(req), requests.read(req, NewTransfer)
        key, salt = secrets.token_hex(8), secrets.token_hex(16)
        wanted = requests.new(VolumeTransfer, body)
        made = self.conductor.volume_transfer_create(req.context, wanted, salt, transfer_digest(salt, key))
        return {**views.transfer(req, made, True, minor), "auth_key": key}

    @route("POST", f"{_ONE}/accept", policies.TRANSFER_ACCEPT, body=Acceptance, key="accept", response=_KEY, status=202)
    def accept(self, req: ServiceRequest, id: str) -> views.View:
        minor, body = _minor(req), requests.read(req, Acceptance)
        accepted = self.conductor.volume_transfer_accept(req.context, id, body.auth_key)
        return views.transfer(req, accepted, False, minor)

    @route("DELETE", _ONE, policies.TRANSFER_DELETE, status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        _minor(req)
        self.conductor.volume_transfer_delete(req.context, id)


def _minor(req: ServiceRequest) -> int:
    """Return the minor version of a request. The newer URL needs a version that has it."""
    return versions.require(req, versions.TRANSFERS if req.path_info.startswith(_NEWER) else versions.MINIMUM)
