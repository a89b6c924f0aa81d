"""The outermost error handler: an exception, or a plain-text 413 of a filter, becomes a JSON fault.

A 429 or 503 gets the header ``Retry-After``, unless its application has set one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from nova_lite.api.http import deploy, wsgi

_TOO_LARGE = "413 "


def factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], FaultWrap]:
    """Make the filter for paste."""
    del global_conf, local_conf
    return FaultWrap


class FaultWrap:
    """WSGI filter. Passes successful responses on unchanged, without building request or response objects."""

    def __init__(self, app: deploy.App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        started: tuple[str, list[tuple[str, str]]] | None = None
        written: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal started
            started = status, headers
            return written.append

        try:
            response = self._app(environ, start)
            if started is None:  # WSGI allows the call of start_response until the first bytes are read
                response = list(response)
            if started is None:
                raise RuntimeError("The application did not start a response")
        except Exception as error:
            return wsgi.fault_of(error, environ)(environ, start_response)
        status, headers = started
        if status.startswith(_TOO_LARGE) and _is_plain(headers):
            _close(response)
            return wsgi.fault(413, "Request is too large.")(environ, start_response)
        start_response(status, _with_retry_after(status, headers))
        return itertools.chain(written, response) if written else response


def _with_retry_after(status: str, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    seconds = wsgi.RETRY_AFTER.get(int(status[:3]))
    if seconds is None or any(name.lower() == "retry-after" for name, _ in headers):
        return headers
    return [*headers, ("Retry-After", str(seconds))]


def _is_plain(headers: list[tuple[str, str]]) -> bool:
    kinds = [value for name, value in headers if name.lower() == "content-type"]
    return any(kind.partition(";")[0].strip() == "text/plain" for kind in kinds)


def _close(response: Any) -> None:
    if close := getattr(response, "close", None):
        close()
