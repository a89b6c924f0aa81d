"""Domains of users, projects and groups, over the identity API. The default domain cannot be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

_FIELDS = ("id", "name", "description", "enabled", "tags", "options", "links")


class IdentityDomains:
    """Mixin of `IdentityApp`: the handlers that change domains."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("POST", "/v3/domains", "create_domain", policies.DOMAINS_CREATE),
        ServiceRoute("PATCH", "/v3/domains/{id}", "update_domain", policies.DOMAINS_UPDATE),
        ServiceRoute("DELETE", "/v3/domains/{id}", "delete_domain", policies.DOMAINS_DELETE),
    )

    def create_domain(self, req: ServiceRequest) -> Response:
        fields = requests.create_fields(req, "domain", name=str, description=str | None, enabled=bool | None)
        more = requests.attributes(req, "domain", _FIELDS)

        def create(content: Content) -> Domain:
            domain = directory.add_domain(content, fields["name"], fields["description"] or "")
            domain.enabled, domain.extra = fields["enabled"] is not False, more
            return domain

        return Response({"domain": views.domain(self._change(create), req.base_url)}, 201)

    def update_domain(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.update_fields(req, "domain", name=str, description=str | None, enabled=bool)

        def update(content: Content) -> Domain:
            domain = _domain(content, id)
            if "name" in fields:
                directory.rename_domain(content, domain, fields["name"])
            domain.description = fields.get("description", domain.description) or ""
            domain.extra = requests.attributes(req, "domain", _FIELDS, domain.extra)
            directory.set_enabled(content, domain, fields.get("enabled", domain.enabled))
            return domain

        return Response({"domain": views.domain(self._change(update), req.base_url)})

    def delete_domain(self, req: ServiceRequest, id: str) -> Response:
        """Delete a disabled domain with its users, groups and projects, but not the projects' servers."""
        self._change(lambda content: directory.remove_domain(content, _domain(content, id)))
        return Response(status=204)

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


def _domain(content: Content, id: str) -> Domain:
    if id == DOMAIN_ID:
        raise exceptions.Forbidden("The default domain cannot be changed.")
    return requests.require("domain", id, content.find(Domain, id))
