"""Log-ins by an OpenID Connect provider: the authorization code flow with PKCE (RFC 7636).

The daemon exchanges the code, so that no script sees a token of the provider. State and verifier wait in a cookie,
which the browser sends back with the provider's response. The identity API decides who the user is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from typing import Any, NamedTuple

import webob

from nova_lite.api.http.deploy import App
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.oidc import RefusedTokenError
from nova_lite.api.identity.records import FederationProtocol, IdentityProvider
from nova_lite.api.page import sessions
from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

PATH, CALLBACK = "/login", "/login/callback"

#: Seconds that a user may take at the provider.
LIFETIME = 900
#: Characters of a code, and bytes of a request to begin.
MAX_CODE, MAX_BODY = 4096, 4096
#: Outcomes of a callback, which the page explains.
REFUSED, LATE, AWAY = "refused", "late", "away"


class Choice(NamedTuple):
    """Way to log in: an identity provider with its protocol and issuer."""

    provider: str
    protocol: str
    issuer: str
    name: str


class _Pending(NamedTuple):
    """Log-in at a provider that the cookie remembers."""

    provider: str
    state: str
    verifier: str


class ProviderLogins:
    """Responds to requests to `PATH` and `CALLBACK`. ``identity``: the identity API."""

    def __init__(self, identity: App, users: Authority) -> None:
        self._identity = identity
        self._users = users

    def respond(self, req: webob.Request) -> webob.Response:
        """Return the providers (GET), or begin a log-in (POST): the page then leads the browser to the URL."""
        if req.method == "GET":
            return _json({"providers": [{"id": item.provider, "name": item.name} for item in self._choices()]})
        if req.method == "POST":
            return self._begin(req)
        response = sessions.refusal(405, "There are GET and POST.")
        response.headers["Allow"] = "GET, POST"
        return response

    def finish(self, req: webob.Request) -> webob.Response:
        """Log in with the code of a provider, and lead the browser to the page."""
        outcome, token = self._exchanged(req)
        response = webob.Response(status=303)
        response.location = f"{req.application_url}/" + (f"#/?login={outcome}" if outcome else "")
        _forget(req, response)
        if token:
            sessions.set_cookie(req, response, token)
        return response

    def _choices(self) -> list[Choice]:
        """Return each way to log in, if the page has a client at the providers."""
        oidc, content = self._users.oidc, self._users.content
        if oidc is None or oidc.page_client is None:
            return []
        found = []
        for provider in content.identity_providers:
            issuer = next((item for item in provider.remote_ids if oidc.provider(item) is not None), None)
            protocol = _protocol_of(provider, content.federation_protocols)
            if provider.enabled and issuer is not None and protocol is not None:
                found.append(Choice(provider.id, protocol, issuer, provider.description or provider.id))
        return found

    def _choice(self, provider: object) -> Choice | None:
        return next((item for item in self._choices() if item.provider == provider), None)

    def _begin(self, req: webob.Request) -> webob.Response:
        if req.content_length is None or req.content_length > MAX_BODY:
            raise exceptions.InvalidInput(reason=f"a request has a length, of {MAX_BODY} bytes at most.")
        try:
            choice = self._choice(json.loads(req.body)["provider"])
        except (ValueError, KeyError, TypeError, RecursionError):
            choice = None
        if choice is None:
            raise exceptions.NotFound("There is no such identity provider.")
        pending = _Pending(choice.provider, secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        oidc = self._users.oidc
        assert oidc is not None
        url = oidc.login_url(choice.issuer, _callback_url(req), pending.state, challenge)
        response = _json({"url": url})
        response.set_cookie(
            _cookie_name(req),
            base64.urlsafe_b64encode(json.dumps(pending).encode()).decode(),
            max_age=LIFETIME,
            path=f"{req.script_name}/",
            secure=req.scheme == "https",
            httponly=True,
            samesite="Lax",  # it comes back from the provider's site
        )
        return response

    def _exchanged(self, req: webob.Request) -> tuple[str, str]:
        """Return why the log-in failed, or an empty text and the token."""
        pending = _pending(req)
        if pending is None or not hmac.compare_digest(pending.state, _printable(req.GET.get("state", ""))):
            return LATE, ""
        choice, code = self._choice(pending.provider), _printable(req.GET.get("code", ""))
        oidc = self._users.oidc
        if choice is None or oidc is None or not code or len(code) > MAX_CODE:
            LOG.info("The identity provider %s ends a log-in with %.64r", pending.provider[:64], req.GET.get("error"))
            return REFUSED, ""
        try:
            theirs = oidc.exchange(choice.issuer, code, _callback_url(req), pending.verifier)
        except RefusedTokenError as error:
            LOG.warning("Failed log-in at the identity provider %s: %s", choice.provider, error)
            return REFUSED, ""
        except exceptions.ServiceUnavailable:
            return AWAY, ""
        status, token = self._log_in(req, choice, theirs)
        if status == 201 and token:
            return "", token
        return AWAY if status >= 500 else REFUSED, ""

    def _log_in(self, req: webob.Request, choice: Choice, theirs: str) -> tuple[int, str]:
        """Call the identity API with a token of the provider. Return its status, and the token for the session."""
        path = f"/v3/OS-FEDERATION/identity_providers/{choice.provider}/protocols/{choice.protocol}/auth"
        environ = sessions.clean(req.environ, "")
        environ |= {"SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "REQUEST_METHOD": "POST"}
        inner = webob.Request(environ)
        inner.body = b""
        inner.headers["Authorization"] = f"Bearer {theirs}"
        response = inner.get_response(self._identity)
        return response.status_code, response.headers.get("X-Subject-Token", "")


def _protocol_of(provider: IdentityProvider, protocols: list[FederationProtocol]) -> str | None:
    found = (item.id.partition("/") for item in protocols)
    return next((protocol for owner, _, protocol in found if owner == provider.id), None)


def _callback_url(req: webob.Request) -> str:
    return f"{req.application_url}{CALLBACK}"


def _cookie_name(req: webob.Request) -> str:
    is_whole_host = req.scheme == "https" and not req.script_name
    return "__Host-nova_lite_login" if is_whole_host else "nova_lite_login"


def _pending(req: webob.Request) -> _Pending | None:
    try:
        fields = json.loads(base64.urlsafe_b64decode(req.cookies.get(_cookie_name(req), "")))
        provider, state, verifier = (_printable(item) for item in fields)
    except (ValueError, TypeError, RecursionError):
        return None
    return _Pending(provider, state, verifier) if provider and state and verifier else None


def _printable(value: Any) -> str:
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else ""


def _forget(req: webob.Request, response: webob.Response) -> None:
    response.set_cookie(
        _cookie_name(req),
        "",
        max_age=0,
        path=f"{req.script_name}/",
        secure=req.scheme == "https",
        httponly=True,
        samesite="Lax",
    )


def _json(content: Any) -> webob.Response:
    return webob.Response(body=json.dumps(content).encode(), content_type="application/json", charset="utf-8")
