"""Authentication by Keystone. keystonemiddleware validates the token, and its result becomes the request's context."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import webob
from keystoneauth1 import exceptions as keystone_errors
from keystonemiddleware import auth_token
from oslo_config import cfg

from nova_lite.api.http import deploy, languages, wsgi
from nova_lite.api.identity.faults import fault
from nova_lite.base import exceptions, key_files
from nova_lite.base.context import RequestContext
from nova_lite.conf.service_client import space_by_monotonic_clock
from nova_lite.policies.enforcer import Policy

LOG = logging.getLogger(__name__)

UNAVAILABLE = "The identity service is unavailable for the moment. Please try again."


def factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], KeystoneAuth]:
    """Make the filter for paste. ``[keystone_authtoken]`` has the address and credentials for Keystone."""
    del global_conf, local_conf
    services = deploy.services()
    return lambda app: KeystoneAuth(app, services.conf, services.policy)


class KeystoneAuth:
    """WSGI filter. Refuses requests without a valid token (401), and all requests while Keystone is unavailable (503).

    The errors have the form of faults. keystonemiddleware itself returns plain text or HTML.
    """

    def __init__(self, app: deploy.App, conf: cfg.ConfigOpts, policy: Policy) -> None:
        space_by_monotonic_clock()
        self._protocol = auth_token.AuthProtocol(KeystoneContext(app, policy), {"oslo_config_config": conf})
        # The options exist by now.
        key_files.check_tls_client(conf.keystone_authtoken, "keystone_authtoken")

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            response = webob.Request(environ).get_response(self._protocol)
        except keystone_errors.ClientException as error:
            # Keystone's catalog may lack an endpoint of the [keystone_authtoken] interface.
            LOG.error("Keystone cannot validate tokens: %s", error)
            response = wsgi.fault(503, UNAVAILABLE)
        if response.content_type != "application/json":
            if response.status_code == 401:
                unauthorized = _unauthorized(environ)
                unauthorized.headers["WWW-Authenticate"] = response.headers.get("WWW-Authenticate", "Keystone")
                response = unauthorized
            elif response.status_code == 503:
                response = wsgi.fault(503, UNAVAILABLE)
        return response(environ, start_response)


class KeystoneContext:
    """WSGI application that makes the request's context from the headers of a validated token.

    keystonemiddleware removes such headers if the client sent them.
    """

    def __init__(self, app: deploy.App, policy: Policy) -> None:
        self._app = app
        self._policy = policy

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed":
            # [keystone_authtoken] delay_auth_decision lets unauthenticated requests through.
            return _unauthorized(environ)(environ, start_response)
        context = RequestContext.from_environ(environ, is_admin=False)
        if not context.project_id:
            return wsgi.fault(403, "This request needs a token for a project.")(environ, start_response)
        context.is_admin = self._policy.is_admin(context)
        environ[wsgi.CONTEXT] = context
        return self._app(environ, start_response)


def _unauthorized(environ: dict[str, Any]) -> webob.Response:
    return languages.localized(environ, exceptions.Unauthorized(), lambda error: fault(401, error.message))
