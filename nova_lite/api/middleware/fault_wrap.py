"""The last catch-all: whatever a filter or application below raises, or answers in plain text, becomes a JSON fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import webob

from nova_lite.api import deploy, wsgi


def factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], FaultWrap]:
    del global_conf, local_conf
    return FaultWrap


class FaultWrap:
    def __init__(self, app: deploy.App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            response = webob.Request(environ).get_response(self._app)
        except Exception as error:
            response = wsgi.fault_of(error)
        if response.status_code == 413 and response.content_type != "application/json":
            response = wsgi.fault(413, "Request is too large.")
        return response(environ, start_response)
