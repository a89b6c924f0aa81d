"""Identity providers, their protocols, and mappings, over the identity API."""

from __future__ import annotations

import re
import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, mapping_rules, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import FederationMapping, FederationProtocol, IdentityProvider
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Limits of an identity provider: minutes, and issuers.
MAX_TTL, MAX_REMOTE_IDS = 1_000_000, 100

_ROOT = "/v3/OS-FEDERATION"
_PROVIDER = f"{_ROOT}/identity_providers/{{idp_id}}"
PROTOCOL = f"{_PROVIDER}/protocols/{{protocol_id}}"
_MAPPING = f"{_ROOT}/mappings/{{mapping_id}}"


class Providers(IdentityResource):
    """Identity providers."""

    @route("GET", f"{_ROOT}/identity_providers", policies.PROVIDERS_LIST, response="identity_providers")
    def index(self, req: ServiceRequest) -> Response:
        shown = (views.identity_provider(item, req.base_url) for item in self.content.identity_providers)
        return self.listed(req, shown)

    @route("GET", _PROVIDER, policies.PROVIDERS_SHOW, response="identity_provider")
    def show(self, req: ServiceRequest, idp_id: str) -> View:
        found = provider_of(self.content, idp_id)
        return views.identity_provider(found, req.base_url)

    @route(
        "PUT", _PROVIDER, policies.PROVIDERS_CREATE, key="identity_provider", response="identity_provider", status=201
    )
    def create(self, req: ServiceRequest, idp_id: str) -> View:
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
            requests.domain(content, domain_id)
            made = IdentityProvider(id=idp_id, domain_id=domain_id)
            content.identity_providers.append(made)
            _set_provider(content, made, body)
            return made

        return views.identity_provider(self.change(create), req.base_url)

    @route("PATCH", _PROVIDER, policies.PROVIDERS_UPDATE, key="identity_provider", response="identity_provider")
    def update(self, req: ServiceRequest, idp_id: str) -> View:
        body = _body(req, "identity_provider", *_FIELDS)

        def update(content: Content) -> IdentityProvider:
            found = provider_of(content, idp_id)
            _set_provider(content, found, body)
            return found

        return views.identity_provider(self.change(update), req.base_url)

    @route("DELETE", _PROVIDER, policies.PROVIDERS_DELETE, status=204)
    def delete(self, req: ServiceRequest, idp_id: str) -> None:
        """Delete the provider with its protocols and users, but not its domain."""
        self.change(lambda content: directory.remove_provider(content, provider_of(content, idp_id)))


class Protocols(IdentityResource):
    """Protocols of identity providers."""

    @route("GET", f"{_PROVIDER}/protocols", policies.PROTOCOLS_LIST, response="protocols")
    def index(self, req: ServiceRequest, idp_id: str) -> Response:
        content = self.content
        provider_of(content, idp_id)
        found = [item for item in content.federation_protocols if item.id.partition("/")[0] == idp_id]
        shown = (views.federation_protocol(item, req.base_url) for item in found)
        return self.listed(req, shown)

    @route("GET", PROTOCOL, policies.PROTOCOLS_SHOW, response="protocol")
    def show(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> View:
        found = protocol_of(self.content, idp_id, protocol_id)
        return views.federation_protocol(found, req.base_url)

    @route("PUT", PROTOCOL, policies.PROTOCOLS_CREATE, key="protocol", response="protocol", status=201)
    def create(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> View:
        body = _body(req, "protocol", "mapping_id", "remote_id_attribute")
        requests.text_field(body, "mapping_id")
        _check_id("protocol", protocol_id)

        def create(content: Content) -> FederationProtocol:
            provider_of(content, idp_id)
            made = FederationProtocol(id=f"{idp_id}/{protocol_id}", mapping_id="")
            if content.find(FederationProtocol, made.id) is not None:
                raise exceptions.Conflict(f"Protocol {protocol_id} already exists.")
            content.federation_protocols.append(made)
            _set_protocol(content, made, body)
            return made

        return views.federation_protocol(self.change(create), req.base_url)

    @route("PATCH", PROTOCOL, policies.PROTOCOLS_UPDATE, key="protocol", response="protocol")
    def update(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> View:
        body = _body(req, "protocol", "mapping_id", "remote_id_attribute")

        def update(content: Content) -> FederationProtocol:
            found = protocol_of(content, idp_id, protocol_id)
            _set_protocol(content, found, body)
            return found

        return views.federation_protocol(self.change(update), req.base_url)

    @route("DELETE", PROTOCOL, policies.PROTOCOLS_DELETE, status=204)
    def delete(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> None:
        def delete(content: Content) -> None:
            content.federation_protocols.remove(protocol_of(content, idp_id, protocol_id))

        self.change(delete)


class Mappings(IdentityResource):
    """Mappings of the claims of identity providers."""

    @route("GET", f"{_ROOT}/mappings", policies.MAPPINGS_LIST, response="mappings")
    def index(self, req: ServiceRequest) -> Response:
        shown = (views.mapping(item, req.base_url) for item in self.content.mappings)
        return self.listed(req, shown)

    @route("GET", _MAPPING, policies.MAPPINGS_SHOW, response="mapping")
    def show(self, req: ServiceRequest, mapping_id: str) -> View:
        return views.mapping(_mapping(self.content, mapping_id), req.base_url)

    @route("PUT", _MAPPING, policies.MAPPINGS_CREATE, key="mapping", response="mapping", status=201)
    def create(self, req: ServiceRequest, mapping_id: str) -> View:
        made = FederationMapping(id=_check_id("mapping", mapping_id), rules=[])
        _set_mapping(made, _body(req, "mapping", "rules", "schema_version", "id"))

        def create(content: Content) -> None:
            if content.find(FederationMapping, mapping_id) is not None:
                raise exceptions.Conflict(f"Mapping {mapping_id} already exists.")
            content.mappings.append(made)

        self.change(create)
        return views.mapping(made, req.base_url)

    @route("PATCH", _MAPPING, policies.MAPPINGS_UPDATE, key="mapping", response="mapping")
    def update(self, req: ServiceRequest, mapping_id: str) -> View:
        body = _body(req, "mapping", "rules", "schema_version", "id")

        def update(content: Content) -> FederationMapping:
            found = _mapping(content, mapping_id)
            _set_mapping(found, body)
            return found

        return views.mapping(self.change(update), req.base_url)

    @route("DELETE", _MAPPING, policies.MAPPINGS_DELETE, status=204)
    def delete(self, req: ServiceRequest, mapping_id: str) -> None:
        """Delete the mapping. No user logs in by protocols that have it until they get another."""
        self.change(lambda content: content.mappings.remove(_mapping(content, mapping_id)))


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


def provider_of(content: Content, id: str) -> IdentityProvider:
    return requests.require("identity provider", id, content.find(IdentityProvider, id))


def protocol_of(content: Content, idp_id: str, id: str) -> FederationProtocol:
    return requests.require("protocol", id, content.find(FederationProtocol, f"{idp_id}/{id}"))


def _mapping(content: Content, id: str) -> FederationMapping:
    return requests.require("mapping", id, content.find(FederationMapping, id))
