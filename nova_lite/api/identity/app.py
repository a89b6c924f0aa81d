"""The identity API: what clients need of Keystone v3; `changes` has what changes users, nova-lite-manage the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import webob

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import PUBLIC, Request, Route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import views
from nova_lite.api.identity.authority import UNSCOPED, Authority, Identity, Scope
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.changes import Changes, found
from nova_lite.api.identity.directory import DOMAIN_ID, DOMAIN_NAME, ROLES, User
from nova_lite.api.identity.refused import UnservedIdentity
from nova_lite.api.identity.tokens import Token
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

SUBJECT = "X-Subject-Token"

_TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> IdentityApp:
    del global_conf, local_conf
    services = deploy.services()
    authority = Authority(services.conf)
    authority.check()
    return IdentityApp(services, authority)


class IdentityApp(Changes, UnservedIdentity, rest.Application):
    routes = (
        *Changes.routes,
        *UnservedIdentity.routes,
        Route("GET", "/", "versions", PUBLIC),
        Route("GET", "/v3", "version", PUBLIC),
        Route("POST", "/v3/auth/tokens", "issue", PUBLIC),
        Route("GET", "/v3/auth/tokens", "validate", policies.VALIDATE, authorizes=True),
        Route("DELETE", "/v3/auth/tokens", "revoke", policies.REVOKE, authorizes=True),
        Route("GET", "/v3/auth/catalog", "catalog", policies.CATALOG),
        Route("GET", "/v3/auth/projects", "own_projects", policies.OWN_PROJECTS),
        Route("GET", "/v3/auth/domains", "own_domains", policies.OWN_PROJECTS),
        Route("GET", "/v3/projects", "index", policies.PROJECTS_LIST),
        Route("GET", "/v3/projects/{id}", "show", policies.PROJECTS_SHOW, {"project_id": "id"}),
        Route("GET", "/v3/users", "index", policies.USERS_LIST),
        Route("GET", "/v3/users/{id}", "show", policies.USERS_SHOW, {"user_id": "id"}),
        Route("GET", "/v3/users/{id}/projects", "user_projects", policies.USER_PROJECTS, {"user_id": "id"}),
        Route("GET", "/v3/domains", "index", policies.DOMAINS_LIST),
        Route("GET", "/v3/domains/{id}", "show", policies.DOMAINS_SHOW),
        Route("GET", "/v3/roles", "index", policies.ROLES_LIST),
        Route("GET", "/v3/roles/{id}", "show", policies.ROLES_SHOW),
        Route("GET", "/v3/role_assignments", "role_assignments", policies.ASSIGNMENTS_LIST),
        Route("GET", "/v3/services", "index", policies.SERVICES_LIST),
        Route("GET", "/v3/services/{id}", "show", policies.SERVICES_SHOW),
        Route("GET", "/v3/endpoints", "index", policies.ENDPOINTS_LIST),
        Route("GET", "/v3/endpoints/{id}", "show", policies.ENDPOINTS_SHOW),
        Route("GET", "/v3/regions", "index", policies.REGIONS_LIST),
        Route("GET", "/v3/regions/{id}", "show", policies.REGIONS_SHOW),
    )

    def __init__(self, services: wsgi.ConductorServices, authority: Authority) -> None:
        super().__init__(services)
        self.authority = authority
        self.listed = Catalog(services.conf)

    def fault(self, req: Request, code: int, message: str) -> webob.Response:
        return fault(code, message, req.base_url + "/v3")

    # --- versions

    def versions(self, req: Request) -> Response:
        return Response({"versions": {"values": [views.version(req.base_url)]}}, 300, {"Vary": "X-Auth-Token"})

    def version(self, req: Request) -> Response:
        return Response({"version": views.version(req.base_url)}, 200, {"Vary": "X-Auth-Token"})

    # --- tokens

    def issue(self, req: Request) -> Response:
        auth = _object(req.json_object(), "auth")
        scope = _scope(auth.get("scope"))
        who, parent = self._authenticate(_object(auth, "identity"), scope, req.remote_addr or "")
        text, token = self.authority.issue(who, parent)
        catalog = None if "nocatalog" in req.GET else self.listed
        return Response(views.token(token, who, catalog), 201, {SUBJECT: text, "Vary": "X-Auth-Token"})

    def _authenticate(self, identity: dict[str, Any], scope: Scope, address: str) -> tuple[Identity, Token | None]:
        methods = identity.get("methods")
        if methods == ["password"]:
            user = self._by_password(_object(_object(identity, "password"), "user"), address)
            return self.authority.scoped(user, scope), None
        if methods == ["token"]:
            parent, who = self.authority.by_token(_text(_object(identity, "token"), "id"))
            return self.authority.scoped(who.user, scope), parent
        if not isinstance(methods, list) or not methods:
            raise exceptions.ValidationError(detail="Expecting to find methods in identity.")
        raise exceptions.Unauthorized("Only the methods password and token are supported, one at a time.")

    def _by_password(self, user: dict[str, Any], address: str) -> User:
        password = _text(user, "password")
        if "id" in user:
            return self.authority.by_password(password, address, user_id=_text(user, "id"))
        domain_ok = _is_default_domain(user.get("domain"))
        return self.authority.by_password(password, address, name=_text(user, "name"), domain_ok=domain_ok)

    def validate(self, req: Request) -> Response:
        text, token, who = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": who.user.id})
        catalog = None if "nocatalog" in req.GET else self.listed
        return Response(views.token(token, who, catalog), 200, {SUBJECT: text, "Vary": "X-Auth-Token"})

    def revoke(self, req: Request) -> Response:
        _, token, who = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": who.user.id})
        self.authority.tokens.revoke(token)
        return Response(status=204)

    def _subject(self, req: Request) -> tuple[str, Token, Identity]:
        text = req.headers.get(SUBJECT, "")
        try:
            return text, *self.authority.by_token(text)
        except exceptions.Unauthorized as error:
            raise exceptions.NotFound("Could not find token.") from error

    # --- oneself

    def catalog(self, req: Request) -> Response:
        if req.context.project_id is None:
            raise exceptions.Forbidden("Only a token for a project has a catalog.")
        return Response({"catalog": self.listed.entries, "links": _links(f"{req.base_url}/v3/auth/catalog")})

    def own_projects(self, req: Request) -> Response:
        return self._projects_of(req, str(req.context.user_id))

    def own_domains(self, req: Request) -> Response:
        return _list(req, "domains", [])

    def user_projects(self, req: Request, id: str) -> Response:
        return self._projects_of(req, id)

    def _projects_of(self, req: Request, user_id: str) -> Response:
        user = found("user", user_id, self.authority.content.user(user_id))
        projects = self.authority.content.projects_of(user)
        return _list(req, "projects", (views.project(project, req.base_url) for project in projects))

    # --- all there is

    def index(self, req: Request) -> Response:
        kind = _kind(req)
        return _list(req, kind, self._all(req, kind))

    def show(self, req: Request, id: str) -> Response:
        kind = _kind(req)
        singular = kind.removesuffix("s")
        return Response({singular: found(singular, id, next((x for x in self._all(req, kind) if x["id"] == id), None))})

    def _all(self, req: Request, kind: str) -> list[dict[str, Any]]:
        content, url = self.authority.content, req.base_url
        match kind:
            case "projects":
                return [views.project(one, url) for one in content.projects]
            case "users":
                return [views.user(one, url) for one in content.users]
            case "domains":
                return [views.domain(url)]
            case "roles":
                return [views.role(name, url) for name in ROLES]
            case "regions":
                return [views.region(self.listed.region, url)]
            case _:
                items = self.listed.services if kind == "services" else self.listed.endpoints
                return [views.linked(item, url, kind) for item in items]

    def role_assignments(self, req: Request) -> Response:
        wanted = {key: req.GET.get(f"{key}.id") for key in ("user", "role")}
        project_id = req.GET.get("scope.project.id")
        with_names = req.GET.get("include_names", "0").lower() not in ("0", "false")
        content = self.authority.content
        assignments = [
            views.assignment(user, project, name, with_names, req.base_url)
            for user in content.users
            for project in content.projects
            for name in user.roles.get(project.id, [])
        ]
        chosen = [
            one
            for one in assignments
            if all(value is None or one[key]["id"] == value for key, value in wanted.items())
            and (project_id is None or one["scope"]["project"]["id"] == project_id)
        ]
        return Response({"role_assignments": chosen, "links": _links(f"{req.base_url}/v3/role_assignments")})


def fault(code: int, message: str, auth_url: str | None = None) -> webob.Response:
    """Keystone's form: ``{"error": {"code": ..., "message": ..., "title": ...}}``"""
    title = _TITLES.get(code) or webob.exc.status_map[code].title
    headers = {"WWW-Authenticate": f'Keystone uri="{auth_url}"'} if code == 401 and auth_url else {}
    return wsgi.to_response(Response({"error": {"code": code, "message": message, "title": title}}, code, headers))


def _kind(req: Request) -> str:
    """``users`` of ``/v3/users/{id}``."""
    kind: str = req.path_info.split("/")[2]
    return kind


def _list(req: Request, kind: str, items: Iterable[dict[str, Any]]) -> Response:
    """Those that match every filter of the query, each of them a field and its value."""
    found = list(items)
    for name, value in req.GET.items():
        if found and name in found[0]:
            found = [item for item in found if _same(item.get(name), value)]
        elif name == "domain_id" and value != DOMAIN_ID:
            found = []
    return Response({kind: found, "links": _links(f"{req.base_url}/v3/{kind}")})


def _same(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return value is (wanted.lower() not in ("0", "false", "no"))
    return bool(value == wanted)


def _links(url: str) -> dict[str, Any]:
    return {"self": url, "previous": None, "next": None}


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as an object.")
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as a string.")
    return value


def _is_default_domain(domain: Any) -> bool:
    """A user's or project's domain, by id or name; none said is the default one."""
    if domain is None:
        return True
    if not isinstance(domain, dict):
        raise exceptions.ValidationError(detail="A domain has to be an object with an id or a name.")
    return bool(domain.get("id", DOMAIN_ID) == DOMAIN_ID and domain.get("name", DOMAIN_NAME) == DOMAIN_NAME)


def _scope(scope: Any) -> Scope:
    """Domains and the system are nobody's scope here: who asks for them is not authorized."""
    if scope is None:
        return Scope()
    if scope == "unscoped":
        return UNSCOPED
    if not isinstance(scope, dict):
        raise exceptions.ValidationError(detail="A scope has to be an object, or unscoped.")
    if "unscoped" in scope:
        return UNSCOPED
    if "project" not in scope:
        raise exceptions.Unauthorized()
    project = _object(scope, "project")
    if "id" in project:
        return Scope(project_id=_text(project, "id"))
    if not _is_default_domain(project.get("domain")):
        raise exceptions.Unauthorized()
    return Scope(project_name=_text(project, "name"))
