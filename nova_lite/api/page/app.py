"""WSGI application of the page: its files, sessions, rights, and the way to the APIs of this daemon."""

from __future__ import annotations

import gzip
from typing import Any

import webob

from nova_lite.api.http import deploy, refusals
from nova_lite.api.http.deploy import App
from nova_lite.api.identity import authority
from nova_lite.api.identity.authority import Authority
from nova_lite.api.page import consoles, files, providers, rights, sessions
from nova_lite.base import exceptions

#: Name in the page's URLs and in ``[api] enabled_apis`` of each API that the page calls.
APIS = {
    "compute": "osapi_compute",
    "identity": "identity",
    "image": "image",
    "network": "network",
    "volume": "volume",
    "placement": "placement",
    "load_balancer": "load_balancer",
}

#: Headers of each file. Scripts and styles come from this site alone, and no other site can frame the page.
#: ``connect``: this site, and the console proxies.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src {connect}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: Policy of the APIs' responses: whatever an image or a name has in it, a browser runs nothing of it.
_API_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
#: A year, for browsers that have seen the page over TLS.
_TRANSPORT = "max-age=31536000"
_API = "/api/"
#: Level of compression of the APIs' responses: higher ones take longer, and save little of JSON.
_LEVEL = 4


def app_factory(global_conf: dict[str, str], **local_conf: str) -> PageApp:
    del global_conf, local_conf
    services = deploy.services()
    enabled = services.conf.api.enabled_apis
    for needed in ("osapi_compute", "identity"):
        if needed not in enabled:
            raise exceptions.ConfigurationError(
                reason=f"[api] enabled_apis: page needs {needed} beside it, whose tokens and servers it shows."
            )
    apps = {short: deploy.load_app(name, services) for short, name in APIS.items() if name in enabled}
    own, users = deploy.load_app("page_rights", services), authority.of(services)
    return PageApp(apps, own, users, files.load(), consoles.origins(services.conf))


class PageApp:
    """WSGI application. ``apis``: by their names in the page's URLs. They authenticate each request themselves.

    ``own``: the page's rights, daemons, configuration, cloud images and events, which does the same.
    ``console_origins``: those of the console proxies' WebSockets.
    """

    def __init__(
        self,
        apis: dict[str, App],
        own: App,
        users: Authority,
        site: dict[str, files.File],
        console_origins: list[str],
    ) -> None:
        self._apis = apis
        self._own = own
        self._site = site
        self._sessions = sessions.Sessions(apis["identity"], users.tokens)
        self._providers = providers.ProviderLogins(apis["identity"], users)
        self._policy = _POLICY.format(connect=" ".join(["'self'", *console_origins]))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        req = webob.Request(environ)
        path = environ.get("PATH_INFO", "") or "/"
        own = dict(_HEADERS)
        if req.scheme == "https":
            own["Strict-Transport-Security"] = _TRANSPORT
        own["Content-Security-Policy"] = self._policy if path in self._site else _API_POLICY
        if path not in self._site:
            own["Cache-Control"] = "no-store"

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            kept = [(name, value) for name, value in headers if name.title() not in own and not _is_secret(name)]
            return start_response(status, [*kept, *own.items()], exc_info)

        return self._serve(req, path, start)

    def _serve(self, req: webob.Request, path: str, start: Any) -> Any:
        """Call an API as it is, since it may stream both bodies; or the stream of events; or respond here."""
        if path.startswith(_API):
            try:
                self._check(req)
                app, environ = self._way(req, path)
            except exceptions.NovaLiteException as error:
                return _refusal(error)(req.environ, start)
            return _compressed(app, environ)(environ, start)
        if path == "/events":
            try:
                self._check(req)
            except exceptions.NovaLiteException as error:
                return _refusal(error)(req.environ, start)
            return self._own(sessions.clean(req.environ, sessions.token_of(req)), start)
        return refusals.respond(lambda request: self._respond(request, path), req, _refusal)(req.environ, start)

    def _check(self, req: webob.Request) -> None:
        """Raise the refusal of a request that the page has not sent, or has sent for another session."""
        sessions.check_origin(req)
        self._sessions.check(req)

    def _way(self, req: webob.Request, path: str) -> tuple[App, dict[str, Any]]:
        """Return an API, and the request to it."""
        name, slash, rest = path.removeprefix(_API).partition("/")
        app = self._apis.get(name)
        if app is None:
            raise exceptions.NotFound(f"This cloud has no API named {name[:64]} here.")
        inside = slash + rest
        if name == "identity" and inside.rstrip("/") == "/v3/auth/tokens":
            raise exceptions.Forbidden("The page's tokens are those of its sessions: use /session.")
        environ = sessions.clean(req.environ, sessions.token_of(req))
        environ["SCRIPT_NAME"] = req.script_name + _API + name
        environ["PATH_INFO"] = inside
        environ[deploy.FULL_PATH] = inside
        return app, environ

    def _respond(self, req: webob.Request, path: str) -> webob.Response:
        file = self._site.get(path)
        if file is not None:
            if req.method not in ("GET", "HEAD"):
                response = sessions.refusal(405, "Files are read with GET.")
                response.headers["Allow"] = "GET, HEAD"
                return response
            return files.respond(req, file)
        if path == "/session":
            sessions.check_origin(req)
            return self._sessions.respond(req)
        if path == providers.PATH:
            sessions.check_origin(req)
            return self._providers.respond(req)
        if path == providers.CALLBACK and req.method == "GET":
            return self._providers.finish(req)
        if path in rights.ROUTES and req.method == "GET":
            self._check(req)
            return webob.Request(sessions.clean(req.environ, sessions.token_of(req))).get_response(self._own)
        raise exceptions.NotFound("The page has no such file.")


def _compressed(app: App, environ: dict[str, Any]) -> App:
    """Return what an API responds to a read, with JSON compressed if the browser takes it. Other data stay a stream."""
    if environ["REQUEST_METHOD"] != "GET" or "gzip" not in environ.get("HTTP_ACCEPT_ENCODING", ""):
        return app
    response = webob.Request(environ).get_response(app)
    if response.content_type == "application/json" and "Content-Encoding" not in response.headers:
        response.body = gzip.compress(response.body, _LEVEL, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
    found: App = response
    return found


def _is_secret(name: str) -> bool:
    """Check whether a header has a token, which scripts must not see."""
    return name.lower() in ("x-subject-token", "x-auth-token")


def _refusal(error: exceptions.NovaLiteException) -> webob.Response:
    response = sessions.refusal(error.code, error.message)
    if isinstance(error, sessions.OtherSession):
        response.headers[sessions.SESSION] = "other"
    return response
