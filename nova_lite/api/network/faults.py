"""Errors in Neutron's form, with its names and status codes."""

from __future__ import annotations

import webob
import webob.exc

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions

#: Neutron's name and status of those errors of ours to which it has other ones than the rest of the cloud.
_NEUTRONS: dict[type[exceptions.NovaLiteException], tuple[str, int]] = {
    exceptions.QuotaExceeded: ("OverQuota", 409),
    exceptions.FixedIpInUse: ("IpAddressAlreadyAllocated", 409),
    exceptions.FixedIpInvalid: ("InvalidIpForSubnet", 400),
    exceptions.FloatingIpNotFound: ("FloatingIPNotFound", 404),
    exceptions.FloatingIpPoolNotFound: ("NetworkNotFound", 404),
    exceptions.FloatingIpPortTaken: ("FloatingIPPortAlreadyAssociated", 409),
    exceptions.MarkerNotFound: ("HTTPBadRequest", 400),
    exceptions.NetworkInUse: ("NetworkInUse", 409),
    exceptions.NoMoreFixedIps: ("IpAddressGenerationFailure", 409),
    exceptions.NoMoreFloatingIps: ("IpAddressGenerationFailure", 409),
    exceptions.NoSuchPort: ("PortNotFound", 404),
    exceptions.SecurityGroupExists: ("SecurityGroupConflict", 409),
    exceptions.SecurityGroupFixed: ("SecurityGroupCannotUpdateDefault", 409),
    exceptions.SecurityGroupInUse: ("SecurityGroupInUse", 409),
    exceptions.SecurityGroupRuleExists: ("SecurityGroupRuleExists", 409),
    exceptions.SecurityGroupRuleInvalid: ("SecurityGroupRuleInvalid", 400),
    exceptions.ValidationError: ("HTTPBadRequest", 400),
}


def of(error: exceptions.NovaLiteException) -> tuple[str, int]:
    """Name and status. One that came from another daemon is of a class that oslo.messaging has made of ours."""
    kind = next(each for each in type(error).__mro__ if getattr(exceptions, each.__name__, None) is each)
    return _NEUTRONS.get(kind, (kind.__name__, error.code))


def response(kind: str, code: int, message: str) -> webob.Response:
    answer = wsgi.Response({"NeutronError": {"type": kind, "message": message, "detail": ""}}, code)
    return wsgi.to_response(answer)


def name_of(code: int) -> str:
    """Of an error that is HTTP's own."""
    found: type[webob.exc.HTTPException] | None = webob.exc.status_map.get(code)
    return "HTTPInternalServerError" if found is None else found.__name__
