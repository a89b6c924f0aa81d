"""The network API: the part of Neutron's v2.0 API that clients use, on the built-in backend."""

from __future__ import annotations

from nova_lite.api.http import deploy
from nova_lite.api.http.rest import Route
from nova_lite.api.network.agents import AgentResource
from nova_lite.api.network.extensions import ExtensionResource
from nova_lite.api.network.floating_ips import FloatingIpResource
from nova_lite.api.network.networks import NetworkResource
from nova_lite.api.network.ports import PortResource
from nova_lite.api.network.quotas import QuotaResource
from nova_lite.api.network.routers import RouterResource
from nova_lite.api.network.security_groups import SecurityGroupResource
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

#: Backends whose networks are rows of the conductor's database.
_BACKENDS = ("local", "fake")

_GROUPS, _RULES, _QUOTA = "/security-groups", "/security-group-rules", "/quotas/{project_id}"
_OF_PROJECT = {"project_id": "project_id"}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> NetworkApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.network.backend
    if backend not in _BACKENDS:
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: network serves [network] backend = local, which is {backend}."
        )
    return NetworkApp(services)


class NetworkApp(
    NetworkResource,
    PortResource,
    SecurityGroupResource,
    FloatingIpResource,
    RouterResource,
    QuotaResource,
    AgentResource,
    ExtensionResource,
):
    """WSGI application, mounted at ``/v2.0``."""

    routes = (
        Route("GET", "/networks", "networks", policies.NETWORK_GET),
        Route("POST", "/networks", "create_network", policies.NETWORK_CREATE),
        Route("GET", "/networks/{id}", "network", policies.NETWORK_GET),
        Route("PUT", "/networks/{id}", "update_network", policies.NETWORK_UPDATE),
        Route("DELETE", "/networks/{id}", "delete_network", policies.NETWORK_DELETE),
        Route("GET", "/subnets", "subnets", policies.SUBNET_GET),
        Route("POST", "/subnets", "create_subnet", policies.SUBNET_CREATE),
        Route("GET", "/subnets/{id}", "subnet", policies.SUBNET_GET),
        Route("PUT", "/subnets/{id}", "update_subnet", policies.SUBNET_UPDATE),
        Route("DELETE", "/subnets/{id}", "delete_subnet", policies.SUBNET_DELETE),
        Route("GET", "/ports", "ports", policies.PORT_GET),
        Route("POST", "/ports", "create_port", policies.PORT_CREATE),
        Route("GET", "/ports/{id}", "port", policies.PORT_GET),
        Route("PUT", "/ports/{id}", "update_port", policies.PORT_UPDATE),
        Route("DELETE", "/ports/{id}", "delete_port", policies.PORT_DELETE),
        Route("GET", _GROUPS, "security_groups", policies.GROUP_GET),
        Route("POST", _GROUPS, "create_security_group", policies.GROUP_CREATE),
        Route("GET", f"{_GROUPS}/{{id}}", "security_group", policies.GROUP_GET),
        Route("PUT", f"{_GROUPS}/{{id}}", "update_security_group", policies.GROUP_UPDATE),
        Route("DELETE", f"{_GROUPS}/{{id}}", "delete_security_group", policies.GROUP_DELETE),
        Route("GET", _RULES, "security_group_rules", policies.RULE_GET),
        Route("POST", _RULES, "create_security_group_rule", policies.RULE_CREATE),
        Route("GET", f"{_RULES}/{{id}}", "security_group_rule", policies.RULE_GET),
        Route("DELETE", f"{_RULES}/{{id}}", "delete_security_group_rule", policies.RULE_DELETE),
        Route("GET", "/floatingips", "floating_ips", policies.FLOATING_GET),
        Route("POST", "/floatingips", "create_floating_ip", policies.FLOATING_CREATE),
        Route("GET", "/floatingips/{id}", "floating_ip", policies.FLOATING_GET),
        Route("PUT", "/floatingips/{id}", "update_floating_ip", policies.FLOATING_UPDATE),
        Route("DELETE", "/floatingips/{id}", "delete_floating_ip", policies.FLOATING_DELETE),
        Route("GET", "/routers", "routers", policies.ROUTER_GET),
        Route("POST", "/routers", "create_router", policies.ROUTER_CREATE),
        Route("GET", "/routers/{id}", "router", policies.ROUTER_GET),
        Route("GET", _QUOTA, "quota", policies.QUOTA_GET, target=_OF_PROJECT),
        Route("GET", f"{_QUOTA}/details", "quota_details", policies.QUOTA_GET, target=_OF_PROJECT),
        Route("GET", f"{_QUOTA}/details.json", "quota_details", policies.QUOTA_GET, target=_OF_PROJECT),
        Route("GET", f"{_QUOTA}/default", "quota_default", policies.QUOTA_GET, target=_OF_PROJECT),
        Route("PUT", _QUOTA, "update_quota", policies.QUOTA_UPDATE),
        Route("DELETE", _QUOTA, "delete_quota", policies.QUOTA_UPDATE),
        Route("GET", "/agents", "agents", policies.AGENT_GET),
        Route("GET", "/agents/{id}", "agent", policies.AGENT_GET),
        Route("GET", "/availability_zones", "availability_zones", policies.ZONES_GET),
        Route("GET", "/extensions", "extensions", policies.EXTENSIONS_GET),
        Route("GET", "/extensions/{alias}", "extension", policies.EXTENSIONS_GET),
    )
