"""Log-ins, and their tokens, over the identity API."""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.audit import notes
from nova_lite.api.http.bodies import checked
from nova_lite.api.http.rest import PUBLIC, ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import provider_logins, requests
from nova_lite.api.identity.authority import Identity, Scope
from nova_lite.api.identity.records import ApplicationCredential, User
from nova_lite.api.identity.requests import Object, Open
from nova_lite.api.identity.resource import SUBJECT, IdentityResource
from nova_lite.api.identity.tokens import Token
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_TOKENS = "/v3/auth/tokens"


def _scope(sent: dict[str, Any], name: str) -> Scope:
    return requests.scope(sent[name])


class Login(Open, kw_only=True):
    scope: Annotated[Any, checked(_scope, type=["object", "string"])] = None
    identity: Object


class Logins(IdentityResource):
    """Log-ins and their tokens."""

    @route("POST", _TOKENS, PUBLIC, body=Login, key="auth", response="token", status=201)
    def issue(self, req: ServiceRequest) -> Response:
        body = requests.read(req, Login)
        given = body.identity
        identity, parent = self._authenticate(req, given, body.scope or Scope())
        methods = sorted(given["methods"])
        text, token = self.authority.issue(identity, parent, methods if {"password", "mapped"} & {*methods} else None)
        notes.caller(req.environ, token.user_id, token.project_id)
        return self.token_response(req, text, token, identity)

    @route("GET", _TOKENS, policies.VALIDATE, authorizes=True, response="token")
    def validate(self, req: ServiceRequest) -> Response:
        text, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        if identity.credential is not None and identity.credential.access_rules and not _enforces_rules(req):
            raise exceptions.NotFound(
                "Could not find token. It has access rules, and its receiver does not say that it enforces such rules."
            )
        return self.token_response(req, text, token, identity)

    @route("DELETE", _TOKENS, policies.REVOKE, authorizes=True, status=204)
    def revoke(self, req: ServiceRequest) -> None:
        _, token, identity = self._subject(req)
        req.authorize(req.declared.policy, {"user_id": identity.user.id})
        self.authority.tokens.revoke(token)

    def _subject(self, req: ServiceRequest) -> tuple[str, Token, Identity]:
        text = req.headers.get(SUBJECT, "")
        try:
            return text, *self.authority.by_token(text)
        except exceptions.Unauthorized as error:
            raise exceptions.NotFound("Could not find token.") from error

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
            return self.authority.scoped(provider_logins.user_of(self.authority, req, *ids), scope), None
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
        secret, content, address = requests.text_field(given, "secret"), self.content, req.remote_addr or ""
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
            return self.content.user(requests.text_field(user, "id"))
        content, name = self.content, requests.text_field(user, "name")
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


def _enforces_rules(req: ServiceRequest) -> bool:
    """Check whether the request has the header by which services say that they enforce access rules."""
    try:
        return float(req.headers.get("OpenStack-Identity-Access-Rules", "0")) >= 1.0
    except ValueError:
        return False
