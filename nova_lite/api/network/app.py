"""The network API: the part of Neutron's v2.0 API that clients use, on the built-in backend."""

from __future__ import annotations

import webob

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import faults, requests
from nova_lite.api.network.address_groups import AddressGroups
from nova_lite.api.network.address_scopes import AddressScopes
from nova_lite.api.network.agents import Agents, AvailabilityZones
from nova_lite.api.network.availability import IpAvailabilities, ServiceProviders
from nova_lite.api.network.extensions import Extensions
from nova_lite.api.network.floating_ips import FloatingIps
from nova_lite.api.network.networks import Networks
from nova_lite.api.network.port_forwardings import PortForwardings
from nova_lite.api.network.ports import Ports
from nova_lite.api.network.qos import QosPolicies, QosRules, QosRuleTypes
from nova_lite.api.network.quotas import Quotas
from nova_lite.api.network.rbac_policies import RbacPolicies
from nova_lite.api.network.routers import Routers
from nova_lite.api.network.security_groups import SecurityGroupRules, SecurityGroups
from nova_lite.api.network.subnet_pools import SubnetPools
from nova_lite.api.network.subnets import Subnets
from nova_lite.api.network.tags import Tags
from nova_lite.api.network.trunks import Trunks
from nova_lite.base import exceptions

#: Backends whose networks are rows of the conductor's database.
_BACKENDS = ("local", "fake")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> NetworkApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.network.backend
    if backend not in _BACKENDS:
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: network needs [network] backend = local, which is {backend}."
        )
    return NetworkApp(services)


class NetworkApp(rest.ServiceApplication):
    """WSGI application, mounted at ``/v2.0``."""

    api = "network"
    resources = (
        Networks,
        Subnets,
        Ports,
        SecurityGroups,
        SecurityGroupRules,
        FloatingIps,
        PortForwardings,
        Routers,
        Trunks,
        Tags,
        Quotas,
        Agents,
        AvailabilityZones,
        ServiceProviders,
        IpAvailabilities,
        SubnetPools,
        AddressScopes,
        AddressGroups,
        RbacPolicies,
        QosPolicies,
        QosRules,
        QosRuleTypes,
        Extensions,
    )

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        """Handle a request. The conductor compares the revision that a change names (``If-Match``)."""
        if req.method in ("PUT", "DELETE") and wsgi.CONTEXT in req.environ:
            req.context.revision = requests.expected_revision(req)
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return faults.response(faults.name_of(code), code, message)

    def refusal(self, req: ServiceRequest, error: exceptions.NovaLiteException) -> webob.Response:
        return faults.response(*faults.name_and_status(error), error.message)
