"""Version documents of the network API, which need no authentication. The only version is v2.0."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import wsgi


def app_factory(global_conf: dict[str, str], **local_conf: str) -> NetworkVersions:
    del global_conf, local_conf
    return NetworkVersions()


class NetworkVersions:
    """WSGI application. ``/`` lists the versions, ``/v2.0/`` the resources."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").rstrip("/")
        root = wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)
        if path == "/v2.0":
            resources = [
                {"name": name, "collection": collection, "links": [{"rel": "self", "href": f"{root}/v2.0/{path_}"}]}
                for name, collection, path_ in (
                    ("network", "networks", "networks"),
                    ("subnet", "subnets", "subnets"),
                    ("port", "ports", "ports"),
                    ("security_group", "security_groups", "security-groups"),
                    ("security_group_rule", "security_group_rules", "security-group-rules"),
                    ("floatingip", "floatingips", "floatingips"),
                    ("router", "routers", "routers"),
                )
            ]
            return wsgi.to_response(wsgi.Response({"resources": resources}))(environ, start_response)
        if path:
            return wsgi.unknown_url()(environ, start_response)
        version = {"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": f"{root}/v2.0/"}]}
        return wsgi.to_response(wsgi.Response({"versions": [version]}))(environ, start_response)
