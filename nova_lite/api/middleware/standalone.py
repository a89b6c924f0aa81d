"""Authentication without Keystone: by the tokens of our identity API, or by name and password with each request."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.identity import catalog
from nova_lite.api.identity.authority import Authority, Identity
from nova_lite.api.identity.directory import DOMAIN_ID
from nova_lite.api.identity.faults import fault
from nova_lite.api.middleware.request_id import REQUEST_ID
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.policies.enforcer import Policy


def token_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], TokenAuth]:
    """Paste factory. ``optional = true``: who brings no good token, or one without a project, is let
    through as such."""
    del global_conf
    return _factory(TokenAuth, local_conf)


def basic_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], BasicAuth]:
    """Paste factory; ``optional`` as above."""
    del global_conf
    return _factory(BasicAuth, local_conf)


def _factory(kind: type[Any], local_conf: dict[str, str]) -> Callable[[deploy.App], Any]:
    services = deploy.services()
    authority = Authority(services.conf)
    authority.check()
    optional = local_conf.get("optional", "").lower() == "true"
    return lambda app: kind(app, authority, services.policy, optional)


class _Auth:
    def __init__(self, app: deploy.App, authority: Authority, policy: Policy, optional: bool) -> None:
        self._app = app
        self._authority = authority
        self._policy = policy
        self._optional = optional

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            who = self.identify(environ)
        except exceptions.TooManyFailures as error:
            return fault(error.code, error.message)(environ, start_response)
        except exceptions.Unauthorized as error:
            if not self._optional:
                return self.refuse(error)(environ, start_response)
            who = None
        if who is not None and (who.project is not None or self._optional):
            context = self._context(who, environ.get(REQUEST_ID))
            context.auth_token = self.token(environ)
            environ[wsgi.CONTEXT] = context
        elif not self._optional:
            if who is not None:
                return wsgi.fault(403, "This needs a token for a project.")(environ, start_response)
            return self.refuse(exceptions.Unauthorized())(environ, start_response)
        return self._app(environ, start_response)

    def identify(self, environ: dict[str, Any]) -> Identity | None:
        """None: nobody says who they are. Raises `Unauthorized`."""
        raise NotImplementedError

    def token(self, environ: dict[str, Any]) -> str | None:
        """What the request may be passed on with to other services."""
        return None

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        raise NotImplementedError

    def _context(self, who: Identity, request_id: str | None) -> RequestContext:
        context = RequestContext(
            user_id=who.user.id,
            user_name=who.user.name,
            user_domain_id=DOMAIN_ID,
            project_id=who.project.id if who.project is not None else None,
            project_name=who.project.name if who.project is not None else None,
            project_domain_id=DOMAIN_ID if who.project is not None else None,
            is_admin=False,
            roles=who.roles,
            request_id=request_id,
        )
        context.is_admin = self._policy.is_admin(context)
        return context


class TokenAuth(_Auth):
    """``X-Auth-Token``, checked with the keys and users that the identity API has, without asking it."""

    def identify(self, environ: dict[str, Any]) -> Identity | None:
        text = self.token(environ)
        return self._authority.by_token(text)[1] if text else None

    def token(self, environ: dict[str, Any]) -> str | None:
        return environ.get("HTTP_X_AUTH_TOKEN")

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        return fault(401, error.message, catalog.url_of(self._authority.conf, "identity"))


class BasicAuth(_Auth):
    """``Authorization: Basic``: a user, in the user's default project."""

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
        return self._authority.by_basic(name, password, environ.get("REMOTE_ADDR", ""))

    def refuse(self, error: exceptions.Unauthorized) -> Any:
        response = fault(401, error.message)
        response.headers["WWW-Authenticate"] = 'Basic realm="nova_lite", charset="UTF-8"'
        return response
