"""What Keystone has and this identity service has not: 501, with the command that does it here or the reason."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity.directory import ROLES
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_GRANT = "`nova-lite-manage user grant` and `openstack role add` give them to users in projects."
_CATALOG = "It lists what [api] enabled_apis serves, at the addresses of [identity] *_endpoint."

#: The first part of the path after /v3: verbs on all and on one of them, what is asked for, and the way here.
KINDS: dict[str, tuple[str, str, str, str]] = {
    "roles": ("POST", "PATCH DELETE", "Changing roles", f"There are {', '.join(ROLES)}: {_GRANT}"),
    "domains": ("POST", "PATCH DELETE", "Changing domains", "There is one, default."),
    "groups": ("GET POST", "GET PATCH DELETE", "Groups of users", f"Roles are for single users: {_GRANT}"),
    "services": ("POST", "PATCH DELETE", "Changing the catalog", _CATALOG),
    "endpoints": ("POST", "PATCH DELETE", "Changing the catalog", _CATALOG),
    "regions": ("POST", "PATCH DELETE", "Changing regions", "There is one, [identity] region."),
    "credentials": ("GET POST", "GET PATCH DELETE", "Credentials", "`openstack user set --password` is what there is."),
    "policies": ("GET POST", "GET PATCH DELETE", "Policies in the identity service", "`nova-lite-manage policy list`."),
}


class UnservedIdentity:
    """Handlers for `IdentityApp`."""

    routes: tuple[ServiceRoute, ...] = tuple(
        ServiceRoute(verb, path, "refuse", policies.ROLES_LIST)
        for kind, (all_, one, _, _) in KINDS.items()
        for verbs, path in ((all_, f"/v3/{kind}"), (one, f"/v3/{kind}/{{id}}"))
        for verb in verbs.split()
    )

    def refuse(self, req: ServiceRequest, id: str = "") -> Response:
        _, _, what, instead = KINDS[req.path_info.split("/")[2]]
        raise exceptions.NotServed(what=what, instead=f" {instead}")
