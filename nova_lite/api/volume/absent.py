"""Resources of Cinder that this cloud does not have: their lists are empty, and a create is refused with a sentence.

Clients list such resources beside others. Horizon, for one, shows no volumes at all if one of its lists is a 404.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.volume import versions
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions
from nova_lite.policies import volume_service as policies


class Absent(NamedTuple):
    """``key``: of the list. ``one``: name of a resource. ``instead``: advice, a sentence with a leading space.
    ``since``: first minor version with the URL. ``detail``: there is a list at ``detail``, too.
    """

    key: str
    one: str
    instead: str
    since: int = 0
    detail: bool = True


_MANAGE = " Import the data as an image, and make a volume of it."

#: Absent resources by the first segment of their URLs.
ABSENT = {
    "consistencygroups": Absent("consistencygroups", "ConsistencyGroup", " Make a snapshot of each volume."),
    "cgsnapshots": Absent("cgsnapshots", "CgSnapshot", " Make a snapshot of each volume."),
    "groups": Absent("groups", "Group", " Make a snapshot of each volume.", versions.GROUPS),
    "group_snapshots": Absent("group_snapshots", "GroupSnapshot", " Make a snapshot of each volume.", 14),
    "group_types": Absent("group_types", "Group Type", " There are no groups of volumes.", 11, detail=False),
    "messages": Absent("messages", "Message", "", 3, detail=False),
    "clusters": Absent("clusters", "Cluster", " Compute hosts do the work on volumes.", 7),
    "manageable_volumes": Absent("manageable-volumes", "Volume", _MANAGE, 8),
    "manageable_snapshots": Absent("manageable-snapshots", "Snapshot", _MANAGE, 8),
}
_LIST, _DETAIL, _ONE = "/", "/detail", "/{id}"


class AbsentResources(VolumeResource):
    """Resources of Cinder that this cloud does not have."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for made in super().declared_routes():
            for name, kind in ABSENT.items():
                if (kind.detail or made.path != _DETAIL) and (kind.instead or made.method != "POST"):
                    key = kind.key if made.handler == "index" else None
                    yield made._replace(path=f"/{name}{made.path.rstrip('/')}", response=key)

    @route("GET", _LIST, policies.ABSENT)
    @route("GET", _DETAIL, policies.ABSENT)
    def index(self, req: ServiceRequest) -> list[View]:
        _kind(req)
        return []

    @route("POST", _LIST, policies.ABSENT)
    def refuse(self, req: ServiceRequest) -> None:
        kind = _kind(req)
        raise exceptions.NotServed(what=f"A {kind.one.lower()}", instead=kind.instead)

    @route("GET", _ONE, policies.ABSENT)
    @route("PUT", _ONE, policies.ABSENT)
    @route("DELETE", _ONE, policies.ABSENT)
    def show(self, req: ServiceRequest, id: str) -> None:
        raise exceptions.NotFound(f"{_kind(req).one} {id[:64]} could not be found.")


def _kind(req: ServiceRequest) -> Absent:
    kind = ABSENT[req.path_info.split("/")[1]]
    versions.require(req, kind.since)
    return kind
