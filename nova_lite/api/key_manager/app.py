"""The key manager API: the part of Barbican's v1 API that users of load balancers need."""

from __future__ import annotations

import webob

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.key_manager.containers import Containers
from nova_lite.api.key_manager.secrets import Secrets


def app_factory(global_conf: dict[str, str], **local_conf: str) -> KeyManagerApp:
    del global_conf, local_conf
    return KeyManagerApp(deploy.services())


class KeyManagerApp(rest.ServiceApplication):
    """WSGI application, mounted at ``/v1``."""

    api = "key_manager"
    resources = (Secrets, Containers)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        title = webob.exc.status_map[code].title
        return wsgi.to_response(wsgi.Response({"code": code, "title": title, "description": message}, code))
