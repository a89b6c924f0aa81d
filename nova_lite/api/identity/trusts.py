"""Trusts: a user lets another user act in a project with some roles, as Heat does for its stacks.

The trustor creates a trust. The trustee logs in with the trust as the scope. Such a token has those roles of the trust
that the trustor still has. With impersonation its user is the trustor.
"""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.http.bodies import checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import requests, views
from nova_lite.api.identity.authority import CREDENTIAL, TRUST
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Role, Trust
from nova_lite.api.identity.requests import Expiry, Open, Roles, Words, is_number, valid
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

#: Trusts of one trustor. Each API process has all of them in memory.
MAX_TRUSTS = 1000

_TRUSTS = "/v3/OS-TRUST/trusts"


_is_flag = valid(lambda value: isinstance(value, bool), "Expecting to find {} in the trust, as a boolean.")
_are_uses = valid(
    lambda value: value is None or is_number(value, 1, 2**31 - 1), "{} must be a positive integer or null."
)


class TrustParties(Open):
    trustor_user_id: Words
    trustee_user_id: Words


class NewTrust(TrustParties):
    project_id: Words
    impersonation: Annotated[bool, checked(_is_flag)]
    roles: Roles = []
    expires_at: Expiry = None
    remaining_uses: Annotated[int | None, checked(_are_uses)] = None


class Trusts(IdentityResource):
    """Trusts."""

    @route("GET", _TRUSTS, policies.TRUSTS_LIST, authorizes=True, response="trusts")
    def index(self, req: ServiceRequest) -> Response:
        """List all trusts, or those of the trustor or trustee in the query."""
        wanted = {name: req.GET[name] for name in ("trustor_user_id", "trustee_user_id") if name in req.GET}
        rule = policies.TRUSTS_LIST
        if "trustor_user_id" in wanted:
            rule = policies.TRUSTS_OF_TRUSTOR
        elif wanted:
            rule = policies.TRUSTS_OF_TRUSTEE
        req.authorize(rule, {"trustor_user_id": "", "trustee_user_id": ""} | wanted)
        _refuse_delegated(req)
        shown = (views.trust(item, req.base_url) for item in self.content.trusts)
        return self.listed(req, shown)

    @route("POST", _TRUSTS, policies.TRUSTS_CREATE, authorizes=True, body=NewTrust, key="trust", status=201)
    def create(self, req: ServiceRequest) -> View:
        parties = requests.read(req, TrustParties)
        trustor, trustee = parties.trustor_user_id, parties.trustee_user_id
        req.authorize(req.declared.policy, {"trustor_user_id": trustor, "trustee_user_id": trustee})
        _refuse_delegated(req)
        if trustor != req.context.user_id:
            raise exceptions.Forbidden("A trust can be created only by its trustor.")
        body = requests.read(req, NewTrust)
        roles = requests.role_keys(body.roles, self.content)
        if not roles:
            raise exceptions.Forbidden("At least one role should be specified.")
        made = requests.new(req, Trust, body, trustor_id=trustor, trustee_id=trustee, roles=roles)
        self.change(lambda content: _add(content, made))
        return self._trust_view(req, made)

    @route("GET", f"{_TRUSTS}/{{id}}", policies.TRUSTS_SHOW, authorizes=True, response="trust")
    def show(self, req: ServiceRequest, id: str) -> View:
        return self._trust_view(req, self._found(req, id))

    @route("DELETE", f"{_TRUSTS}/{{id}}", policies.TRUSTS_DELETE, authorizes=True, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self._found(req, id)
        self.change(lambda content: content.trusts.remove(requests.require("trust", id, content.find(Trust, id))))

    @route("GET", f"{_TRUSTS}/{{id}}/roles", policies.TRUST_ROLES_LIST, authorizes=True, response="roles")
    def roles(self, req: ServiceRequest, id: str) -> Response:
        shown = (views.role(role, req.base_url) for role in self._trust_roles(self._found(req, id)))
        return self.listed(req, shown)

    @route("GET", f"{_TRUSTS}/{{id}}/roles/{{role}}", policies.TRUST_ROLES_SHOW, authorizes=True, response="role")
    def role(self, req: ServiceRequest, id: str, role: str) -> View:
        found = next((item for item in self._trust_roles(self._found(req, id)) if role in (item.key, item.id)), None)
        return views.role(requests.require("role", role, found), req.base_url)

    def _trust_roles(self, trust: Trust) -> list[Role]:
        roles = (self.content.role_by_key(key) for key in trust.roles)
        return [role for role in roles if role is not None]

    def _trust_view(self, req: ServiceRequest, trust: Trust) -> dict[str, Any]:
        return views.trust(trust, req.base_url, self._trust_roles(trust))

    def _found(self, req: ServiceRequest, id: str) -> Trust:
        """Return the trust, if the caller is its trustor or trustee. Raises `NotFound` first, as Keystone does."""
        trust = requests.require("trust", id, self.content.find(Trust, id))
        parties = {"trustor_user_id": trust.trustor_id, "trustee_user_id": trust.trustee_id}
        req.authorize(req.declared.policy, parties)
        if req.environ.get(CREDENTIAL) is not None:
            raise exceptions.Forbidden("A token of an application credential cannot manage trusts.")
        return trust


def _add(content: Content, made: Trust) -> None:
    trustor = requests.user(content, made.trustor_id)
    requests.user(content, made.trustee_id)
    requests.project(content, made.project_id)
    has = content.with_implied(content.roles_of(trustor, made.project_id))
    for key in made.roles:
        role = requests.require("role", key, content.role_by_key(key))
        if key not in has:
            raise exceptions.NotFound(f"Could not find role: the trustor does not have {role.name} in the project.")
    if sum(trust.trustor_id == trustor.id for trust in content.trusts) >= MAX_TRUSTS:
        raise exceptions.Forbidden(f"A user has at most {MAX_TRUSTS} trusts. Delete the unused ones.")
    content.trusts.append(made)


def _refuse_delegated(req: ServiceRequest) -> None:
    """Raise `Forbidden` for a token that is limited itself, since a trust may outlive it."""
    if req.environ.get(CREDENTIAL) is not None or req.environ.get(TRUST) is not None:
        raise exceptions.Forbidden("A token of an application credential or of a trust cannot manage trusts.")
