"""The identity API: the part of Keystone's v3 API that clients need."""

from __future__ import annotations

from typing import Any

import webob

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import PUBLIC, ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import listing, requests, views
from nova_lite.api.identity.authority import Authority, Identity, Scope
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.directory import ROLES, User
from nova_lite.api.identity.faults import fault
from nova_lite.api.identity.management import IdentityManagement
from nova_lite.api.identity.tokens import Token
from nova_lite.api.identity.unserved import UnservedIdentity
from nova_lite.api.identity.versions import IdentityVersions
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

SUBJECT = "X-Subject-Token"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> IdentityApp:
    del global_conf, local_conf
    services = deploy.services()
    authority = Authority(services.conf)
    authority.check()
    return IdentityApp(services, authority)


class IdentityApp(IdentityVersions, IdentityManagement, UnservedIdentity, rest.ServiceApplication):
    """WSGI application, mounted at ``/``."""

    routes = (
        *IdentityVersions.routes,
        *IdentityManagement.routes,
        *UnservedIdentity.routes,
        ServiceRoute("POST", "/v3/auth/tokens", "issue", PUBLIC),
        ServiceRoute("GET", "/v3/auth/tokens", "validate", policies.VALIDATE, authorizes=True),
        ServiceRoute("DELETE", "/v3/auth/tokens", "revoke", policies.REVOKE, authorizes=True),
        ServiceRoute("GET", "/v3/auth/catalog", "catalog", policies.CATALOG),
        ServiceRoute("GET", "/v3/auth/projects", "own_projects", policies.OWN_PROJECTS),
        ServiceRoute("GET", "/v3/auth/domains", "own_domains", policies.OWN_PROJECTS),
        ServiceRoute("GET", "/v3/projects", "index", policies.PROJECTS_LIST),
        ServiceRoute("GET", "/v3/projects/{id}", "show", policies.PROJECTS_SHOW, {"project_id": "id"}),
        ServiceRoute("GET", "/v3/users", "index", policies.USERS_LIST),
        ServiceRoute("GET", "/v3/users/{id}", "show", policies.USERS_SHOW, {"user_id": "id"}),
        ServiceRoute("GET", "/v3/users/{id}/projects", "user_projects", policies.USER_PROJECTS, {"user_id": "id"}),
        ServiceRoute("GET", "/v3/domains", "index", policies.DOMAINS_LIST),
        ServiceRoute("GET", "/v3/domains/{id}", "show", policies.DOMAINS_SHOW),
        ServiceRoute("GET", "/v3/roles", "index", policies.ROLES_LIST),
        ServiceRoute("GET", "/v3/roles/{id}", "show", policies.ROLES_SHOW),
        ServiceRoute("GET", "/v3/role_assignments", "role_assignments", policies.ASSIGNMENTS_LIST),
        ServiceRoute("GET", "/v3/services", "index", policies.SERVICES_LIST),
        ServiceRoute("GET", "/v3/services/{id}", "show", policies.SERVICES_SHOW),
        ServiceRoute("GET", "/v3/endpoints", "index", policies.ENDPOINTS_LIST),
        ServiceRoute("GET", "/v3/endpoints/{id}", "show", policies.ENDPOINTS_SHOW),
        ServiceRoute("GET", "/v3/regions", "index", policies.REGIONS_LIST),
        ServiceRoute("GET", "/v3/regions/{id}", "show", policies.REGIONS_SHOW),
    )

    def __init__(self, services: wsgi.ApiServices, authority: Authority) -> None:
        super().__init__(services)
        self.authority = authority
        self.service_catalog = Catalog(services.conf)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return fault(code, message, req.base_url + "/v3")

    # --- tokens

    def issue(self, req: ServiceRequest) -> Response:
        auth = requests.object_field(req.json_object(), "auth")
        scope = requests.scope(auth.get("scope"))
        identity, parent = self._authenticate(requests.object_field(auth, "identity"), scope, req.remote_addr or "")
        text, token = self.authority.issue(identity, parent)
        catalog = None if "nocatalog" in req.GET else self.service_catalog
        return Response(views.token(token, identity, catalog), 201, {SUBJECT: text, "Vary": "X-Auth-Token"})

    def _authenticate(self, identity: dict[str, Any], scope: Scope, address: str) -> tuple[Identity, Token | None]:
        methods = identity.get("methods")
        if methods == ["password"]:
            user = self._by_password(
                requests.object_field(requests.object_field(identity, "password"), "user"), address
            )
            return self.authority.scoped(user, scope), None
        if methods == ["token"]:
            parent, known = self.authority.by_token(requests.text_field(requests.object_field(identity, "token"), "id"))
            return self.authority.scoped(known.user, scope), parent
        if not isinstance(methods, list) or not methods:
            raise exceptions.ValidationError(detail="Expecting to find methods in identity.")
        raise exceptions.Unauthorized(
            "Only the methods password and token are supported, and only one of them at a time."
        )

    def _by_password(self, user: dict[str, Any], address: str) -> User:
        password = requests.text_field(user, "password")
        if "id" in user:
            return self.authority.by_password(password, address, user_id=requests.text_field(user, "id"))
        domain_ok = requests.is_default_domain(user.get("domain"))
        return self.authority.by_password(
            password, address, name=requests.text_field(user, "name"), domain_ok=domain_ok
        )

    def validate(self, req: ServiceRequest) -> Response:
        text, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        catalog = None if "nocatalog" in req.GET else self.service_catalog
        return Response(views.token(token, identity, catalog), 200, {SUBJECT: text, "Vary": "X-Auth-Token"})

    def revoke(self, req: ServiceRequest) -> Response:
        _, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        self.authority.tokens.revoke(token)
        return Response(status=204)

    def _subject(self, req: ServiceRequest) -> tuple[str, Token, Identity]:
        text = req.headers.get(SUBJECT, "")
        try:
            return text, *self.authority.by_token(text)
        except exceptions.Unauthorized as error:
            raise exceptions.NotFound("Could not find token.") from error

    # --- the caller

    def catalog(self, req: ServiceRequest) -> Response:
        if req.context.project_id is None:
            raise exceptions.Forbidden("Only a token for a project has a catalog.")
        return Response(
            {"catalog": self.service_catalog.entries, "links": listing.links(f"{req.base_url}/v3/auth/catalog")}
        )

    def own_projects(self, req: ServiceRequest) -> Response:
        return self._projects_of(req, str(req.context.user_id))

    def own_domains(self, req: ServiceRequest) -> Response:
        return listing.listed(req, "domains", [])

    def user_projects(self, req: ServiceRequest, id: str) -> Response:
        return self._projects_of(req, id)

    def _projects_of(self, req: ServiceRequest, user_id: str) -> Response:
        user = requests.require("user", user_id, self.authority.content.user(user_id))
        projects = self.authority.content.projects_of(user)
        return listing.listed(req, "projects", (views.project(project, req.base_url) for project in projects))

    # --- lists of all resources

    def index(self, req: ServiceRequest) -> Response:
        kind = _kind(req)
        return listing.listed(req, kind, self._all(req, kind))

    def show(self, req: ServiceRequest, id: str) -> Response:
        kind = _kind(req)
        singular = kind.removesuffix("s")
        return Response(
            {
                singular: requests.require(
                    singular, id, next((item for item in self._all(req, kind) if item["id"] == id), None)
                )
            }
        )

    def _all(self, req: ServiceRequest, kind: str) -> list[dict[str, Any]]:
        content, url = self.authority.content, req.base_url
        match kind:
            case "projects":
                return [views.project(project, url) for project in content.projects]
            case "users":
                return [views.user(user, url) for user in content.users]
            case "domains":
                return [views.domain(url)]
            case "roles":
                return [views.role(name, url) for name in ROLES]
            case "regions":
                return [views.region(self.service_catalog.region, url)]
            case _:
                items = self.service_catalog.services if kind == "services" else self.service_catalog.endpoints
                return [views.linked(item, url, kind) for item in items]

    def role_assignments(self, req: ServiceRequest) -> Response:
        filters = {key: req.GET.get(f"{key}.id") for key in ("user", "role")}
        project_id = req.GET.get("scope.project.id")
        with_names = req.GET.get("include_names", "0").lower() not in ("0", "false")
        content = self.authority.content
        assignments = [
            views.assignment(user, project, name, with_names, req.base_url)
            for user in content.users
            for project in content.projects
            for name in user.roles.get(project.id, [])
        ]
        matches = [
            assignment
            for assignment in assignments
            if all(value is None or assignment[key]["id"] == value for key, value in filters.items())
            and (project_id is None or assignment["scope"]["project"]["id"] == project_id)
        ]
        return Response({"role_assignments": matches, "links": listing.links(f"{req.base_url}/v3/role_assignments")})


def _kind(req: ServiceRequest) -> str:
    """Return the kind of resource in the request's path: ``users`` for ``/v3/users/{id}``."""
    kind: str = req.path_info.split("/")[2]
    return kind
