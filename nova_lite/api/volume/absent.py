"""Resources of Cinder that this cloud does not have: their lists are empty, and a create is refused with a sentence.

Clients list such resources beside others. Horizon, for one, shows no volumes at all if one of its lists is a 404.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.api.http import wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import versions
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


def routes() -> Iterator[ServiceRoute]:
    for name, kind in ABSENT.items():
        yield ServiceRoute("GET", f"/{name}", "absent_list", policies.ABSENT)
        if kind.detail:
            yield ServiceRoute("GET", f"/{name}/detail", "absent_list", policies.ABSENT)
        if kind.instead:
            yield ServiceRoute("POST", f"/{name}", "refuse", policies.ABSENT)
        for method in ("GET", "PUT", "DELETE"):
            yield ServiceRoute(method, f"/{name}/{{id}}", "absent", policies.ABSENT)


class AbsentResources:
    """Handlers of `VolumeApp`."""

    def absent_list(self, req: ServiceRequest) -> Response:
        return Response({_kind(req).key: []})

    def absent(self, req: ServiceRequest, id: str) -> Response:
        raise exceptions.NotFound(f"{_kind(req).one} {id[:64]} could not be found.")

    def refuse(self, req: ServiceRequest) -> Response:
        kind = _kind(req)
        raise exceptions.NotServed(what=f"A {kind.one.lower()}", instead=kind.instead)


def _kind(req: ServiceRequest) -> Absent:
    kind = ABSENT[req.path_info.split("/")[1]]
    if versions.minor_of(req.headers) < kind.since:
        raise wsgi.UnknownUrl()
    return kind
