"""The identity API: the part of Keystone's v3 API that clients need."""

from __future__ import annotations

from typing import Any

import webob

from nova_lite.api.audit import notes
from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import PUBLIC, ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import authority, listing, requests, services, views
from nova_lite.api.identity.app_credentials import IdentityAppCredentials
from nova_lite.api.identity.assignments import IdentityAssignments
from nova_lite.api.identity.authority import Authority, Identity, Scope
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.credentials import IdentityCredentials
from nova_lite.api.identity.domain_config import IdentityDomainConfig
from nova_lite.api.identity.domains import IdentityDomains
from nova_lite.api.identity.endpoint_filters import IdentityEndpointFilters
from nova_lite.api.identity.faults import fault
from nova_lite.api.identity.federation import IdentityFederation
from nova_lite.api.identity.groups import IdentityGroups
from nova_lite.api.identity.limits import IdentityLimits
from nova_lite.api.identity.management import IdentityManagement
from nova_lite.api.identity.policy_blobs import IdentityPolicies
from nova_lite.api.identity.projects import IdentityProjects
from nova_lite.api.identity.records import SYSTEM_ID, ApplicationCredential, User
from nova_lite.api.identity.roles import IdentityRoles
from nova_lite.api.identity.services import IdentityCatalog
from nova_lite.api.identity.tokens import Token
from nova_lite.api.identity.trusts import IdentityTrusts
from nova_lite.api.identity.versions import IdentityVersions
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

SUBJECT = "X-Subject-Token"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> IdentityApp:
    del global_conf, local_conf
    services = deploy.services()
    return IdentityApp(services, authority.of(services))


class IdentityApp(
    IdentityVersions,
    IdentityManagement,
    IdentityProjects,
    IdentityDomains,
    IdentityGroups,
    IdentityAssignments,
    IdentityRoles,
    IdentityAppCredentials,
    IdentityCredentials,
    IdentityCatalog,
    IdentityTrusts,
    IdentityFederation,
    IdentityLimits,
    IdentityPolicies,
    IdentityDomainConfig,
    IdentityEndpointFilters,
    rest.ServiceApplication,
):
    """WSGI application, mounted at ``/``."""

    routes = (
        *IdentityVersions.routes,
        *IdentityManagement.routes,
        *IdentityProjects.routes,
        *IdentityDomains.routes,
        *IdentityGroups.routes,
        *IdentityAssignments.routes,
        *IdentityRoles.routes,
        *IdentityAppCredentials.routes,
        *IdentityCredentials.routes,
        *IdentityCatalog.routes,
        *IdentityTrusts.routes,
        *IdentityFederation.routes,
        *IdentityLimits.routes,
        *IdentityPolicies.routes,
        *IdentityDomainConfig.routes,
        *IdentityEndpointFilters.routes,
        ServiceRoute("POST", "/v3/auth/tokens", "issue", PUBLIC),
        ServiceRoute("GET", "/v3/auth/tokens", "validate", policies.VALIDATE, authorizes=True),
        ServiceRoute("DELETE", "/v3/auth/tokens", "revoke", policies.REVOKE, authorizes=True),
        ServiceRoute("GET", "/v3/auth/catalog", "catalog", policies.CATALOG),
        ServiceRoute("GET", "/v3/auth/projects", "own_projects", policies.OWN_PROJECTS),
        ServiceRoute("GET", "/v3/auth/domains", "own_domains", policies.OWN_PROJECTS),
        ServiceRoute("GET", "/v3/auth/system", "own_system", policies.OWN_PROJECTS),
        ServiceRoute("GET", "/v3/users", "index", policies.USERS_LIST),
        ServiceRoute("GET", "/v3/users/{id}", "show", policies.USERS_SHOW, {"user_id": "id"}),
        ServiceRoute("GET", "/v3/users/{id}/projects", "user_projects", policies.USER_PROJECTS, {"user_id": "id"}),
        ServiceRoute("GET", "/v3/domains", "index", policies.DOMAINS_LIST),
        ServiceRoute("GET", "/v3/domains/{id}", "show", policies.DOMAINS_SHOW, {"domain_id": "id"}),
        ServiceRoute("GET", "/v3/services", "index", policies.SERVICES_LIST),
        ServiceRoute("GET", "/v3/services/{id}", "show", policies.SERVICES_SHOW),
        ServiceRoute("GET", "/v3/endpoints", "index", policies.ENDPOINTS_LIST),
        ServiceRoute("GET", "/v3/endpoints/{id}", "show", policies.ENDPOINTS_SHOW),
        ServiceRoute("GET", "/v3/regions", "index", policies.REGIONS_LIST),
        ServiceRoute("GET", "/v3/regions/{id}", "show", policies.REGIONS_SHOW),
    )

    def __init__(self, services: wsgi.ApiServices, shared_authority: Authority) -> None:
        super().__init__(services)
        self.authority = shared_authority
        self.service_catalog = Catalog(services.conf)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return fault(code, message, req.base_url + "/v3")

    # --- tokens

    def issue(self, req: ServiceRequest) -> Response:
        auth = requests.object_field(req.json_object(), "auth")
        scope = requests.scope(auth.get("scope"))
        given = requests.object_field(auth, "identity")
        identity, parent = self._authenticate(req, given, scope)
        methods = sorted(given["methods"])
        text, token = self.authority.issue(identity, parent, methods if {"password", "mapped"} & {*methods} else None)
        notes.caller(req.environ, token.user_id, token.project_id)
        return self.token_response(req, text, token, identity, 201)

    def token_response(self, req: ServiceRequest, text: str, token: Token, identity: Identity, status: int) -> Response:
        """Return the response with a token."""
        catalog = None if "nocatalog" in req.GET else self.service_catalog
        return Response(self._shown(token, identity, catalog), status, {SUBJECT: text, "Vary": "X-Auth-Token"})

    def _authenticate(
        self, req: ServiceRequest, identity: dict[str, Any], scope: Scope
    ) -> tuple[Identity, Token | None]:
        methods = identity.get("methods")
        if isinstance(methods, list) and sorted(map(str, methods)) in (["password"], ["password", "totp"]):
            user = self._by_password(req, requests.object_field(requests.object_field(identity, "password"), "user"))
            self.authority.check_methods(user, methods)
            if "totp" in methods:
                self._check_code(user, requests.object_field(requests.object_field(identity, "totp"), "user"))
            return self.authority.scoped(user, scope), None
        if methods == ["token"]:
            parent, known = self.authority.by_token(requests.text_field(requests.object_field(identity, "token"), "id"))
            notes.caller(req.environ, parent.user_id)
            if known.trust is not None:
                raise exceptions.Forbidden("A token of a trust cannot create another token.")
            if known.credential is not None:
                if scope != Scope():
                    raise exceptions.Forbidden(
                        "A token of an application credential cannot get a token with another scope."
                    )
                return known, parent
            return self.authority.scoped(known.user, scope), parent
        if methods == ["application_credential"]:
            if scope != Scope():
                raise exceptions.Unauthorized("An application credential has its project. It cannot request a scope.")
            given = requests.object_field(identity, "application_credential")
            return self._by_credential(req, given), None
        if methods == ["mapped"]:
            given = requests.object_field(identity, "mapped")
            ids = (requests.text_field(given, name) for name in ("identity_provider", "protocol"))
            return self.authority.scoped(self.by_bearer(req, *ids), scope), None
        if not isinstance(methods, list) or not methods:
            raise exceptions.ValidationError(detail="Expecting to find methods in identity.")
        raise exceptions.Unauthorized(
            "Only the methods password, token, mapped and application_credential are supported, one of them at a time, "
            "and totp together with password."
        )

    def _check_code(self, user: User, given: dict[str, Any]) -> None:
        """Raise `Unauthorized` unless the one-time code is right, and is of the user who gave the password."""
        code, named = requests.text_field(given, "passcode"), self._named_user(given)
        if named is None or named.id != user.id:
            raise exceptions.Unauthorized()
        self.authority.check_code(user, code)

    def _by_credential(self, req: ServiceRequest, given: dict[str, Any]) -> Identity:
        secret, content, address = requests.text_field(given, "secret"), self.authority.content, req.remote_addr or ""
        if "id" in given:
            id = requests.text_field(given, "id")
            found = content.find(ApplicationCredential, id)
            notes.caller(req.environ, found.user_id if found is not None else None)
            return self.authority.by_credential(found, id, secret, address)
        name, user = requests.text_field(given, "name"), self._named_user(requests.object_field(given, "user"))
        notes.caller(req.environ, user.id if user is not None else None)
        named = [item for item in content.application_credentials if item.name == name]
        credential = next((item for item in named if user is not None and item.user_id == user.id), None)
        return self.authority.by_credential(credential, name, secret, address)

    def _named_user(self, user: dict[str, Any]) -> User | None:
        if "id" in user:
            return self.authority.content.user(requests.text_field(user, "id"))
        content, name = self.authority.content, requests.text_field(user, "name")
        domain = requests.domain_name(user.get("domain")).find(content)
        return content.user_named(name, domain.id) if domain is not None else None

    def _by_password(self, req: ServiceRequest, user: dict[str, Any]) -> User:
        password, address = requests.text_field(user, "password"), req.remote_addr or ""
        found = self._named_user(user)
        notes.caller(req.environ, found.id if found is not None else None)
        if "id" in user:
            return self.authority.by_password(password, address, user_id=requests.text_field(user, "id"))
        domain = requests.domain_name(user.get("domain"))
        return self.authority.by_password(password, address, name=requests.text_field(user, "name"), domain=domain)

    def validate(self, req: ServiceRequest) -> Response:
        text, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        if identity.credential is not None and identity.credential.access_rules and not _enforces_rules(req):
            raise exceptions.NotFound(
                "Could not find token. It has access rules, and its receiver does not say that it enforces such rules."
            )
        return self.token_response(req, text, token, identity, 200)

    def revoke(self, req: ServiceRequest) -> Response:
        _, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        self.authority.tokens.revoke(token)
        return Response(status=204)

    def _shown(self, token: Token, identity: Identity, catalog: Catalog | None) -> dict[str, Any]:
        return views.token(token, identity, catalog, self.authority.content)

    def _subject(self, req: ServiceRequest) -> tuple[str, Token, Identity]:
        text = req.headers.get(SUBJECT, "")
        try:
            return text, *self.authority.by_token(text)
        except exceptions.Unauthorized as error:
            raise exceptions.NotFound("Could not find token.") from error

    # --- the caller

    def catalog(self, req: ServiceRequest) -> Response:
        project_id = req.context.project_id
        if project_id is None and not req.context.roles:
            raise exceptions.Forbidden("Only a token for a project, a domain or the system has a catalog.")
        entries = self.service_catalog.entries(self.authority.content, str(req.context.user_id), project_id)
        return Response({"catalog": entries, "links": listing.links(f"{req.base_url}/v3/auth/catalog")})

    def own_projects(self, req: ServiceRequest) -> Response:
        return self._projects_of(req, str(req.context.user_id))

    def own_domains(self, req: ServiceRequest) -> Response:
        content = self.authority.content
        user = requests.require("user", str(req.context.user_id), content.user(str(req.context.user_id)))
        shown = (views.domain(domain, req.base_url) for domain in content.domains_of(user))
        return listing.listed(req, "domains", shown, "/v3/auth/domains")

    def own_system(self, req: ServiceRequest) -> Response:
        """Return the systems in which the caller has roles: this cloud, or none."""
        content = self.authority.content
        user = requests.require("user", str(req.context.user_id), content.user(str(req.context.user_id)))
        shown = [{"all": True}] if content.roles_of(user, SYSTEM_ID) else []
        return listing.listed(req, "system", shown, "/v3/auth/system")

    def user_projects(self, req: ServiceRequest, id: str) -> Response:
        return self._projects_of(req, id)

    def _projects_of(self, req: ServiceRequest, user_id: str) -> Response:
        user = requests.require("user", user_id, self.authority.content.user(user_id))
        projects = self.authority.content.projects_of(user)
        return listing.listed(req, "projects", (views.project(project, req.base_url) for project in projects))

    # --- lists of all resources

    def index(self, req: ServiceRequest) -> Response:
        kind = _kind(req)
        if kind in ("users", "groups"):
            self.authority.read_directory(kind, req.GET.get("domain_id"), req.GET.get("name"))
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
            case "users":
                return [views.user(user, url) for user in content.users]
            case "groups":
                return [views.group(group, url) for group in content.groups]
            case "domains":
                return [views.domain(domain, url) for domain in content.all_domains()]
            case "services":
                built_in = [views.linked(item, url, kind) for item in self.service_catalog.services]
                return [*built_in, *(services.shown_service(item, url) for item in content.services)]
            case "endpoints":
                built_in = [views.linked(item, url, kind) for item in self.service_catalog.endpoints]
                return [*built_in, *(services.shown_endpoint(item, url) for item in content.endpoints)]
            case _:
                built_in = [views.linked(item, url, kind) for item in self.service_catalog.regions]
                return [*built_in, *(services.shown_region(item, url) for item in content.regions)]


def _enforces_rules(req: ServiceRequest) -> bool:
    """Check whether the request has the header by which services say that they enforce access rules."""
    try:
        return float(req.headers.get("OpenStack-Identity-Access-Rules", "0")) >= 1.0
    except ValueError:
        return False


def _kind(req: ServiceRequest) -> str:
    """Return the kind of resource in the request's path: ``users`` for ``/v3/users/{id}``."""
    kind: str = req.path_info.split("/")[2]
    return kind
