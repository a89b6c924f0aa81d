"""The network API: the part of Neutron's v2.0 API that clients use, on the built-in backend."""

from __future__ import annotations

from nova_lite.api.http import deploy
from nova_lite.api.http.rest import ServiceRoute
from nova_lite.api.network.address_groups import AddressGroups
from nova_lite.api.network.agents import Agents, AvailabilityZones
from nova_lite.api.network.availability import AvailabilityResource
from nova_lite.api.network.extensions import Extensions
from nova_lite.api.network.floating_ips import FloatingIpResource
from nova_lite.api.network.ports import PortResource
from nova_lite.api.network.quotas import Quotas
from nova_lite.api.network.rbac_policies import RbacPolicies
from nova_lite.api.network.routers import RouterResource
from nova_lite.api.network.security_groups import SecurityGroupResource
from nova_lite.api.network.subnet_pools import SubnetPoolResource
from nova_lite.api.network.tags import PATHS, TagResource
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

#: Backends whose networks are rows of the conductor's database.
_BACKENDS = ("local", "fake")

_GROUPS, _RULES = "/security-groups", "/security-group-rules"


def _tag_routes(kind: str) -> list[ServiceRoute]:
    tags, get, update, delete = f"{PATHS[kind]}/{{id}}/tags", *policies.TAGS[kind]
    return [
        ServiceRoute("GET", tags, f"{kind}_tags", get),
        ServiceRoute("POST", tags, f"{kind}_add_tags", update),
        ServiceRoute("PUT", tags, f"{kind}_set_tags", update),
        ServiceRoute("DELETE", tags, f"{kind}_delete_tags", delete),
        ServiceRoute("GET", f"{tags}/{{tag}}", f"{kind}_tag", get),
        ServiceRoute("PUT", f"{tags}/{{tag}}", f"{kind}_add_tag", update),
        ServiceRoute("DELETE", f"{tags}/{{tag}}", f"{kind}_delete_tag", delete),
    ]


def _object_routes(path: str, names: tuple[str, str], rules: tuple[str, str, str, str]) -> list[ServiceRoute]:
    """Return the routes of a kind of resources, with the ``names`` of several and of one."""
    (several, one), (get, create, update, delete) = names, rules
    return [
        ServiceRoute("GET", path, several, get),
        ServiceRoute("POST", path, f"create_{one}", create),
        ServiceRoute("GET", f"{path}/{{id}}", one, get),
        ServiceRoute("PUT", f"{path}/{{id}}", f"update_{one}", update),
        ServiceRoute("DELETE", f"{path}/{{id}}", f"delete_{one}", delete),
    ]


def app_factory(global_conf: dict[str, str], **local_conf: str) -> NetworkApp:
    del global_conf, local_conf
    services = deploy.services()
    backend = services.conf.network.backend
    if backend not in _BACKENDS:
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: network needs [network] backend = local, which is {backend}."
        )
    return NetworkApp(services)


class NetworkApp(
    AvailabilityResource,
    PortResource,
    SecurityGroupResource,
    FloatingIpResource,
    RouterResource,
    TagResource,
    SubnetPoolResource,
):
    """WSGI application, mounted at ``/v2.0``."""

    resources = (AddressGroups, Quotas, Agents, AvailabilityZones, RbacPolicies, Extensions)
    routes = (
        ServiceRoute("GET", "/networks", "networks", policies.NETWORK_GET),
        ServiceRoute("POST", "/networks", "create_network", policies.NETWORK_CREATE),
        ServiceRoute("GET", "/networks/{id}", "network", policies.NETWORK_GET),
        ServiceRoute("PUT", "/networks/{id}", "update_network", policies.NETWORK_UPDATE),
        ServiceRoute("DELETE", "/networks/{id}", "delete_network", policies.NETWORK_DELETE),
        ServiceRoute("GET", "/subnets", "subnets", policies.SUBNET_GET),
        ServiceRoute("POST", "/subnets", "create_subnet", policies.SUBNET_CREATE),
        ServiceRoute("GET", "/subnets/{id}", "subnet", policies.SUBNET_GET),
        ServiceRoute("PUT", "/subnets/{id}", "update_subnet", policies.SUBNET_UPDATE),
        ServiceRoute("DELETE", "/subnets/{id}", "delete_subnet", policies.SUBNET_DELETE),
        ServiceRoute("GET", "/ports", "ports", policies.PORT_GET),
        ServiceRoute("POST", "/ports", "create_port", policies.PORT_CREATE),
        ServiceRoute("GET", "/ports/{id}", "port", policies.PORT_GET),
        ServiceRoute("PUT", "/ports/{id}", "update_port", policies.PORT_UPDATE),
        ServiceRoute("DELETE", "/ports/{id}", "delete_port", policies.PORT_DELETE),
        ServiceRoute("GET", _GROUPS, "security_groups", policies.GROUP_GET),
        ServiceRoute("POST", _GROUPS, "create_security_group", policies.GROUP_CREATE),
        ServiceRoute("GET", f"{_GROUPS}/{{id}}", "security_group", policies.GROUP_GET),
        ServiceRoute("PUT", f"{_GROUPS}/{{id}}", "update_security_group", policies.GROUP_UPDATE),
        ServiceRoute("DELETE", f"{_GROUPS}/{{id}}", "delete_security_group", policies.GROUP_DELETE),
        ServiceRoute("GET", _RULES, "security_group_rules", policies.RULE_GET),
        ServiceRoute("POST", _RULES, "create_security_group_rule", policies.RULE_CREATE),
        ServiceRoute("GET", f"{_RULES}/{{id}}", "security_group_rule", policies.RULE_GET),
        ServiceRoute("DELETE", f"{_RULES}/{{id}}", "delete_security_group_rule", policies.RULE_DELETE),
        ServiceRoute("GET", "/floatingips", "floating_ips", policies.FLOATING_GET),
        ServiceRoute("POST", "/floatingips", "create_floating_ip", policies.FLOATING_CREATE),
        ServiceRoute("GET", "/floatingips/{id}", "floating_ip", policies.FLOATING_GET),
        ServiceRoute("PUT", "/floatingips/{id}", "update_floating_ip", policies.FLOATING_UPDATE),
        ServiceRoute("DELETE", "/floatingips/{id}", "delete_floating_ip", policies.FLOATING_DELETE),
        ServiceRoute("GET", "/routers", "routers", policies.ROUTER_GET),
        ServiceRoute("POST", "/routers", "create_router", policies.ROUTER_CREATE),
        ServiceRoute("GET", "/routers/{id}", "router", policies.ROUTER_GET),
        ServiceRoute("PUT", "/routers/{id}", "update_router", policies.ROUTER_UPDATE),
        ServiceRoute("DELETE", "/routers/{id}", "delete_router", policies.ROUTER_DELETE),
        ServiceRoute("PUT", "/routers/{id}/add_extraroutes", "add_extraroutes", policies.ROUTER_ADD_ROUTES),
        ServiceRoute("PUT", "/routers/{id}/remove_extraroutes", "remove_extraroutes", policies.ROUTER_REMOVE_ROUTES),
        ServiceRoute("PUT", "/routers/{id}/add_router_interface", "add_router_interface", policies.ROUTER_ADD),
        ServiceRoute("PUT", "/routers/{id}/remove_router_interface", "remove_router_interface", policies.ROUTER_REMOVE),
        *(route for kind in PATHS for route in _tag_routes(kind)),
        ServiceRoute("GET", "/service-providers", "service_providers", policies.PROVIDERS_GET),
        ServiceRoute("GET", "/network-ip-availabilities", "ip_availabilities", policies.IP_AVAILABILITY_GET),
        ServiceRoute("GET", "/network-ip-availabilities/{id}", "ip_availability", policies.IP_AVAILABILITY_GET),
        *_object_routes("/subnetpools", ("subnet_pools", "subnet_pool"), policies.POOL),
        ServiceRoute("PUT", "/subnetpools/{id}/add_prefixes", "add_prefixes", policies.POOL_ADD),
        ServiceRoute("PUT", "/subnetpools/{id}/remove_prefixes", "remove_prefixes", policies.POOL_REMOVE),
        *_object_routes("/address-scopes", ("address_scopes", "address_scope"), policies.SCOPE),
    )
