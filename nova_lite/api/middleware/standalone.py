"""Authentication without Keystone: by the tokens of our identity API, or by name and password in each request."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from nova_lite.api.audit import notes
from nova_lite.api.http import deploy, languages, wsgi
from nova_lite.api.identity import access_rules, authority, catalog
from nova_lite.api.identity.authority import CREDENTIAL, TRUST, Authority, Identity
from nova_lite.api.identity.faults import fault
from nova_lite.api.identity.records import AccessRule
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.policies.enforcer import Policy


def token_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], TokenAuth]:
    """Make the token filter for paste.

    ``optional = true``: a request without a valid token passes unauthenticated, and a token needs no project.
    """
    del global_conf
    return _factory(TokenAuth, local_conf)


def basic_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], BasicAuth]:
    """Make the password filter for paste. ``optional``: see `token_factory`."""
    del global_conf
    return _factory(BasicAuth, local_conf)


def _factory(kind: type[Any], local_conf: dict[str, str]) -> Callable[[deploy.App], Any]:
    services = deploy.services()
    shared = authority.of(services)
    optional = local_conf.get("optional", "").lower() == "true"
    types = catalog.types_of(deploy.api_name())
    return lambda app: kind(app, shared, services.policy, optional, types)


class _Auth:
    """WSGI filter that identifies the caller. Subclasses implement `identify`, `token`, and `refuse`."""

    def __init__(self, app: deploy.App, shared: Authority, policy: Policy, optional: bool, types: list[str]) -> None:
        self._app = app
        self._authority = shared
        self._policy = policy
        self._optional = optional
        #: The types of this API in the catalog, for access rules.
        self._types = types

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            identity = self.identify(environ)
            self._check_access_rules(environ, identity)
        except exceptions.TooManyFailures as error:
            response = languages.localized(environ, error, lambda said: fault(said.code, said.message))
            response.headers["Retry-After"] = str(error.retry_after)
            return response(environ, start_response)
        except exceptions.Unauthorized as error:
            if not self._optional:
                return languages.localized(environ, error, self.refuse)(environ, start_response)
            identity = None
        if identity is not None and (identity.project is not None or self._optional):
            context = self._context(identity, environ.get(wsgi.REQUEST_ID))
            context.auth_token = self.token(environ)
            environ[wsgi.CONTEXT] = context
            environ[wsgi.HAS_PROJECT] = self._authority.has_project
            environ[CREDENTIAL], environ[TRUST] = identity.credential, identity.trust
            notes.of(environ).credential = _limit_of(identity)
        elif not self._optional:
            if identity is not None:
                return wsgi.fault(403, "This request needs a token for a project.")(environ, start_response)
            return languages.localized(environ, exceptions.Unauthorized(), self.refuse)(environ, start_response)
        return self._app(environ, start_response)

    def _check_access_rules(self, environ: dict[str, Any], identity: Identity | None) -> None:
        """Raise `Unauthorized` if the caller's application credential has rules, and none allows the request."""
        credential = identity.credential if identity is not None else None
        if credential is None or not credential.access_rules:
            return
        rules = [self._authority.content.find(AccessRule, id) for id in credential.access_rules]
        path = environ.get(deploy.FULL_PATH) or environ.get("PATH_INFO", "")
        method = environ.get("REQUEST_METHOD", "")
        if not access_rules.allow([rule for rule in rules if rule is not None], self._types, method, path):
            raise exceptions.Unauthorized("The access rules of this application credential do not allow the request.")

    def identify(self, environ: dict[str, Any]) -> Identity | None:
        """Return the caller, or None if the request has no credentials. Raises `Unauthorized` if they are wrong."""
        raise NotImplementedError

    def token(self, environ: dict[str, Any]) -> str | None:
        """Return the token with which the request may be forwarded to other services."""
        return None

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        """Return the 401 response."""
        raise NotImplementedError

    def _context(self, identity: Identity, request_id: str | None) -> RequestContext:
        context = RequestContext(
            user_id=identity.user.id,
            user_name=identity.user.name,
            user_domain_id=identity.user.domain_id,
            project_id=identity.project.id if identity.project is not None else None,
            project_name=identity.project.name if identity.project is not None else None,
            project_domain_id=identity.project.domain_id if identity.project is not None else None,
            is_admin=False,
            domain_id=identity.domain.id if identity.domain is not None else None,
            system_scope="all" if identity.system is not None else None,
            roles=identity.role_names,
            request_id=request_id,
        )
        context.is_admin = self._policy.is_admin(context)
        return context


def _limit_of(identity: Identity) -> str:
    """Return what limits a caller, for the audit log."""
    if identity.credential is not None:
        return f"application_credential/{identity.credential.id}"
    return f"trust/{identity.trust.id}" if identity.trust is not None else ""


class TokenAuth(_Auth):
    """Filter for ``X-Auth-Token``. Validates tokens locally, with the keys and users of the identity API."""

    def identify(self, environ: dict[str, Any]) -> Identity | None:
        text = self.token(environ)
        return self._authority.by_token(text)[1] if text else None

    def token(self, environ: dict[str, Any]) -> str | None:
        return environ.get("HTTP_X_AUTH_TOKEN")

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        return fault(401, error.message, catalog.url_of(self._authority.conf, "identity"))


class BasicAuth(_Auth):
    """Filter for ``Authorization: Basic``. The request is for the user's default project."""

    def identify(self, environ: dict[str, Any]) -> Identity | None:
        text = environ.get("HTTP_AUTHORIZATION")
        if not text:
            return None
        scheme, _, encoded = text.partition(" ")
        try:
            name, separator, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise exceptions.Unauthorized() from error
        if scheme.lower() != "basic" or not separator:
            raise exceptions.Unauthorized()
        try:
            return self._authority.by_basic(name, password, environ.get("REMOTE_ADDR", ""))
        except exceptions.Unauthorized:
            user = self._authority.content.user_named(name)
            notes.caller(environ, user.id if user is not None else None)
            raise

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        response = fault(401, error.message)
        response.headers["WWW-Authenticate"] = 'Basic realm="nova_lite", charset="UTF-8"'
        return response
