"""Log-ins by tokens of identity providers, over the identity API."""

from __future__ import annotations

import logging
import time

from nova_lite.api.audit import notes
from nova_lite.api.http.rest import PUBLIC, ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, external, federation, mapping_rules, requests
from nova_lite.api.identity.authority import Authority, Identity
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.external import ExternalUser
from nova_lite.api.identity.mapping_rules import Mapped, NothingMappedError
from nova_lite.api.identity.oidc import Claims, RefusedTokenError
from nova_lite.api.identity.records import FederationMapping, Group, IdentityProvider, User
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)


class ProviderLogins(IdentityResource):
    """Log-ins by tokens of identity providers."""

    @route("GET", f"{federation.PROTOCOL}/auth", PUBLIC, response="token", status=201)
    @route("POST", f"{federation.PROTOCOL}/auth", PUBLIC, response="token", status=201)
    def log_in(self, req: ServiceRequest, idp_id: str, protocol_id: str) -> Response:
        """Return an unscoped token for the user of a provider's token in the header ``Authorization``."""
        identity = Identity(user_of(self.authority, req, idp_id, protocol_id), None, [])
        text, token = self.authority.issue(identity, None, ["mapped"])
        return self.token_response(req, text, token, identity)


def user_of(authority: Authority, req: ServiceRequest, idp_id: str, protocol_id: str) -> User:
    """Return the user of the provider's token. The caller's mistake is in the log, and the response is a 401."""
    scheme, _, token = req.headers.get("Authorization", "").partition(" ")
    content, oidc = authority.content, authority.oidc
    provider = federation.provider_of(content, idp_id)
    mapping = content.find(FederationMapping, federation.protocol_of(content, idp_id, protocol_id).mapping_id)
    try:
        if scheme.lower() != "bearer" or oidc is None:
            raise RefusedTokenError("there is no Bearer token" if oidc is not None else "[oidc] issuers is not set")
        if not provider.enabled or not requests.domain(content, provider.domain_id).enabled or mapping is None:
            raise RefusedTokenError("the identity provider, its domain or its mapping is disabled or deleted")
        claims = oidc.claims(provider.remote_ids, token.strip())
        mapped = mapping_rules.evaluate(mapping.rules, mapping_rules.assertion_of(claims))
        user = _user_of(authority, provider, protocol_id, claims, mapped)
    except (RefusedTokenError, NothingMappedError, exceptions.InvalidInput, exceptions.Conflict) as error:
        address = req.remote_addr or ""
        LOG.warning("Failed log-in by the identity provider %s from %s: %s", provider.id, address, error)
        raise exceptions.Unauthorized() from error
    notes.caller(req.environ, user.id)
    authority.check_methods(user, ["mapped"])
    if not authority.content.is_usable(user):
        raise exceptions.Unauthorized()
    return user


def _user_of(
    authority: Authority, provider: IdentityProvider, protocol_id: str, claims: Claims, mapped: Mapped
) -> User:
    given = mapped.user
    if given.is_local:
        content = authority.content
        domain = given.domain.find(content) if given.domain is not None else content.domain(provider.domain_id)
        found = content.user(given.id) if given.id is not None else None
        if given.id is None and domain is not None:
            found = content.user_named(str(given.name), domain.id)
        if found is None or found.source:
            raise NothingMappedError(f"there is no user {str(given.id or given.name)[:64]!r} of ours")
        return found
    minutes = provider.authorization_ttl
    lifetime = minutes * 60 if minutes else authority.conf.identity.token_expiration

    def put(content: Content) -> User:
        user = _described(content, provider, protocol_id, mapped)
        return external.put_user(content, user._replace(until=time.time() + lifetime))

    return authority.replica.change(put)


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
