"""Sessions of browsers. The token of a session is in a cookie that no script can read and no other site can send."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import webob

from nova_lite.api.http.deploy import App
from nova_lite.api.identity.tokens import Tokens
from nova_lite.base import exceptions

#: Header of each request of the page. Another site cannot add it: browsers ask first, and nothing here agrees.
MARK = "X-Nova-Lite-Page"
#: Header with the session that a tab shows: ``USER/PROJECT``, as ids with percent-encoding. All tabs of a browser have
#: one cookie, so the session of a request may be another one. Then the response is a 409 with this header.
SESSION = "X-Nova-Lite-Session"

_TOKENS = "/v3/auth/tokens"
_SUBJECT = "X-Subject-Token"
#: Requests to log in are small.
MAX_BODY = 64 * 1024
_REMOVED = ("HTTP_COOKIE", "HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN", "HTTP_X_SERVICE_TOKEN", "HTTP_X_SUBJECT_TOKEN")


def check_origin(req: webob.Request) -> None:
    """Raise `Forbidden` for a request that this page has not sent."""
    origin = req.headers.get("Origin")
    site = req.headers.get("Sec-Fetch-Site", "same-origin")
    is_foreign = origin is not None and not _is_own(origin, req)
    if is_foreign or site != "same-origin" or MARK not in req.headers:
        raise exceptions.Forbidden("Only the page itself may send this request.")


def _is_own(origin: str, req: webob.Request) -> bool:
    try:
        parts = urllib.parse.urlsplit(origin)
    except ValueError:
        return False
    own: tuple[str, str] = (req.scheme, req.host.lower())
    return (parts.scheme, parts.netloc.lower()) == own


def cookie_name(req: webob.Request) -> str:
    """Return the cookie's name. With TLS browsers take a ``__Host-`` cookie only from this host itself."""
    is_whole_host = req.scheme == "https" and not req.script_name
    return "__Host-nova_lite_session" if is_whole_host else "nova_lite_session"


def token_of(req: webob.Request) -> str:
    """Return the token of the request's session, or an empty text."""
    token: str = req.cookies.get(cookie_name(req), "")
    return token if token.isascii() and token.isprintable() else ""


def clean(environ: dict[str, Any], token: str) -> dict[str, Any]:
    """Return a copy of an environment for another application: with this token, and no other credential."""
    copy = {key: value for key, value in environ.items() if key not in _REMOVED and not key.startswith("webob.")}
    if token:
        copy["HTTP_X_AUTH_TOKEN"] = token
    return copy


class OtherSession(exceptions.Conflict):
    """The request's cookie is of another session than that of the tab."""


class Sessions:
    """Log-ins, by the identity API. ``tokens`` reads the cookies."""

    def __init__(self, identity: App, tokens: Tokens) -> None:
        self._identity = identity
        self._tokens = tokens

    def check(self, req: webob.Request, *, any_project: bool = False) -> None:
        """Raise `OtherSession` unless the request names the user and the project of its cookie.

        ``any_project``: the user suffices. A request without a session passes: the APIs refuse it.
        """
        token = self._tokens.open(token_of(req))
        if token is None:
            return
        user, slash, project = req.headers.get(SESSION, "").partition("/")
        if not slash:
            raise exceptions.InvalidInput(
                reason=f"a request of the page names its session in {SESSION}: USER/PROJECT. Reload the page."
            )
        is_same = urllib.parse.unquote(project) == (token.project_id or "")
        if urllib.parse.unquote(user) != token.user_id:
            raise OtherSession("This browser's session is now another user's. Reload the page.")
        if not is_same and not any_project:
            raise OtherSession("This browser's session is now in another project. Switch back, or reload the page.")

    def respond(self, req: webob.Request) -> webob.Response:
        """Return the response to a request to ``/session``.

        POST logs in, with the body of ``POST /v3/auth/tokens``. Its method ``token`` stands for the session's own
        token, so that a user can change the project. The token that another one replaces is revoked. GET describes the
        token; without a session it is a 204. DELETE logs out. Responses are those of the identity API, without the
        token.
        """
        if req.method == "POST":
            return self._begin(req)
        if req.method == "GET" and not token_of(req):
            return webob.Response(status=204)
        if req.method == "GET":
            return self._call(req, "GET", token_of(req))
        if req.method == "DELETE":
            return self._end(req)
        response = refusal(405, "There are GET, POST and DELETE.")
        response.headers["Allow"] = "GET, POST, DELETE"
        return response

    def _begin(self, req: webob.Request) -> webob.Response:
        if req.content_length is None or req.content_length > MAX_BODY:
            raise exceptions.InvalidInput(reason=f"a request to log in has a length, of {MAX_BODY} bytes at most.")
        replaced = token_of(req)
        body, is_token = _with_token(req.body, replaced)
        if is_token:
            self.check(req, any_project=True)
        response = self._call(req, "POST", "", body)
        token = response.headers.pop(_SUBJECT, "")
        if response.status_code == 201 and token:
            if self._tokens.open(replaced) is not None:
                revoked = self._call(req, "DELETE", replaced)
                if revoked.status_code >= 500:
                    return revoked
            set_cookie(req, response, token)
        return response

    def _end(self, req: webob.Request) -> webob.Response:
        self.check(req, any_project=True)
        token = token_of(req)
        if token:
            revoked = self._call(req, "DELETE", token)
            if revoked.status_code >= 500:
                return revoked
        response = webob.Response(status=204)
        set_cookie(req, response, "")
        return response

    def _call(self, req: webob.Request, method: str, token: str, body: bytes = b"") -> webob.Response:
        environ = clean(req.environ, token)
        environ |= {"SCRIPT_NAME": "", "PATH_INFO": _TOKENS, "QUERY_STRING": "", "REQUEST_METHOD": method}
        inner = webob.Request(environ)
        inner.body = body
        if body:
            inner.content_type = "application/json"
        if token:
            inner.headers[_SUBJECT] = token
        response = inner.get_response(self._identity)
        if method != "POST":
            response.headers.pop(_SUBJECT, None)
        return response


def _with_token(body: bytes, token: str) -> tuple[bytes, bool]:
    """Return the body of a log-in, and whether its method is ``token``. Then it has the session's token."""
    try:
        content = json.loads(body)
        identity = content["auth"]["identity"]
        is_token = identity["methods"] == ["token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body, False  # the identity API describes the mistake
    if not is_token:
        return body, False
    identity["token"] = {"id": token}
    return json.dumps(content).encode(), True


def set_cookie(req: webob.Request, response: webob.Response, token: str) -> None:
    """Keep a token as the browser's session. An empty one ends the session."""
    response.set_cookie(
        cookie_name(req),
        token,
        max_age=None if token else 0,
        path=f"{req.script_name}/",
        secure=req.scheme == "https",
        httponly=True,
        samesite="Strict",
    )


def refusal(code: int, message: str) -> webob.Response:
    """Return an error of the page's own."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return webob.Response(body=body, status=code, content_type="application/json", charset="utf-8")
