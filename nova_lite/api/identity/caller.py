"""Catalog, projects and domains of the caller, over the identity API."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import listing, records, requests, views
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies


class Caller(IdentityResource):
    """The caller."""

    @route("GET", "/v3/auth/catalog", policies.CATALOG, response="catalog")
    def catalog_of_token(self, req: ServiceRequest) -> Response:
        project_id = req.context.project_id
        if project_id is None and not req.context.roles:
            raise exceptions.Forbidden("Only a token for a project, a domain or the system has a catalog.")
        entries = self.catalog.entries(self.content, str(req.context.user_id), project_id)
        return Response({"catalog": entries, "links": listing.links(f"{req.base_url}/v3/auth/catalog")})

    @route("GET", "/v3/users/{id}/projects", policies.USER_PROJECTS, target={"user_id": "id"}, response="projects")
    @route("GET", "/v3/auth/projects", policies.OWN_PROJECTS, response="projects")
    @route("GET", "/v3/OS-FEDERATION/projects", policies.OWN_PROJECTS, response="projects")
    def projects(self, req: ServiceRequest, id: str | None = None) -> Response:
        projects = self.content.projects_of(requests.user(self.content, id or str(req.context.user_id)))
        return self.listed(req, (views.project(project, req.base_url) for project in projects), "/v3/projects")

    @route("GET", "/v3/auth/domains", policies.OWN_PROJECTS, response="domains")
    @route("GET", "/v3/OS-FEDERATION/domains", policies.OWN_PROJECTS, response="domains")
    def domains(self, req: ServiceRequest) -> Response:
        domains = self.content.domains_of(requests.user(self.content, str(req.context.user_id)))
        return self.listed(req, (views.domain(domain, req.base_url) for domain in domains), "/v3/auth/domains")

    @route("GET", "/v3/auth/system", policies.OWN_PROJECTS, response="system")
    def system(self, req: ServiceRequest) -> Response:
        """Return the systems in which the caller has roles: this cloud, or none."""
        user = requests.user(self.content, str(req.context.user_id))
        return self.listed(req, [{"all": True}] if self.content.roles_of(user, records.SYSTEM_ID) else [])
