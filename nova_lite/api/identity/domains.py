"""Domains of users, projects and groups, over the identity API. The default domain cannot be changed."""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.http.bodies import changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain
from nova_lite.api.identity.requests import Description, Extensible, Flag, NoOptions, String
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies


def _no_tags(sent: dict[str, Any], name: str) -> None:
    if sent[name]:
        raise exceptions.ValidationError(detail=requests.NO_TAGS)


class NewDomain(Extensible, kw_only=True):
    name: String
    description: Description = ""
    enabled: Flag = True
    tags: Annotated[list[str], checked(_no_tags, maxItems=0)] = []
    options: NoOptions = {}


class Domains(IdentityResource):
    """Domains of users, projects and groups."""

    @route("GET", "/v3/domains", policies.DOMAINS_LIST, response="domains")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, (views.domain(domain, req.base_url) for domain in self.content.all_domains()))

    @route("GET", "/v3/domains/{id}", policies.DOMAINS_SHOW, target={"domain_id": "id"}, response="domain")
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.domain(requests.domain(self.content, id), req.base_url)

    @route("POST", "/v3/domains", policies.DOMAINS_CREATE, body=NewDomain, key="domain", status=201)
    def create(self, req: ServiceRequest) -> View:
        body, more = requests.read(req, NewDomain), requests.attributes(req)

        made = self.change(lambda content: add(content, body.name, body.description, body.enabled, more))
        return views.domain(made, req.base_url)

    @route("PATCH", "/v3/domains/{id}", policies.DOMAINS_UPDATE, body=changed(NewDomain), key="domain")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.changes(req)

        def update(content: Content) -> Domain:
            domain = _domain(content, id)
            if "name" in fields:
                directory.rename_domain(content, domain, fields["name"])
            domain.description = fields.get("description", domain.description)
            domain.extra = requests.attributes(req, domain.extra)
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


def add(content: Content, name: str, description: str, enabled: bool, extra: str) -> Domain:
    """Add a domain, with the attributes of clients."""
    domain = directory.add_domain(content, name, description)
    domain.enabled, domain.extra = enabled, extra
    return domain
