"""The last catch-all: whatever a filter or application below raises, or answers in plain text, becomes a JSON fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from nova_lite.api.http import deploy, wsgi

_TOO_LARGE = "413 "


def factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], FaultWrap]:
    del global_conf, local_conf
    return FaultWrap


class FaultWrap:
    """What is well is handed on as it is: no request or response is made of it."""

    def __init__(self, app: deploy.App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        told: tuple[str, list[tuple[str, str]]] | None = None
        written: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal told
            told = status, headers
            return written.append

        try:
            answer = self._app(environ, start)
            if told is None:  # one that says so with its first bytes
                answer = list(answer)
            if told is None:
                raise RuntimeError("The application did not begin to answer")
        except Exception as error:
            return wsgi.fault_of(error)(environ, start_response)
        status, headers = told
        if status.startswith(_TOO_LARGE) and not _is_json(headers):
            _close(answer)
            return wsgi.fault(413, "Request is too large.")(environ, start_response)
        start_response(status, headers)
        return itertools.chain(written, answer) if written else answer


def _is_json(headers: list[tuple[str, str]]) -> bool:
    kinds = [value for name, value in headers if name.lower() == "content-type"]
    return any(kind.partition(";")[0].strip() == "application/json" for kind in kinds)


def _close(answer: Any) -> None:
    if close := getattr(answer, "close", None):
        close()
