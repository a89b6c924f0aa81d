"""``/daemons``: the version of each daemon that reports, which ``GET /os-services`` of Nova has no field for."""

from __future__ import annotations

import json
from typing import Any

import webob

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions, version
from nova_lite.objects import Service
from nova_lite.policies import services as policies


class DaemonsApp:
    """WSGI application, behind authentication. Its policy is that of the list of services.

    ``version``: that of this API daemon, which sends no heartbeats.
    """

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._services = services

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        context = environ[wsgi.CONTEXT]
        try:
            self._services.policy.authorize(context, policies.LIST)
            found = self._services.conductor.service_list(context, None, None)
        except exceptions.NovaLiteException as error:
            return wsgi.fault(error.code, error.message)(environ, start_response)
        content = {"version": version.VERSION, "daemons": [_view(service) for service in found]}
        body = json.dumps(content).encode()
        return webob.Response(body=body, content_type="application/json", charset="utf-8")(environ, start_response)


def _view(service: Service) -> dict[str, Any]:
    since = service.version_since
    return {"id": service.uuid, "version": service.version, "since": since.isoformat() if since else None}
