"""Kinds of resources that this network service does not have: lists of them are empty."""

from __future__ import annotations

import functools
from typing import NamedTuple

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions


class Absent(NamedTuple):
    """``instead``: advice for the user who wants to make one."""

    path: str
    name: str
    instead: str


ABSENT = {
    "subnetpools": Absent("/subnetpools", "subnet pool", "give each subnet a cidr"),
    "address_groups": Absent("/address-groups", "address group", "name a prefix or a security group in each rule"),
    "rbac_policies": Absent(
        "/rbac-policies", "RBAC policy", "an admin makes networks for all projects (network create --share)"
    ),
}


class AbsentResource(Resource):
    """Handlers of each kind of `ABSENT`, as ``list_subnetpools`` and so on."""

    def _list(self, kind: str, req: ServiceRequest) -> Response:
        return self.listed(req, kind, listing.constant([]))

    def _show(self, kind: str, req: ServiceRequest, id: str) -> Response:
        raise exceptions.NotFound(f"There is no {ABSENT[kind].name} {id[:64]}: this network service has none.")

    def _create(self, kind: str, req: ServiceRequest) -> Response:
        absent = ABSENT[kind]
        raise exceptions.Forbidden(f"This cloud makes no {absent.name}: {absent.instead}.")


for _kind in ABSENT:
    for _name in ("list", "show", "create"):
        setattr(
            AbsentResource, f"{_name}_{_kind}", functools.partialmethod(getattr(AbsentResource, f"_{_name}"), _kind)
        )
