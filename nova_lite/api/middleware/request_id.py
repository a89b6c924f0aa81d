"""A new id for each request. The response and the log contain it.

The id makes a create idempotent on its way to the conductor, so a client cannot choose it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from oslo_config import cfg
from oslo_context import context

from nova_lite.api.audit import notes
from nova_lite.api.http import deploy, wsgi
from nova_lite.base import tracing
from nova_lite.base.context import RequestContext

LOG = logging.getLogger(__name__)

HEADERS = ("X-OpenStack-Request-Id", "X-Compute-Request-Id")


def factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[deploy.App], RequestId]:
    """Make the filter for paste."""
    del global_conf, local_conf
    endpoint = endpoint_of(deploy.conf(), deploy.api_name())
    return lambda app: RequestId(app, endpoint)


def endpoint_of(conf: cfg.ConfigOpts, api: str) -> wsgi.Endpoint | None:
    """Return the endpoint that the operator has set for an API of ``[api] enabled_apis``."""
    names = ("compute", "identity", "image", "key_manager", "load_balancer", "network", "placement", "volume")
    urls = {name: conf.identity[f"{name}_endpoint"] for name in names}
    own = urls.get(api.removeprefix("osapi_"))
    if not own:
        return None
    parts = urlsplit(own)
    return wsgi.Endpoint(
        f"{parts.scheme}://{parts.netloc}", frozenset(urlsplit(url or "").hostname for url in urls.values())
    )


class RequestId:
    """WSGI filter that generates the request id and logs one line per request."""

    def __init__(self, app: deploy.App, endpoint: wsgi.Endpoint | None = None) -> None:
        self._endpoint = endpoint
        self._app = tracing.app(app, wsgi.REQUEST_ID, _route)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ[wsgi.ENDPOINT] = self._endpoint
        request_id = environ[wsgi.REQUEST_ID] = context.generate_request_id()
        RequestContext(request_id=request_id)  # log lines contain it until authentication sets a complete context
        started = time.perf_counter()

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            if LOG.isEnabledFor(logging.INFO):
                _log(environ, status, time.perf_counter() - started)
            return start_response(status, [*headers, *((name, request_id) for name in HEADERS)], exc_info)

        return self._app(environ, start)


def _route(environ: dict[str, Any]) -> str:
    noted = notes.of(environ)
    return f"{noted.path} {noted.action}".rstrip()


def _log(environ: dict[str, Any], status: str, seconds: float) -> None:
    """Log path and query. Never log a header or a body, because they contain secrets."""
    query = environ.get("QUERY_STRING")
    LOG.info(
        '%s "%s %s%s" %s %.4f s',
        environ.get("REMOTE_ADDR", "-"),
        environ["REQUEST_METHOD"],
        wsgi.quote_path(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")),
        f"?{query}" if query else "",
        status.split(" ", 1)[0],
        seconds,
    )
