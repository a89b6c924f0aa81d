"""The load balancer API: the part of Octavia's v2 API that clients use."""

from __future__ import annotations

import webob

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.load_balancer.catalogue import Catalogue
from nova_lite.api.load_balancer.parts import HealthMonitors, Listeners, LoadBalancers, Members, Pools
from nova_lite.api.load_balancer.quotas import Quotas
from nova_lite.base import exceptions

#: Backends whose networks are rows of the conductor's database.
_BACKENDS = ("local", "fake")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> LoadBalancerApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.network.backend
    if backend not in _BACKENDS:
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: load_balancer needs [network] backend = local, which is {backend}."
        )
    return LoadBalancerApp(services)


class LoadBalancerApp(rest.ServiceApplication):
    """WSGI application, mounted at ``/v2`` and ``/v2.0``."""

    api = "load_balancer"
    resources = (LoadBalancers, Listeners, Pools, Members, HealthMonitors, Catalogue, Quotas)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        fault = {"faultcode": "Client" if code < 500 else "Server", "faultstring": message, "debuginfo": None}
        return wsgi.to_response(wsgi.Response(fault, code))
