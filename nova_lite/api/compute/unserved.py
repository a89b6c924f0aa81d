"""What the compute API has and this cloud has not: answered with 501 and a clear sentence, not as unknown."""

from __future__ import annotations

from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import NOT_SERVED, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions

_LAST_PROXY = Change.NO_PROXIES - 1
_LAST_BOOT = Change.NO_VOLUMES_BOOT - 1

#: Verbs and URLs, what they are about, and the first and the last version that have them.
ROUTES: tuple[tuple[str, str, str, int, int | None], ...] = (
    ("POST", "/os-assisted-volume-snapshots", "A snapshot of a disk in use", 1, None),
    ("DELETE", "/os-assisted-volume-snapshots/{id}", "A snapshot of a disk in use", 1, None),
    ("POST", "/os-volumes_boot/{id}/action", "An action at os-volumes_boot", 1, _LAST_BOOT),
    ("GET POST", "/os-baremetal-nodes", "Bare metal", 1, _LAST_PROXY),
    ("GET DELETE", "/os-baremetal-nodes/{id}", "Bare metal", 1, _LAST_PROXY),
    ("POST", "/os-baremetal-nodes/{id}/action", "Bare metal", 1, _LAST_PROXY),
)

#: What to do instead, by what a route is about.
INSTEAD = {
    "A snapshot of a disk in use": "Ask the volume API for one, with force.",
    "An action at os-volumes_boot": "Servers are acted on at /servers.",
    "Bare metal": "Ask the bare metal service, if there is one.",
}


class Unserved(Extension):
    alias = "os-unserved"
    title = "What is answered with 501"
    routes = tuple(
        Route(verb, path, "refuse", since, until) for verbs, path, _, since, until in ROUTES for verb in verbs.split()
    )

    @declares(NOT_SERVED, status=501)
    def refuse(self, req: Request, **variables: str) -> Response:
        what = next(what for _, path, what, _, _ in ROUTES if path == req.route.path)
        raise exceptions.NotServed(what=what, instead=f" {INSTEAD[what]}")
