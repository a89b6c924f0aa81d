"""Authentication ``noauth2``, which believes the name in the token. So it is only for loopback addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_lite.api.http import deploy, wsgi
from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext

ADMIN = "admin"

#: Addresses of APIs that have no users: guests of the metadata API are known by their addresses.
_WITHOUT_USERS = ("metadata_listen",)


def noauth2_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], NoAuth2]:
    """Make the filter for paste. Raises `ConfigurationError` if the API listens on a non-loopback address."""
    del global_conf, local_conf
    conf = deploy.conf()
    for option in listen_options(conf):
        if not ip.is_loopback(conf.api[option]):
            raise exceptions.ConfigurationError(
                reason=f"[api] auth_strategy = noauth2 accepts every token, so [api] {option} = {conf.api[option]} is "
                "refused: it must be a loopback address such as 127.0.0.1."
            )
    return NoAuth2


def listen_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return the options of ``[api]`` with the addresses of APIs that authenticate callers by this filter."""
    return [name for name in conf.api if (name == "listen" or name.endswith("_listen")) and name not in _WITHOUT_USERS]


class NoAuth2:
    """Filter for tokens ``user:project``. The project defaults to the user. Only the user ``admin`` is an admin."""

    def __init__(self, app: deploy.App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        token = environ.get("HTTP_X_AUTH_TOKEN")
        if not token:
            return self._issue_token(environ)(environ, start_response)
        user, _, project = token.partition(":")
        context = environ[wsgi.CONTEXT] = context_for(user, project or user, environ.get(wsgi.REQUEST_ID))
        context.auth_token = token
        return self._app(environ, start_response)

    @staticmethod
    def _issue_token(environ: dict[str, Any]) -> Any:
        """Return a valid token to a request without one, as in Nova's v1 authentication."""
        user = environ.get("HTTP_X_AUTH_USER", ADMIN)
        project = environ.get("HTTP_X_AUTH_PROJECT_ID", ADMIN)
        url = wsgi.root_url(environ, None) + wsgi.version_path(environ)
        headers = {"X-Auth-Token": f"{user}:{project}", "X-Server-Management-Url": f"{url}/{wsgi.quote_path(project)}"}
        return wsgi.to_response(wsgi.Response(None, 204, headers))


def context_for(user: str, project: str, request_id: str | None) -> RequestContext:
    """Return the context of ``user`` in ``project``."""
    is_admin = user == ADMIN
    return RequestContext(
        user_id=user,
        project_id=project,
        is_admin=is_admin,
        roles=[ADMIN, "member", "reader"] if is_admin else ["member", "reader"],
        request_id=request_id,
    )
