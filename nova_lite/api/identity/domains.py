"""Domains of users, projects and groups, over the identity API. The default domain cannot be changed."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_FIELDS = ("id", "name", "description", "enabled", "tags", "options", "links")


class Domains(IdentityResource):
    """Domains of users, projects and groups."""

    @route("GET", "/v3/domains", policies.DOMAINS_LIST, response="domains")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, (views.domain(domain, req.base_url) for domain in self.content.all_domains()))

    @route("GET", "/v3/domains/{id}", policies.DOMAINS_SHOW, target={"domain_id": "id"}, response="domain")
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.domain(requests.domain(self.content, id), req.base_url)

    @route("POST", "/v3/domains", policies.DOMAINS_CREATE, key="domain", response="domain", status=201)
    def create(self, req: ServiceRequest) -> View:
        fields = requests.create_fields(req, "domain", name=str, description=str | None, enabled=bool | None)
        more = requests.attributes(req, "domain", _FIELDS)

        def create(content: Content) -> Domain:
            domain = directory.add_domain(content, fields["name"], fields["description"] or "")
            domain.enabled, domain.extra = fields["enabled"] is not False, more
            return domain

        return views.domain(self.change(create), req.base_url)

    @route("PATCH", "/v3/domains/{id}", policies.DOMAINS_UPDATE, key="domain", response="domain")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.update_fields(req, "domain", name=str, description=str | None, enabled=bool)

        def update(content: Content) -> Domain:
            domain = _domain(content, id)
            if "name" in fields:
                directory.rename_domain(content, domain, fields["name"])
            domain.description = fields.get("description", domain.description) or ""
            domain.extra = requests.attributes(req, "domain", _FIELDS, domain.extra)
            directory.set_enabled(content, domain, fields.get("enabled", domain.enabled))
            return domain

        return views.domain(self.change(update), req.base_url)

    @route("DELETE", "/v3/domains/{id}", policies.DOMAINS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        """Delete a disabled domain with its users, groups and projects, but not the projects' servers."""
        self.change(lambda content: directory.remove_domain(content, _domain(content, id)))


def _domain(content: Content, id: str) -> Domain:
    if id == DOMAIN_ID:
        raise exceptions.Forbidden("The default domain cannot be changed.")
    return requests.require("domain", id, content.find(Domain, id))
