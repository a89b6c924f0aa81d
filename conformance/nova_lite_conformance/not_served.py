"""Routes that always fail: Nova has removed them (410), or this cloud does not implement them (501)."""

from __future__ import annotations

from nova_lite.api.http.microversions import LAST_WITH_PROXIES, Change
from nova_lite.api.http.wsgi import NOT_SERVED, Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions

#: The verbs of each URL that Nova has removed. As in Nova, they return 410 in every version.
GONE_ROUTES: dict[str, str] = {
    "/os-agents": "GET POST",
    "/os-agents/{id}": "PUT DELETE",
    "/os-cells": "GET POST",
    "/os-cells/capacities": "GET",
    "/os-cells/detail": "GET",
    "/os-cells/info": "GET",
    "/os-cells/sync_instances": "POST",
    "/os-cells/{id}": "GET PUT DELETE",
    "/os-cells/{id}/capacities": "GET",
    "/os-certificates": "POST",
    "/os-certificates/{id}": "GET",
    "/os-cloudpipe": "GET POST",
    "/os-cloudpipe/{id}": "PUT",
    "/os-fixed-ips/{id}": "GET",
    "/os-fixed-ips/{id}/action": "POST",
    "/os-floating-ip-dns": "GET",
    "/os-floating-ip-dns/{id}": "PUT DELETE",
    "/os-floating-ip-dns/{id}/entries/{name}": "GET PUT DELETE",
    "/os-floating-ips-bulk": "GET POST",
    "/os-floating-ips-bulk/{id}": "GET PUT",
    "/os-fping": "GET",
    "/os-fping/{id}": "GET",
    "/os-networks": "POST",
    "/os-networks/add": "POST",
    "/os-networks/{id}": "DELETE",
    "/os-networks/{id}/action": "POST",
    "/os-security-group-default-rules": "GET POST",
    "/os-security-group-default-rules/{id}": "GET DELETE",
    "/os-tenant-networks": "POST",
    "/os-tenant-networks/{id}": "DELETE",
    "/servers/{server_id}/consoles": "GET POST",
    "/servers/{server_id}/consoles/{id}": "GET DELETE",
    "/servers/{server_id}/os-virtual-interfaces": "GET",
}

#: Server actions that Nova has removed.
GONE_ACTIONS = ("os-getRDPConsole", "resetNetwork")


class Gone(Extension):
    alias = "os-gone"
    title = "Removed from Nova (410)"
    routes = (
        *(Route(verb, path, "gone") for path, verbs in GONE_ROUTES.items() for verb in verbs.split()),
        *(action("servers", name, "gone") for name in GONE_ACTIONS),
    )

    @declares(NOT_SERVED, status=410)
    def gone(self, req: Request, **variables: str) -> Response:
        raise exceptions.Gone()


_LAST_BOOT = Change.NO_VOLUMES_BOOT - 1

#: Verbs, URL, subject, first and last version of each route that is not implemented.
UNSERVED_ROUTES: tuple[tuple[str, str, str, int, int | None], ...] = (
    ("POST", "/os-volumes_boot/{id}/action", "An action at os-volumes_boot", 1, _LAST_BOOT),
    ("GET POST", "/os-baremetal-nodes", "Bare metal", 1, LAST_WITH_PROXIES),
    ("GET DELETE", "/os-baremetal-nodes/{id}", "Bare metal", 1, LAST_WITH_PROXIES),
    ("POST", "/os-baremetal-nodes/{id}/action", "Bare metal", 1, LAST_WITH_PROXIES),
)

#: Advice for each subject of `UNSERVED_ROUTES`.
INSTEAD = {
    "An action at os-volumes_boot": "Use the server actions of /servers.",
    "Bare metal": "Use the bare metal service, if there is one.",
}


class Unserved(Extension):
    alias = "os-unserved"
    title = "Not implemented (501)"
    routes = tuple(
        Route(verb, path, "refuse", since, until)
        for verbs, path, _, since, until in UNSERVED_ROUTES
        for verb in verbs.split()
    )

    @declares(NOT_SERVED, status=501)
    def refuse(self, req: Request, **variables: str) -> Response:
        subject = next(subject for _, path, subject, _, _ in UNSERVED_ROUTES if path == req.route.path)
        raise exceptions.NotServed(what=subject, instead=f" {INSTEAD[subject]}")
