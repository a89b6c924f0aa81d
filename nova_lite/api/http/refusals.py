"""Responses of the small APIs, which are no collections of extensions, to what their handlers refuse."""

from __future__ import annotations

from collections.abc import Callable

import webob

from nova_lite.base import exceptions


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
        return refuse(error)
