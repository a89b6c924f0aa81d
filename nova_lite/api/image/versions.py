"""Version document of the image API, which needs no authentication."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import wsgi

#: The first one is the newest and current. Versions differ in filters, sort keys and settable fields.
_VERSIONS = ("v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> ImageVersions:
    del global_conf, local_conf
    return ImageVersions()


class ImageVersions:
    """WSGI application for ``/``, ``/versions`` and ``/v2``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if path not in ("", "/versions", "/v2"):
            return wsgi.unknown_url()(environ, start_response)
        root = wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)
        versions = [
            {
                "id": version,
                "status": "CURRENT" if version == _VERSIONS[0] else "SUPPORTED",
                "links": [{"rel": "self", "href": f"{root}/v2/"}],
            }
            for version in _VERSIONS
        ]
        status = 300 if path == "" else 200
        return wsgi.to_response(wsgi.Response({"versions": versions}, status))(environ, start_response)
