"""Errors in Neutron's form, with its names and status codes."""

from __future__ import annotations

import webob
import webob.exc

from nova_lite import exception
from nova_lite.api import wsgi

#: Neutron's name and status of those errors of ours to which it has other ones than the rest of the cloud.
_NEUTRONS: dict[type[exception.NovaLiteException], tuple[str, int]] = {
    exception.QuotaExceeded: ("OverQuota", 409),
    exception.FixedIpInUse: ("IpAddressAlreadyAllocated", 409),
    exception.FixedIpInvalid: ("InvalidIpForSubnet", 400),
    exception.FloatingIpNotFound: ("FloatingIPNotFound", 404),
    exception.FloatingIpPoolNotFound: ("NetworkNotFound", 404),
    exception.FloatingIpPortTaken: ("FloatingIPPortAlreadyAssociated", 409),
    exception.MarkerNotFound: ("HTTPBadRequest", 400),
    exception.NetworkInUse: ("NetworkInUse", 409),
    exception.NoMoreFixedIps: ("IpAddressGenerationFailure", 409),
    exception.NoMoreFloatingIps: ("IpAddressGenerationFailure", 409),
    exception.NoSuchPort: ("PortNotFound", 404),
    exception.SecurityGroupExists: ("SecurityGroupConflict", 409),
    exception.SecurityGroupFixed: ("SecurityGroupCannotUpdateDefault", 409),
    exception.SecurityGroupInUse: ("SecurityGroupInUse", 409),
    exception.SecurityGroupRuleExists: ("SecurityGroupRuleExists", 409),
    exception.SecurityGroupRuleInvalid: ("SecurityGroupRuleInvalid", 400),
    exception.ValidationError: ("HTTPBadRequest", 400),
}


def of(error: exception.NovaLiteException) -> tuple[str, int]:
    """Name and status. One that came from another daemon is of a class that oslo.messaging has made of ours."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == exception.__name__)
    return _NEUTRONS.get(kind, (kind.__name__, error.code))


def response(kind: str, code: int, message: str) -> webob.Response:
    answer = wsgi.Answer({"NeutronError": {"type": kind, "message": message, "detail": ""}}, code)
    return wsgi.to_response(answer)


def name_of(code: int) -> str:
    """Of an error that is HTTP's own."""
    found: type[webob.exc.HTTPException] | None = webob.exc.status_map.get(code)
    return "HTTPInternalServerError" if found is None else found.__name__
