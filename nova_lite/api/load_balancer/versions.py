"""Version documents of the load balancer API, which need no authentication.

Clients look there for what they may use: 2.5 has tags, 2.6 flavors, and 2.12 allowed_cidrs.
"""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import wsgi

#: Newest minor version.
NEWEST = 12


def app_factory(global_conf: dict[str, str], **local_conf: str) -> LoadBalancerVersions:
    del global_conf, local_conf
    return LoadBalancerVersions()


class LoadBalancerVersions:
    """WSGI application for ``/``, ``/v2`` and ``/v2.0``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("PATH_INFO", "").rstrip("/") not in ("", "/v2", "/v2.0"):
            return wsgi.unknown_url()(environ, start_response)
        root = wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)
        versions = [
            {
                "id": f"v2.{minor}",
                "status": "CURRENT" if minor == NEWEST else "SUPPORTED",
                "updated": "2019-09-14T00:00:00Z",
                "links": [{"rel": "self", "href": f"{root}/v2"}],
            }
            for minor in range(NEWEST + 1)
        ]
        return wsgi.to_response(wsgi.Response({"versions": versions}))(environ, start_response)
