"""Base of the resources of the identity API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceApplication, ServiceRequest, ServiceResource
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import authority, listing, requests, views
from nova_lite.api.identity.authority import Identity
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.tokens import Token

SUBJECT = "X-Subject-Token"

T = TypeVar("T")


class IdentityResource(ServiceResource):
    """Resource whose records the authority of the daemon has."""

    def __init__(self, app: ServiceApplication) -> None:
        super().__init__(app)
        self.authority = authority.of(app.services)
        self.catalog = Catalog(app.conf)

    @property
    def content(self) -> Content:
        return self.authority.content

    def change(self, function: Callable[[Content], T]) -> T:
        """Change the records, and return the result of the function."""
        return self.authority.replica.change(function)

    def updated(
        self, req: ServiceRequest, find: Callable[[Content], T], check: Callable[[Content, T], None] | None = None
    ) -> T:
        """Change a record by the attributes of the request. ``check``: raises if other records forbid it."""
        changed = requests.changes(req)

        def update(content: Content) -> T:
            item = find(content)
            requests.update(req, item, changed)
            if check is not None:
                check(content, item)
            return item

        return self.change(update)

    def listed(self, req: ServiceRequest, items: Iterable[dict[str, Any]], path: str | None = None) -> Response:
        """Return the items that match the query. ``path``: of the list, if it is not that of the request."""
        return listing.listed(req, str(req.service_route.response), items, path or req.path_info.rstrip("/"))

    def token_response(self, req: ServiceRequest, text: str, token: Token, identity: Identity) -> Response:
        """Return the response with a token."""
        shown = views.token(token, identity, None if "nocatalog" in req.GET else self.catalog, self.content)
        return Response(shown, req.service_route.status, {SUBJECT: text, "Vary": "X-Auth-Token"})
