"""What the compute API once had: 410 in every version, as Nova answers."""

from __future__ import annotations

from nova_lite.api.http.wsgi import NOT_SERVED, Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions

#: URL and its verbs.
ROUTES: dict[str, str] = {
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

#: Server actions.
ACTIONS = ("os-getRDPConsole", "resetNetwork")


class Gone(Extension):
    alias = "os-gone"
    title = "What is answered with 410"
    routes = (
        *(Route(verb, path, "gone") for path, verbs in ROUTES.items() for verb in verbs.split()),
        *(action("servers", name, "gone") for name in ACTIONS),
    )

    @declares(NOT_SERVED, status=410)
    def gone(self, req: Request, **variables: str) -> Response:
        raise exceptions.Gone()
