"""Version document of the key manager API, which needs no authentication."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import wsgi


def app_factory(global_conf: dict[str, str], **local_conf: str) -> KeyManagerVersions:
    del global_conf, local_conf
    return KeyManagerVersions()


class KeyManagerVersions:
    """WSGI application for ``/`` and ``/v1``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if path not in ("", "/v1"):
            return wsgi.unknown_url()(environ, start_response)
        root = wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)
        version = {
            "id": "v1",
            "status": "STABLE",  # so clients use no microversions
            "updated": "2015-04-28T00:00:00Z",
            "links": [{"rel": "self", "href": f"{root}/v1/"}],
            "media-types": [
                {"base": "application/json", "type": "application/vnd.openstack.key-manager-v1+json"},
            ],
        }
        document = {"versions": {"values": [version]}}
        return wsgi.to_response(wsgi.Response(document))(environ, start_response)
