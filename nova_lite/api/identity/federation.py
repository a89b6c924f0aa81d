"""Identity providers, protocols and mappings over the identity API, and log-ins by a provider's token."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.audit import notes
from nova_lite.api.http.rest import PUBLIC, ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, external, listing, mapping_rules, requests, views
from nova_lite.api.identity.authority import Authority, Identity
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.external import ExternalUser
from nova_lite.api.identity.mapping_rules import Mapped, NothingMappedError
from nova_lite.api.identity.oidc import Claims, RefusedTokenError
from nova_lite.api.identity.records import Domain, FederationMapping, FederationProtocol, Group, IdentityProvider, User
from nova_lite.api.identity.tokens import Token
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Limits of an identity provider: minutes, and issuers.
MAX_TTL, MAX_REMOTE_IDS = 1_000_000, 100

_ROOT = "/v3/OS-FEDERATION"
_PROVIDER = f"{_ROOT}/identity_providers/{{idp_id}}"
_PROTOCOL = f"{_PROVIDER}/protocols/{{protocol_id}}"
_MAPPING = f"{_ROOT}/mappings/{{mapping_id}}"


class IdentityFederation:
    """Mixin of `IdentityApp`: the handlers of federation."""

    authority: Authority
    token_response: Callable[[ServiceRequest, str, Token, Identity, int], Response]
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", f"{_ROOT}/identity_providers", "list_providers", policies.PROVIDERS_LIST),
        ServiceRoute("GET", _PROVIDER, "show_provider", policies.PROVIDERS_SHOW),
        ServiceRoute("PUT", _PROVIDER, "create_provider", policies.PROVIDERS_CREATE),
        ServiceRoute("PATCH", _PROVIDER, "update_provider", policies.PROVIDERS_UPDATE),
        ServiceRoute("DELETE", _PROVIDER, "delete_provider", policies.PROVIDERS_DELETE),
        ServiceRoute("GET", f"{_PROVIDER}/protocols", "list_protocols", policies.PROTOCOLS_LIST),
        ServiceRoute("GET", _PROTOCOL, "show_protocol", policies.PROTOCOLS_SHOW),
        ServiceRoute("PUT", _PROTOCOL, "create_protocol", policies.PROTOCOLS_CREATE),
        ServiceRoute("PATCH", _PROTOCOL, "update_protocol", policies.PROTOCOLS_UPDATE),
        ServiceRoute("DELETE", _PROTOCOL, "delete_protocol", policies.PROTOCOLS_DELETE),
        ServiceRoute("GET", f"{_ROOT}/mappings", "list_mappings", policies.MAPPINGS_LIST),
        ServiceRoute("GET", _MAPPING, "show_mapping", policies.MAPPINGS_SHOW),
        ServiceRoute("PUT", _MAPPING, "create_mapping", policies.MAPPINGS_CREATE),
        ServiceRoute("PATCH", _MAPPING, "update_mapping", policies.MAPPINGS_UPDATE),
        ServiceRoute("DELETE", _MAPPING, "delete_mapping", policies.MAPPINGS_DELETE),
        ServiceRoute("GET", f"{_PROTOCOL}/auth", "log_in_by_provider", PUBLIC),
        ServiceRoute("POST", f"{_PROTOCOL}/auth", "log_in_by_provider", PUBLIC),
        ServiceRoute("GET", f"{_ROOT}/projects", "own_projects", policies.OWN_PROJECTS),
        ServiceRoute("GET", f"{_ROOT}/domains", "own_domains", policies.OWN_PROJECTS),
    )

    # --- log-in

    def log_in_by_provider(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        """Return an unscoped token for the user of a provider's token in the header ``Authorization``."""
        identity = Identity(self.by_bearer(req, idp_id, protocol_id), None, [])
        text, token = self.authority.issue(identity, None, ["mapped"])
        return self.token_response(req, text, token, identity, 201)

    def by_bearer(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> User:
        """Return the user of the provider's token. The caller's mistake is in the log, and the response is a 401."""
        scheme, _, token = req.headers.get("Authorization", "").partition(" ")
        content, oidc = self.authority.content, self.authority.oidc
        provider = _provider(content, idp_id)
        mapping = content.find(FederationMapping, _protocol(content, idp_id, protocol_id).mapping_id)
        try:
            if scheme.lower() != "bearer" or oidc is None:
                raise RefusedTokenError("there is no Bearer token" if oidc is not None else "[oidc] issuers is not set")
            if not provider.enabled or not _domain_of(content, provider).enabled or mapping is None:
                raise RefusedTokenError("the identity provider, its domain or its mapping is disabled or deleted")
            claims = oidc.claims(provider.remote_ids, token.strip())
            mapped = mapping_rules.evaluate(mapping.rules, mapping_rules.assertion_of(claims))
            user = self._user_of(provider, protocol_id, claims, mapped)
        except (RefusedTokenError, NothingMappedError, exceptions.InvalidInput, exceptions.Conflict) as error:
            address = req.remote_addr or ""
            LOG.warning("Failed log-in by the identity provider %s from %s: %s", provider.id, address, error)
            raise exceptions.Unauthorized() from error
        notes.caller(req.environ, user.id)
        self.authority.check_methods(user, ["mapped"])
        if not self.authority.content.is_usable(user):
            raise exceptions.Unauthorized()
        return user

    def _user_of(self, provider: IdentityProvider, protocol_id: str, claims: Claims, mapped: Mapped) -> User:
        given = mapped.user
        if given.is_local:
            content = self.authority.content
            domain = given.domain.find(content) if given.domain is not None else content.domain(provider.domain_id)
            found = content.user(given.id) if given.id is not None else None
            if given.id is None and domain is not None:
                found = content.user_named(str(given.name), domain.id)
            if found is None or found.source:
                raise NothingMappedError(f"there is no user {str(given.id or given.name)[:64]!r} of ours")
            return found
        minutes = provider.authorization_ttl
        lifetime = minutes * 60 if minutes else self.authority.conf.identity.token_expiration

        def put(content: Content) -> User:
            user = _described(content, provider, protocol_id, mapped)
            return external.put_user(content, user._replace(until=time.time() + lifetime))

        return self._change(put)

    # --- identity providers

    def list_providers(self, req: ServiceRequest) -> Response:
        shown = (views.identity_provider(item, req.base_url) for item in self.authority.content.identity_providers)
        return listing.listed(req, "identity_providers", shown, f"{_ROOT}/identity_providers")

    def show_provider(self, req: ServiceRequest, idp_id: str) -> Response:
        found = _provider(self.authority.content, idp_id)
        return Response({"identity_provider": views.identity_provider(found, req.base_url)})

    def create_provider(self, req: ServiceRequest, idp_id: str) -> Response:
        """Create the provider, and a domain for its users if none is given."""
        body = _body(req, "identity_provider", "domain_id", *_FIELDS)
        _check_id("identity provider", idp_id)
        if not isinstance(body.get("domain_id"), str | None):
            raise _wrong("domain_id", "a string")

        def create(content: Content) -> IdentityProvider:
            if content.find(IdentityProvider, idp_id) is not None:
                raise exceptions.Conflict(f"Identity provider {idp_id} already exists.")
            domain_id = body.get("domain_id")
            if domain_id is None:
                name = idp_id if content.domain_named(idp_id) is None else uuid.uuid4().hex
                domain_id = directory.add_domain(content, name, f"Users of the identity provider {idp_id}").id
            requests.require("domain", domain_id, content.domain(domain_id))
            made = IdentityProvider(id=idp_id, domain_id=domain_id)
            content.identity_providers.append(made)
            _set_provider(content, made, body)
            return made

        return Response({"identity_provider": views.identity_provider(self._change(create), req.base_url)}, 201)

    def update_provider(self, req: ServiceRequest, idp_id: str) -> Response:
        body = _body(req, "identity_provider", *_FIELDS)

        def update(content: Content) -> IdentityProvider:
            found = _provider(content, idp_id)
            _set_provider(content, found, body)
            return found

        return Response({"identity_provider": views.identity_provider(self._change(update), req.base_url)})

    def delete_provider(self, req: ServiceRequest, idp_id: str) -> Response:
        """Delete the provider with its protocols and users, but not its domain."""
        self._change(lambda content: directory.remove_provider(content, _provider(content, idp_id)))
        return Response(status=204)

    # --- protocols

    def list_protocols(self, req: ServiceRequest, idp_id: str) -> Response:
        content = self.authority.content
        _provider(content, idp_id)
        found = [item for item in content.federation_protocols if item.id.partition("/")[0] == idp_id]
        shown = (views.federation_protocol(item, req.base_url) for item in found)
        return listing.listed(req, "protocols", shown, f"{_ROOT}/identity_providers/{idp_id}/protocols")

    def show_protocol(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        found = _protocol(self.authority.content, idp_id, protocol_id)
        return Response({"protocol": views.federation_protocol(found, req.base_url)})

    def create_protocol(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        body = _body(req, "protocol", "mapping_id", "remote_id_attribute")
        requests.text_field(body, "mapping_id")
        _check_id("protocol", protocol_id)

        def create(content: Content) -> FederationProtocol:
            _provider(content, idp_id)
            made = FederationProtocol(id=f"{idp_id}/{protocol_id}", mapping_id="")
            if content.find(FederationProtocol, made.id) is not None:
                raise exceptions.Conflict(f"Protocol {protocol_id} already exists.")
            content.federation_protocols.append(made)
            _set_protocol(content, made, body)
            return made

        return Response({"protocol": views.federation_protocol(self._change(create), req.base_url)}, 201)

    def update_protocol(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        body = _body(req, "protocol", "mapping_id", "remote_id_attribute")

        def update(content: Content) -> FederationProtocol:
            found = _protocol(content, idp_id, protocol_id)
            _set_protocol(content, found, body)
            return found

        return Response({"protocol": views.federation_protocol(self._change(update), req.base_url)})

    def delete_protocol(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        def delete(content: Content) -> None:
            content.federation_protocols.remove(_protocol(content, idp_id, protocol_id))

        self._change(delete)
        return Response(status=204)

    # --- mappings

    def list_mappings(self, req: ServiceRequest) -> Response:
        shown = (views.mapping(item, req.base_url) for item in self.authority.content.mappings)
        return listing.listed(req, "mappings", shown, f"{_ROOT}/mappings")

    def show_mapping(self, req: ServiceRequest, mapping_id: str) -> Response:
        return Response({"mapping": views.mapping(_mapping(self.authority.content, mapping_id), req.base_url)})

    def create_mapping(self, req: ServiceRequest, mapping_id: str) -> Response:
        made = FederationMapping(id=_check_id("mapping", mapping_id), rules=[])
        _set_mapping(made, _body(req, "mapping", "rules", "schema_version", "id"))

        def create(content: Content) -> None:
            if content.find(FederationMapping, mapping_id) is not None:
                raise exceptions.Conflict(f"Mapping {mapping_id} already exists.")
            content.mappings.append(made)

        self._change(create)
        return Response({"mapping": views.mapping(made, req.base_url)}, 201)

    def update_mapping(self, req: ServiceRequest, mapping_id: str) -> Response:
        body = _body(req, "mapping", "rules", "schema_version", "id")

        def update(content: Content) -> FederationMapping:
            found = _mapping(content, mapping_id)
            _set_mapping(found, body)
            return found

        return Response({"mapping": views.mapping(self._change(update), req.base_url)})

    def delete_mapping(self, req: ServiceRequest, mapping_id: str) -> Response:
        """Delete the mapping. No user logs in by protocols that have it until they get another."""
        self._change(lambda content: content.mappings.remove(_mapping(content, mapping_id)))
        return Response(status=204)

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


# --- users of providers


def _described(content: Content, provider: IdentityProvider, protocol_id: str, mapped: Mapped) -> ExternalUser:
    """Return the user of a mapping, whose groups and roles are ours. Missing groups, roles and projects are left out.

    A name that another user of the domain has gets a part of the id behind it, because users choose names themselves.
    """
    key = mapped.user.id or str(mapped.user.name)
    id = external.id_of("user", provider.id.encode(), protocol_id.encode(), key.encode(errors="surrogatepass"))
    name = mapped.user.name or key
    other = content.user_named(name, provider.domain_id)
    if other is not None and other.id != id:
        name = f"{name[:200]} {id[:8]}"
    source = f"idp/{provider.id}/{protocol_id}"
    groups, roles = _groups(content, mapped), _roles(content, provider.domain_id, mapped)
    return ExternalUser(id, source, key, name, provider.domain_id, mapped.user.email, groups, roles=roles)


def _groups(content: Content, mapped: Mapped) -> tuple[str, ...]:
    found = [content.find(Group, id) for id in mapped.group_ids]
    for name, domain_name in mapped.groups:
        domain = domain_name.find(content)
        found.append(content.group_named(name, domain.id) if domain is not None else None)
    return tuple(dict.fromkeys(group.id for group in found if group is not None))


def _roles(content: Content, domain_id: str, mapped: Mapped) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the roles by project. A project that does not exist in the provider's domain is made."""
    found: dict[str, list[str]] = {}
    for name, role_names in mapped.projects:
        roles = [role.key for role in map(content.role_named, role_names) if role is not None]
        project = content.project_named(name, domain_id) or directory.add_project(content, name, domain_id=domain_id)
        found.setdefault(project.id, []).extend(roles)
    return tuple((project_id, tuple(dict.fromkeys(keys))) for project_id, keys in found.items() if keys)


# --- requests

_FIELDS = ("enabled", "description", "remote_ids", "authorization_ttl")


def _body(req: ServiceRequest, kind: str, *known: str) -> dict[str, Any]:
    """Return the body's object. Raises `ValidationError` for a field that is not known, as Keystone does."""
    body = requests.body_object(req, kind)
    if unknown := sorted(set(body) - set(known)):
        raise exceptions.ValidationError(detail=f"The {kind} has no field {unknown[0][:64]!r} that can be set here.")
    return body


def _wrong(name: str, form: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"{name} must be {form}.")


def _check_id(kind: str, id: str) -> str:
    if not _ID.fullmatch(id):
        raise exceptions.ValidationError(detail=f"The id of the {kind} must have 1 to 64 letters, digits or _.-")
    return id


def _set_provider(content: Content, item: IdentityProvider, body: dict[str, Any]) -> None:
    enabled, description, remote_ids, minutes = (body.get(name) for name in _FIELDS)
    if not isinstance(enabled, bool | None):
        raise _wrong("enabled", "true or false")
    if not isinstance(description, str | None) or len(description or "") > 4096:
        raise _wrong("description", "a string of at most 4096 characters")
    is_number = isinstance(minutes, int) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and 0 <= minutes <= MAX_TTL):
        raise _wrong("authorization_ttl", f"a number of minutes from 0 to {MAX_TTL}")
    if remote_ids is not None and not _are_remote_ids(remote_ids):
        raise _wrong("remote_ids", f"a list of at most {MAX_REMOTE_IDS} strings of 1 to 255 characters, each once")
    taken = {id for other in content.identity_providers if other is not item for id in other.remote_ids}
    if both := sorted(taken & set(remote_ids or [])):
        raise exceptions.Conflict(f"Another identity provider has the remote id {both[0]}.")
    item.enabled = enabled if enabled is not None else item.enabled
    item.remote_ids = list(remote_ids) if remote_ids is not None else item.remote_ids
    if "description" in body:
        item.description = description
    if "authorization_ttl" in body:
        item.authorization_ttl = minutes


def _are_remote_ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_REMOTE_IDS
        and all(isinstance(id, str) and 0 < len(id) <= 255 for id in value)
        and len(set(value)) == len(value)
    )


def _set_protocol(content: Content, item: FederationProtocol, body: dict[str, Any]) -> None:
    if "mapping_id" in body:
        mapping_id = requests.text_field(body, "mapping_id")
        if content.find(FederationMapping, mapping_id) is None:
            raise exceptions.ValidationError(detail=f"There is no mapping {mapping_id[:64]}.")
        item.mapping_id = mapping_id
    if "remote_id_attribute" in body:
        attribute = body["remote_id_attribute"]
        if not isinstance(attribute, str | None) or len(attribute or "") > 64:
            raise _wrong("remote_id_attribute", "a string of at most 64 characters")
        item.remote_id_attribute = attribute


def _set_mapping(item: FederationMapping, body: dict[str, Any]) -> None:
    if "rules" in body or not item.rules:
        item.rules = mapping_rules.check(body.get("rules"))
    version = body.get("schema_version", item.schema_version)
    if version not in ("1.0", "2.0"):
        raise _wrong("schema_version", "1.0 or 2.0")
    item.schema_version = version


# --- records


def _domain_of(content: Content, provider: IdentityProvider) -> Domain:
    return requests.require("domain", provider.domain_id, content.domain(provider.domain_id))


def _provider(content: Content, id: str) -> IdentityProvider:
    return requests.require("identity provider", id, content.find(IdentityProvider, id))


def _protocol(content: Content, idp_id: str, id: str) -> FederationProtocol:
    return requests.require("protocol", id, content.find(FederationProtocol, f"{idp_id}/{id}"))


def _mapping(content: Content, id: str) -> FederationMapping:
    return requests.require("mapping", id, content.find(FederationMapping, id))
