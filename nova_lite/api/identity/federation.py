"""Identity providers, their protocols, and mappings, over the identity API."""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http.bodies import Body, changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, mapping_rules, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import FederationMapping, FederationProtocol, IdentityProvider
from nova_lite.api.identity.requests import Words, is_number, is_text, or_same, valid
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


def _text(longest: int) -> msgspec.Meta:
    sentence = f"{{}} must be a string of at most {longest} characters."
    return checked(valid(lambda value: is_text(value, longest), sentence), maxLength=longest)


def _are_remote_ids(value: Any) -> bool:
    return value is None or (
        isinstance(value, list)
        and len(value) <= MAX_REMOTE_IDS
        and all(isinstance(id, str) and 0 < len(id) <= 255 for id in value)
        and len(set(value)) == len(value)
    )


_is_flag = valid(lambda value: isinstance(value, bool | None), "{} must be true or false.")
_are_minutes = valid(
    lambda value: value is None or is_number(value, 0, MAX_TTL),
    f"{{}} must be a number of minutes from 0 to {MAX_TTL}.",
)
_are_ids = valid(
    _are_remote_ids, f"{{}} must be a list of at most {MAX_REMOTE_IDS} strings of 1 to 255 characters, each once."
)
_is_string = valid(lambda value: isinstance(value, str | None), "{} must be a string.")
_is_version = valid(lambda value: value in ("1.0", "2.0"), "{} must be 1.0 or 2.0.")
_Rules: TypeAlias = Annotated[Any, checked(lambda sent, name: mapping_rules.check(sent.get(name)), type="array")]


class ChangedProvider(Body):
    enabled: Annotated[bool, checked(or_same(_is_flag))] = False
    description: Annotated[str | None, _text(4096)] = None
    authorization_ttl: Annotated[int | None, checked(_are_minutes, minimum=0, maximum=MAX_TTL)] = None
    remote_ids: Annotated[list[str], checked(or_same(_are_ids), maxItems=MAX_REMOTE_IDS, uniqueItems=True)] = []


class NewProvider(ChangedProvider):
    domain_id: Annotated[str | None, checked(_is_string)] = None


class NewProtocol(Body, kw_only=True):
    mapping_id: Words
    remote_id_attribute: Annotated[str | None, _text(64)] = None


class NewMapping(Body, kw_only=True):
    rules: _Rules
    schema_version: Annotated[str, checked(_is_version, enum=["1.0", "2.0"])] = "1.0"
    id: Annotated[Any, checked(lambda sent, name: None)] = None


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

    @route("PUT", _PROVIDER, policies.PROVIDERS_CREATE, body=NewProvider, key="identity_provider", status=201)
    def create(self, req: ServiceRequest, idp_id: str) -> View:
        """Create the provider, and a domain for its users if none is given."""
        body = requests.read(req, NewProvider)
        _check_id("identity provider", idp_id)

        def create(content: Content) -> IdentityProvider:
            if content.find(IdentityProvider, idp_id) is not None:
                raise exceptions.Conflict(f"Identity provider {idp_id} already exists.")
            domain_id = body.domain_id
            if domain_id is None:
                name = idp_id if content.domain_named(idp_id) is None else uuid.uuid4().hex
                domain_id = directory.add_domain(content, name, f"Users of the identity provider {idp_id}").id
            requests.domain(content, domain_id)
            made = requests.new(req, IdentityProvider, body, id=idp_id, domain_id=domain_id)
            content.identity_providers.append(made)
            _check_remote_ids(content, made)
            return made

        return views.identity_provider(self.change(create), req.base_url)

    @route("PATCH", _PROVIDER, policies.PROVIDERS_UPDATE, body=ChangedProvider, key="identity_provider")
    def update(self, req: ServiceRequest, idp_id: str) -> View:
        found = self.updated(req, lambda content: provider_of(content, idp_id), _check_remote_ids)
        return views.identity_provider(found, req.base_url)

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

    @route("PUT", PROTOCOL, policies.PROTOCOLS_CREATE, body=NewProtocol, key="protocol", status=201)
    def create(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> View:
        body = requests.read(req, NewProtocol)
        _check_id("protocol", protocol_id)

        def create(content: Content) -> FederationProtocol:
            provider_of(content, idp_id)
            made = requests.new(req, FederationProtocol, body, id=f"{idp_id}/{protocol_id}")
            if content.find(FederationProtocol, made.id) is not None:
                raise exceptions.Conflict(f"Protocol {protocol_id} already exists.")
            content.federation_protocols.append(made)
            _check_mapping(content, made.mapping_id)
            return made

        return views.federation_protocol(self.change(create), req.base_url)

    @route("PATCH", PROTOCOL, policies.PROTOCOLS_UPDATE, body=changed(NewProtocol), key="protocol")
    def update(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> View:
        def check(content: Content, protocol: FederationProtocol) -> None:
            if "mapping_id" in requests.changes(req):
                _check_mapping(content, protocol.mapping_id)

        found = self.updated(req, lambda content: protocol_of(content, idp_id, protocol_id), check)
        return views.federation_protocol(found, req.base_url)

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

    @route("PUT", _MAPPING, policies.MAPPINGS_CREATE, body=NewMapping, key="mapping", status=201)
    def create(self, req: ServiceRequest, mapping_id: str) -> View:
        _check_id("mapping", mapping_id)
        made = requests.new(req, FederationMapping, requests.read(req, NewMapping), id=mapping_id)

        def create(content: Content) -> None:
            if content.find(FederationMapping, mapping_id) is not None:
                raise exceptions.Conflict(f"Mapping {mapping_id} already exists.")
            content.mappings.append(made)

        self.change(create)
        return views.mapping(made, req.base_url)

    @route("PATCH", _MAPPING, policies.MAPPINGS_UPDATE, body=changed(NewMapping), key="mapping")
    def update(self, req: ServiceRequest, mapping_id: str) -> View:
        found = self.updated(req, lambda content: _mapping(content, mapping_id))
        return views.mapping(found, req.base_url)

    @route("DELETE", _MAPPING, policies.MAPPINGS_DELETE, status=204)
    def delete(self, req: ServiceRequest, mapping_id: str) -> None:
        """Delete the mapping. No user logs in by protocols that have it until they get another."""
        self.change(lambda content: content.mappings.remove(_mapping(content, mapping_id)))


def _check_id(kind: str, id: str) -> None:
    if not _ID.fullmatch(id):
        raise exceptions.ValidationError(detail=f"The id of the {kind} must have 1 to 64 letters, digits or _.-")


def _check_remote_ids(content: Content, provider: IdentityProvider) -> None:
    taken = {id for other in content.identity_providers if other is not provider for id in other.remote_ids}
    if both := sorted(taken & set(provider.remote_ids)):
        raise exceptions.Conflict(f"Another identity provider has the remote id {both[0]}.")


def _check_mapping(content: Content, id: str) -> None:
    if content.find(FederationMapping, id) is None:
        raise exceptions.ValidationError(detail=f"There is no mapping {id[:64]}.")


def provider_of(content: Content, id: str) -> IdentityProvider:
    return requests.require("identity provider", id, content.find(IdentityProvider, id))


def protocol_of(content: Content, idp_id: str, id: str) -> FederationProtocol:
    return requests.require("protocol", id, content.find(FederationProtocol, f"{idp_id}/{id}"))


def _mapping(content: Content, id: str) -> FederationMapping:
    return requests.require("mapping", id, content.find(FederationMapping, id))
