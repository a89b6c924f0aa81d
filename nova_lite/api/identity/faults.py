"""Errors in Keystone's form."""

from __future__ import annotations

import webob

from nova_lite.api.http import wsgi
from nova_lite.api.http.wsgi import Response

_TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


def fault(code: int, message: str, auth_url: str | None = None) -> webob.Response:
    """Return ``{"error": {"code": ..., "message": ..., "title": ...}}``. A 401 names ``auth_url`` in a header."""
    title = _TITLES.get(code) or webob.exc.status_map[code].title
    headers = {"WWW-Authenticate": f'Keystone uri="{auth_url}"'} if code == 401 and auth_url else {}
    return wsgi.to_response(Response({"error": {"code": code, "message": message, "title": title}}, code, headers))
