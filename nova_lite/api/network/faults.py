"""Errors in Neutron's form, with Neutron's names and status codes."""

from __future__ import annotations

import webob
import webob.exc

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions

#: Errors that have another name or status in Neutron than in the other APIs.
_NAMES: dict[type[exceptions.NovaLiteException], tuple[str, int]] = {
    exceptions.PortSecurityRequiredForGroups: ("PortSecurityAndIPRequiredForSecurityGroups", 400),
    exceptions.QuotaExceeded: ("OverQuota", 409),
    exceptions.ExternalGatewayMissing: ("ExternalGatewayForFloatingIPNotFound", 404),
    exceptions.FixedIpInUse: ("IpAddressAlreadyAllocated", 409),
    exceptions.FixedIpInvalid: ("InvalidIpForSubnet", 400),
    exceptions.FloatingIpNotFound: ("FloatingIPNotFound", 404),
    exceptions.FloatingIpPoolNotFound: ("NetworkNotFound", 404),
    exceptions.FloatingIpLeadsToPort: ("FloatingIPPortAlreadyAssociated", 409),
    exceptions.FloatingIpPortTaken: ("FloatingIPPortAlreadyAssociated", 409),
    exceptions.MarkerNotFound: ("HTTPBadRequest", 400),
    exceptions.NetworkInUse: ("NetworkInUse", 409),
    exceptions.NetworkTagNotFound: ("TagNotFound", 404),
    exceptions.NoMoreFixedIps: ("IpAddressGenerationFailure", 409),
    exceptions.NoServiceSubnet: ("IpAddressGenerationFailureNoMatchingSubnet", 409),
    exceptions.NoMoreFloatingIps: ("IpAddressGenerationFailure", 409),
    exceptions.NoSuchPort: ("PortNotFound", 404),
    exceptions.PortForwardingInvalid: ("BadRequest", 400),
    exceptions.RouterGatewayInUseByFloatingIp: ("RouterExternalGatewayInUseByFloatingIp", 409),
    exceptions.RouterInterfaceInUseByFloatingIp: ("RouterInterfaceInUseByFloatingIP", 409),
    exceptions.RbacObjectNotFound: ("RbacPolicyInitError", 400),
    exceptions.RbacPolicyExists: ("DuplicateRbacPolicy", 409),
    exceptions.RouterPort: ("ServicePortInUse", 409),
    exceptions.SecurityGroupExists: ("SecurityGroupConflict", 409),
    exceptions.SecurityGroupFixed: ("SecurityGroupCannotUpdateDefault", 409),
    exceptions.SecurityGroupInUse: ("SecurityGroupInUse", 409),
    exceptions.SecurityGroupRuleExists: ("SecurityGroupRuleExists", 409),
    exceptions.SecurityGroupRuleInvalid: ("BadRequest", 400),
    exceptions.SubnetPoolInvalid: ("BadRequest", 400),
    exceptions.ValidationError: ("HTTPBadRequest", 400),
}


def name_and_status(error: exceptions.NovaLiteException) -> tuple[str, int]:
    """Return name and status. The class of a remote error is a subclass that oslo.messaging derives from ours."""
    kind = next(base for base in type(error).__mro__ if getattr(exceptions, base.__name__, None) is base)
    name, code = _NAMES.get(kind, (kind.__name__, error.code))
    return str(error.kwargs.get("neutron_type") or name), code


def response(kind: str, code: int, message: str) -> webob.Response:
    return wsgi.to_response(wsgi.Response({"NeutronError": {"type": kind, "message": message, "detail": ""}}, code))


def name_of(code: int) -> str:
    """Return the name of an HTTP error."""
    error: type[webob.exc.HTTPException] | None = webob.exc.status_map.get(code)
    return "HTTPInternalServerError" if error is None else error.__name__
