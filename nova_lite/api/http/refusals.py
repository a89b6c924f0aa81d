"""Responses of the small APIs, which are no collections of extensions, to what their handlers refuse."""

from __future__ import annotations

from collections.abc import Callable

import webob

from nova_lite.base import exceptions

#: Seconds after which a client may try again, by status.
_RETRY_AFTER = {429: "60", 503: "2"}


def respond(
    handle: Callable[[webob.Request], webob.Response],
    req: webob.Request,
    refuse: Callable[[exceptions.NovaLiteException], webob.Response],
) -> webob.Response:
    """Return the handler's response, or that of ``refuse`` to an error of the client or of another daemon.

    Other errors are raised: they are ours.
    """
    try:
        return handle(req)
    except exceptions.NovaLiteException as error:
        if error.code == 500:
            raise
        response = refuse(error)
        if error.code in _RETRY_AFTER:
            response.headers["Retry-After"] = _RETRY_AFTER[error.code]
        return response
