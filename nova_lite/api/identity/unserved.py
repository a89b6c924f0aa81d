"""Parts of Keystone's API that this service refuses with a 501. The message names the alternative or the reason."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

#: Kinds by their path: HTTP methods on the collection and on an item, the refused operation, and the alternative.
KINDS: dict[str, tuple[str, str, str, str]] = {
    "policies": ("GET POST", "GET PATCH DELETE", "Policies in the identity service", "`nova-lite-manage policy list`."),
}


class UnservedIdentity:
    """Handlers of `IdentityApp` that refuse requests."""

    routes: tuple[ServiceRoute, ...] = tuple(
        ServiceRoute(method, path, "refuse", policies.ROLES_LIST)
        for kind, (of_collection, of_item, _, _) in KINDS.items()
        for methods, path in ((of_collection, f"/v3/{kind}"), (of_item, f"/v3/{kind}/{{id}}"))
        for method in methods.split()
    )

    def refuse(self, req: ServiceRequest, id: str = "") -> Response:
        _, _, what, instead = KINDS[req.path_info.split("/")[2]]
        raise exceptions.NotServed(what=what, instead=f" {instead}")
