"""The document of versions of the DNS API, which needs no authentication."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import wsgi


def app_factory(global_conf: dict[str, str], **local_conf: str) -> DnsVersions:
    del global_conf, local_conf
    return DnsVersions()


class DnsVersions:
    """WSGI application for ``/`` and ``/v2``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("PATH_INFO", "").rstrip("/") not in ("", "/v2"):
            return wsgi.unknown_url()(environ, start_response)
        root = wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)
        version = {"id": "v2", "status": "CURRENT", "links": [{"href": f"{root}/v2", "rel": "self"}]}
        return wsgi.to_response(wsgi.Response({"versions": {"values": [version]}}))(environ, start_response)
