"""Filters of oslo.middleware, with the daemon's own configuration.

A filter is left out of the pipeline if the configuration gives it nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_middleware import cors, http_proxy_to_wsgi, sizelimit

from nova_lite.api.http import deploy, microversions

Filter = Callable[[deploy.App], deploy.App]

#: Headers of the APIs. Scripts of other origins may always send and read some further ones.
OF_BOTH = (
    "X-Auth-Token",
    "X-Subject-Token",
    "X-OpenStack-Request-ID",
    "Content-Range",
    microversions.HEADER,
    microversions.LEGACY_HEADER,
)
OF_REQUESTS = ("Authorization", "Idempotency-Key", "If-Match", "OpenStack-Identity-Access-Rules", "Range")
OF_RESPONSES = (
    "X-Compute-Request-ID",
    "Location",
    "Retry-After",
    "Allow",
    "WWW-Authenticate",
    "Content-MD5",
    "Accept-Ranges",
    "OpenStack-image-import-methods",
    "OpenStack-image-store-ids",
)
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")


def cors_factory(global_conf: dict[str, str], **local_conf: str) -> Filter:
    """Make the filter that allows cross-origin requests from ``[cors] allowed_origin``."""
    del global_conf, local_conf
    conf = deploy.conf()
    conf.register_opts(cors.OPTS, group="cors")
    cors.set_defaults(
        allow_headers=[*OF_BOTH, *OF_REQUESTS], expose_headers=[*OF_BOTH, *OF_RESPONSES], allow_methods=[*METHODS]
    )
    return lambda app: cors.CORS(app, conf) if conf.cors.allowed_origin else app


def proxy_headers_factory(global_conf: dict[str, str], **local_conf: str) -> Filter:
    """Make the filter that takes scheme and host from a reverse proxy's headers.

    It needs ``[oslo_middleware] enable_proxy_headers_parsing``.
    """
    del global_conf, local_conf
    conf = deploy.conf()
    conf.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    enabled = conf.oslo_middleware.enable_proxy_headers_parsing
    return lambda app: http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf) if enabled else app


def size_limit_factory(global_conf: dict[str, str], **local_conf: str) -> Filter:
    """Make the filter that limits bodies to ``[oslo_middleware] max_request_body_size`` bytes.

    A request without a body bypasses the limiter, which would build objects for the request and its response.
    """
    del global_conf, local_conf
    conf = deploy.conf()

    def limited(app: deploy.App) -> deploy.App:
        limiter = sizelimit.RequestBodySizeLimiter(app, conf)

        def choose(environ: dict[str, Any], start_response: Any) -> Any:
            has_body = environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING")
            return (limiter if has_body else app)(environ, start_response)

        return choose

    return limited
