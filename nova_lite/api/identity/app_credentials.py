"""Application credentials: passwords of programs, each for one project, with some of the user's roles.

A program logs in with the id and secret of such a credential. Its tokens have the roles of the credential that the user
still has, and end with the credential. Access rules limit them to some requests (`Credential.allows`).
"""

from __future__ import annotations

import re
import secrets
import uuid
from typing import Annotated, Any

from nova_lite.api.http.bodies import checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import access_rules, directory, passwords, requests, views
from nova_lite.api.identity.authority import CREDENTIAL, TRUST
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import AccessRule, ApplicationCredential, User
from nova_lite.api.identity.requests import Expiry, Open, Roles, is_text, valid
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

#: Application credentials of one user. Each API process has all of them in memory.
MAX_CREDENTIALS = 1000
#: Access rules of one application credential, and of one user. Rules outlive their credentials.
MAX_RULES, MAX_USER_RULES = 100, 1000
MAX_TEXT = 4096

_USER = {"user_id": "user_id"}
_CREDENTIALS = "/v3/users/{user_id}/application_credentials"
_RULES = "/v3/users/{user_id}/access_rules"


_is_text = valid(lambda value: is_text(value, MAX_TEXT), f"{{}} must be a string of at most {MAX_TEXT} characters.")
_is_flag = valid(lambda value: isinstance(value, bool | None), "{} must be a boolean.")


def _name(sent: dict[str, Any], name: str) -> str:
    return directory.check_name("application credential", requests.text_field(sent, name))


def _rules(sent: dict[str, Any], name: str) -> list[AccessRule]:
    """Return the access rules. A rule of which only the id is given has no path."""
    items = [] if sent[name] is None else sent[name]
    if not isinstance(items, list) or len(items) > MAX_RULES:
        raise exceptions.ValidationError(detail=f"access_rules must be a list of at most {MAX_RULES} objects.")
    return [_rule(item) for item in items]


def _rule(item: Any) -> AccessRule:
    if not isinstance(item, dict):
        raise exceptions.ValidationError(detail="An access rule must be an object with service, method and path.")
    if isinstance(item.get("id"), str) and not {"service", "method", "path"} & item.keys():
        return AccessRule(id=item["id"])
    service, method, path = (requests.text_field(item, name) for name in ("service", "method", "path"))
    if method not in access_rules.METHODS:
        raise exceptions.ValidationError(detail=f"The method of an access rule is one of {access_rules.METHODS_TEXT}.")
    if not re.fullmatch(r"/.{0,224}", path) or not re.fullmatch(r"[\w-]{1,64}", service):
        raise exceptions.ValidationError(
            detail="The path of an access rule starts with a slash and has at most 225 characters; its service is a "
            "type of the catalog, such as compute."
        )
    if access_rules.wildcards(path) > access_rules.MAX_WILDCARDS:
        raise exceptions.ValidationError(
            detail=f"The path of an access rule has at most {access_rules.MAX_WILDCARDS} wildcards: *, ** and {{name}}."
        )
    return AccessRule(id=uuid.uuid4().hex, service=service, method=method, path=path)


_RULE = {name: {"type": "string"} for name in ("id", "service", "method", "path")}


class NewAppCredential(Open, kw_only=True):
    secret: Annotated[str | None, checked(_is_text)] = None
    name: Annotated[str, checked(_name)]
    description: Annotated[str | None, checked(_is_text)] = None
    roles: Roles = []
    expires_at: Expiry = None
    unrestricted: Annotated[bool, checked(_is_flag)] = False
    access_rules: Annotated[Any, checked(_rules, type="array", items={"type": "object", "properties": _RULE})] = ()


class AppCredentials(IdentityResource):
    """Application credentials."""

    @route("GET", _CREDENTIALS, policies.CREDENTIALS_LIST, target=_USER, response="application_credentials")
    def index(self, req: ServiceRequest, user_id: str) -> Response:
        _refuse_trust(req)
        content = self.content
        mine = [item for item in content.application_credentials if item.user_id == user_id]
        shown = (views.application_credential(item, content, req.base_url) for item in mine)
        return self.listed(req, shown)

    @route("GET", f"{_CREDENTIALS}/{{id}}", policies.CREDENTIALS_SHOW, target=_USER, response="application_credential")
    def show(self, req: ServiceRequest, user_id: str, id: str) -> View:
        _refuse_trust(req)
        content = self.content
        return views.application_credential(_credential(content, user_id, id), content, req.base_url)

    @route(
        "POST",
        _CREDENTIALS,
        policies.CREDENTIALS_CREATE,
        target=_USER,
        body=NewAppCredential,
        key="application_credential",
        status=201,
    )
    def create(self, req: ServiceRequest, user_id: str) -> View:
        """Create a credential for the project of the caller's token. Only this response has the secret."""
        _refuse_restricted(req)
        if user_id != req.context.user_id:
            raise exceptions.Forbidden("Application credentials can be created only by the user that they are for.")
        if req.context.project_id is None:
            raise exceptions.Forbidden("An application credential is for a project, and this token is for none.")
        body = requests.read(req, NewAppCredential)
        secret = body.secret or secrets.token_urlsafe(64)
        credential = requests.new(
            req,
            ApplicationCredential,
            body,
            user_id=user_id,
            project_id=req.context.project_id,
            secret=passwords.hashed(secret, self.authority.hash_cost),
            roles=_roles(body.roles, self.content, req.context.roles),
            access_rules=[],
        )
        rules = body.access_rules

        def add(content: Content) -> Content:
            _add(content, credential, rules)
            return content

        shown = views.application_credential(credential, self.change(add), req.base_url)
        return shown | {"secret": secret}

    @route("DELETE", f"{_CREDENTIALS}/{{id}}", policies.CREDENTIALS_DELETE, target=_USER, status=204)
    def delete(self, req: ServiceRequest, user_id: str, id: str) -> None:
        _refuse_restricted(req)
        self.change(lambda content: content.application_credentials.remove(_credential(content, user_id, id)))


class AccessRules(IdentityResource):
    """Access rules of application credentials."""

    @route("GET", _RULES, policies.ACCESS_RULES_LIST, target=_USER, response="access_rules")
    def index(self, req: ServiceRequest, user_id: str) -> Response:
        _refuse_trust(req)
        rules = [item for item in self.content.access_rules if item.user_id == user_id]
        shown = (views.access_rule(item, req.base_url) for item in rules)
        return self.listed(req, shown)

    @route("GET", f"{_RULES}/{{id}}", policies.ACCESS_RULES_SHOW, target=_USER, response="access_rule")
    def show(self, req: ServiceRequest, user_id: str, id: str) -> View:
        _refuse_trust(req)
        return views.access_rule(_access_rule(self.content, user_id, id), req.base_url)

    @route("DELETE", f"{_RULES}/{{id}}", policies.ACCESS_RULES_DELETE, target=_USER, status=204)
    def delete(self, req: ServiceRequest, user_id: str, id: str) -> None:
        """Delete a rule that no credential has."""
        _refuse_restricted(req)

        def delete(content: Content) -> None:
            rule = _access_rule(content, user_id, id)
            if any(id in credential.access_rules for credential in content.application_credentials):
                raise exceptions.Forbidden(
                    f"Access rule {id} is in use by an application credential. Delete the credential first."
                )
            content.access_rules.remove(rule)

        self.change(delete)


def _credential(content: Content, user_id: str, id: str) -> ApplicationCredential:
    found = content.find(ApplicationCredential, id)
    mine = found if found is not None and found.user_id == user_id else None
    return requests.require("application credential", id, mine)


def _access_rule(content: Content, user_id: str, id: str) -> AccessRule:
    found = content.find(AccessRule, id)
    return requests.require("access rule", id, found if found is not None and found.user_id == user_id else None)


def _add(content: Content, credential: ApplicationCredential, rules: list[AccessRule]) -> None:
    user: User = requests.user(content, credential.user_id)
    mine = [item for item in content.application_credentials if item.user_id == user.id]
    if any(item.name == credential.name for item in mine):
        raise exceptions.Conflict(f"The user has an application credential named {credential.name} already.")
    if len(mine) >= MAX_CREDENTIALS:
        raise exceptions.Forbidden(
            f"A user has at most {MAX_CREDENTIALS} application credentials. Delete the unused ones."
        )
    credential.access_rules = [_shared_rule(content, user, rule).id for rule in rules]
    content.application_credentials.append(credential)


def _shared_rule(content: Content, user: User, rule: AccessRule) -> AccessRule:
    """Return the user's rule with this id, or with the same fields, or the new rule."""
    if not rule.path:
        return _access_rule(content, user.id, rule.id)
    rule.user_id = user.id
    mine = [item for item in content.access_rules if item.user_id == user.id]
    for item in mine:
        if (item.service, item.method, item.path) == (rule.service, rule.method, rule.path):
            return item
    if len(mine) >= MAX_USER_RULES:
        raise exceptions.Forbidden(f"A user has at most {MAX_USER_RULES} access rules. Delete the unused ones.")
    content.access_rules.append(rule)
    return rule


def _refuse_trust(req: ServiceRequest) -> None:
    """Raise `Forbidden` for a token of a trust, since a credential would outlive the trust."""
    if req.environ.get(TRUST) is not None:
        raise exceptions.Forbidden("A token of a trust cannot manage application credentials.")


def refuse_limited(req: ServiceRequest) -> None:
    """Raise `Forbidden` for a token with less rights than its user, to whom a new credential would give all of them."""
    if req.environ.get(TRUST) is not None:
        raise exceptions.Forbidden("A token of a trust cannot manage credentials.")
    if req.environ.get(CREDENTIAL) is not None:
        raise exceptions.Forbidden("A token of an application credential cannot manage credentials.")


def _refuse_restricted(req: ServiceRequest) -> None:
    _refuse_trust(req)
    credential: ApplicationCredential | None = req.environ.get(CREDENTIAL)
    if credential is not None and not credential.unrestricted:
        raise exceptions.Forbidden(
            "This token is of a restricted application credential, which cannot manage application credentials."
        )


def _roles(items: list[dict[str, Any]], content: Content, names: list[str]) -> list[str]:
    """Return the keys of the credential's roles. The default is all roles of the token, whose ``names`` these are."""
    allowed = [role.key for name in names if (role := content.role_named(name)) is not None]
    keys = requests.role_keys(items, content) or allowed
    for key in keys:
        if key not in allowed:
            role = requests.require("role", key, content.role_by_key(key))
            raise exceptions.ValidationError(
                detail=f"Cannot create an application credential with the unassigned role {role.name}. The token has "
                f"the roles {', '.join(names)}."
            )
    return keys
