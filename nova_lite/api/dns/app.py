"""The DNS API: the part of Designate's v2 API that clients use."""

from __future__ import annotations

import webob

from nova_lite.api.dns.quotas import Quotas
from nova_lite.api.dns.recordsets import RecordSets
from nova_lite.api.dns.reverse import FloatingIps
from nova_lite.api.dns.zones import Zones
from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.base import exceptions

#: Designate's names of errors, by their codes. ``{}``: what the request is about.
_TYPES = {400: "invalid_object", 404: "{}_not_found", 409: "duplicate_{}", 413: "over_quota"}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> DnsApp:
    del global_conf, local_conf
    return DnsApp(deploy.services())


class DnsApp(rest.ServiceApplication):
    """WSGI application, mounted at ``/v2``."""

    api = "dns"
    resources = (Zones, RecordSets, FloatingIps, Quotas)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        route = getattr(req, "service_route", None)
        kind = "zone" if route is None or route.resource is None else route.resource.kind
        name = _TYPES.get(code, "forbidden" if code == 403 else "error").format(kind)
        request_id = req.environ.get(wsgi.REQUEST_ID, "")
        return wsgi.to_response(
            wsgi.Response({"code": code, "type": name, "message": message, "request_id": request_id}, code)
        )

    def refusal(self, req: ServiceRequest, error: exceptions.NovaLiteException) -> webob.Response:
        code = 413 if isinstance(error, exceptions.QuotaExceeded) else error.code
        return self.fault(req, code, error.message)
