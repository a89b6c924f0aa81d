"""Rules of the network service, with Neutron's names."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, READER, SERVICE, rule

_NETWORK = "/v2.0/networks/{network_id}"
_SUBNET = "/v2.0/subnets/{subnet_id}"
_PORT = "/v2.0/ports/{port_id}"
_GROUP = "/v2.0/security-groups/{security_group_id}"
_RULE = "/v2.0/security-group-rules/{security_group_rule_id}"
_FLOATING = "/v2.0/floatingips/{floatingip_id}"
_ROUTER = "/v2.0/routers/{router_id}"
#: Check of the project that owns a network. A network that all projects share has no owner.
_NETWORK_OWNER = "rule:context_is_admin or project_id:%(network_project_id)s"
_QUOTA = "rule:context_is_admin or project_id:%(project_id)s"

NETWORK_GET = rule(
    "get_network",
    READER,
    "List and show the networks available to the caller's project",
    "GET /v2.0/networks",
    f"GET {_NETWORK}",
)
NETWORK_CREATE = rule("create_network", MEMBER, "Create a network for the caller's project", "POST /v2.0/networks")
NETWORK_CREATE_SHARED = rule(
    "create_network:shared", ADMIN, "Create a network that all projects share", "POST /v2.0/networks"
)
NETWORK_CREATE_EXTERNAL = rule(
    "create_network:router:external", ADMIN, "Create an external network", "POST /v2.0/networks"
)
NETWORK_UPDATE_EXTERNAL = rule(
    "update_network:router:external", ADMIN, "Make a network an external one", f"PUT {_NETWORK}"
)
NETWORK_CREATE_SECURITY = rule(
    "create_network:port_security_enabled", MEMBER, "Create a network without port security", "POST /v2.0/networks"
)
NETWORK_UPDATE_SECURITY = rule(
    "update_network:port_security_enabled",
    MEMBER,
    "Change the port security of a network's new ports",
    f"PUT {_NETWORK}",
)
NETWORK_UPDATE = rule("update_network", MEMBER, "Change a network of the caller's project", f"PUT {_NETWORK}")
NETWORK_DELETE = rule("delete_network", MEMBER, "Delete a network of the caller's project", f"DELETE {_NETWORK}")
PROVIDER_GET = rule(
    "get_network:provider:network_type", ADMIN, "See a network's provider attributes", f"GET {_NETWORK}"
)
PROVIDER_CREATE = rule(
    "create_network:provider:physical_network",
    ADMIN,
    "Create a network that is a physical one, or a VLAN of it",
    "POST /v2.0/networks",
)
SUBNET_GET = rule(
    "get_subnet",
    READER,
    "List and show the subnets of networks available to the caller's project",
    "GET /v2.0/subnets",
    f"GET {_SUBNET}",
)
SUBNET_CREATE = rule(
    "create_subnet", MEMBER, "Create a subnet in a network of the caller's project", "POST /v2.0/subnets"
)
SUBNET_UPDATE = rule("update_subnet", MEMBER, "Change a subnet of the caller's project", f"PUT {_SUBNET}")
SUBNET_DELETE = rule("delete_subnet", MEMBER, "Delete a subnet of the caller's project", f"DELETE {_SUBNET}")
PORT_GET = rule(
    "get_port", READER, "List and show the ports of the caller's project", "GET /v2.0/ports", f"GET {_PORT}"
)
PORT_TRACE = rule("get_port_trace", READER, "Show the way of a packet of a port", f"GET {_PORT}/trace")
PORT_GET_BINDING = rule("get_port:binding:host_id", ADMIN, "See the host of a port", f"GET {_PORT}")
PORT_CREATE = rule("create_port", MEMBER, "Create a port for the caller's project", "POST /v2.0/ports")
PORT_CREATE_MAC = rule(
    "create_port:mac_address", _NETWORK_OWNER, "Choose the MAC address of a new port", "POST /v2.0/ports"
)
PORT_CREATE_ADDRESS = rule(
    "create_port:fixed_ips:ip_address", _NETWORK_OWNER, "Choose the address of a new port", "POST /v2.0/ports"
)
PORT_UPDATE = rule("update_port", MEMBER, "Change a port of the caller's project", f"PUT {_PORT}")
PORT_UPDATE_MAC = rule(
    "update_port:mac_address", _NETWORK_OWNER, "Choose another MAC address of a free port", f"PUT {_PORT}"
)
PORT_UPDATE_ADDRESS = rule(
    "update_port:fixed_ips:ip_address", _NETWORK_OWNER, "Choose another address of a port", f"PUT {_PORT}"
)
PORT_CREATE_PAIRS = rule(
    "create_port:allowed_address_pairs", _NETWORK_OWNER, "Give a new port further addresses", "POST /v2.0/ports"
)
PORT_UPDATE_PAIRS = rule(
    "update_port:allowed_address_pairs", _NETWORK_OWNER, "Change the further addresses of a port", f"PUT {_PORT}"
)
PORT_CREATE_SECURITY = rule(
    "create_port:port_security_enabled", _NETWORK_OWNER, "Create a port without port security", "POST /v2.0/ports"
)
PORT_UPDATE_SECURITY = rule(
    "update_port:port_security_enabled", _NETWORK_OWNER, "Turn off the security of a port", f"PUT {_PORT}"
)
PORT_CREATE_OWNER = rule(
    "create_port:device_owner",
    SERVICE,
    "Name a server or router (compute:, network:) as a new port's owner",
    "POST /v2.0/ports",
)
PORT_UPDATE_OWNER = rule(
    "update_port:device_owner",
    SERVICE,
    "Name a server or router (compute:, network:) as a port's owner",
    f"PUT {_PORT}",
)
PORT_DELETE = rule("delete_port", MEMBER, "Delete a port of the caller's project", f"DELETE {_PORT}")
GROUP_GET = rule(
    "get_security_group",
    READER,
    "List and show the security groups of the caller's project",
    "GET /v2.0/security-groups",
    f"GET {_GROUP}",
)
GROUP_CREATE = rule("create_security_group", MEMBER, "Create a security group", "POST /v2.0/security-groups")
GROUP_UPDATE = rule("update_security_group", MEMBER, "Change a security group of the caller's project", f"PUT {_GROUP}")
GROUP_DELETE = rule(
    "delete_security_group", MEMBER, "Delete a security group of the caller's project", f"DELETE {_GROUP}"
)
RULE_GET = rule(
    "get_security_group_rule",
    READER,
    "List and show the security group rules of the caller's project",
    "GET /v2.0/security-group-rules",
    f"GET {_RULE}",
)
RULE_CREATE = rule(
    "create_security_group_rule", MEMBER, "Add a rule to a security group", "POST /v2.0/security-group-rules"
)
RULE_DELETE = rule("delete_security_group_rule", MEMBER, "Delete a rule of a security group", f"DELETE {_RULE}")
FLOATING_GET = rule(
    "get_floatingip",
    READER,
    "List and show the floating addresses of the caller's project",
    "GET /v2.0/floatingips",
    f"GET {_FLOATING}",
)
FLOATING_CREATE = rule("create_floatingip", MEMBER, "Allocate a floating address", "POST /v2.0/floatingips")
FLOATING_UPDATE = rule("update_floatingip", MEMBER, "Associate or disassociate a floating address", f"PUT {_FLOATING}")
FLOATING_DELETE = rule("delete_floatingip", MEMBER, "Release a floating address", f"DELETE {_FLOATING}")
ROUTER_GET = rule(
    "get_router", READER, "List and show the routers of the caller's project", "GET /v2.0/routers", f"GET {_ROUTER}"
)
ROUTER_CREATE = rule("create_router", MEMBER, "Create a router for the caller's project", "POST /v2.0/routers")
ROUTER_CREATE_SNAT = rule(
    "create_router:external_gateway_info:enable_snat", ADMIN, "Create a router without SNAT", "POST /v2.0/routers"
)
ROUTER_CREATE_ADDRESSES = rule(
    "create_router:external_gateway_info:external_fixed_ips",
    MEMBER,
    "Create a router with addresses of its own",
    "POST /v2.0/routers",
)
ROUTER_UPDATE = rule("update_router", MEMBER, "Change a router of the caller's project", f"PUT {_ROUTER}")
ROUTER_UPDATE_SNAT = rule(
    "update_router:external_gateway_info:enable_snat", ADMIN, "Turn off a router's SNAT", f"PUT {_ROUTER}"
)
ROUTER_UPDATE_ADDRESSES = rule(
    "update_router:external_gateway_info:external_fixed_ips",
    MEMBER,
    "Change the addresses of a router",
    f"PUT {_ROUTER}",
)
ROUTER_DELETE = rule("delete_router", MEMBER, "Delete a router of the caller's project", f"DELETE {_ROUTER}")
ROUTER_ADD = rule(
    "add_router_interface", MEMBER, "Connect a network to a router", f"PUT {_ROUTER}/add_router_interface"
)
ROUTER_ADD_ROUTES = rule("add_extraroutes", MEMBER, "Add static routes to a router", f"PUT {_ROUTER}/add_extraroutes")
ROUTER_REMOVE_ROUTES = rule(
    "remove_extraroutes", MEMBER, "Remove static routes from a router", f"PUT {_ROUTER}/remove_extraroutes"
)
ROUTER_REMOVE = rule(
    "remove_router_interface",
    MEMBER,
    "Disconnect a network from a router",
    f"PUT {_ROUTER}/remove_router_interface",
)


def _tags(plural: str, path: str) -> tuple[str, str, str]:
    """Return the rules that read, set and delete tags of a kind of resource."""
    text, tags = plural.replace("_", " "), f"{path}/tags"
    return (
        rule(f"get_{plural}_tags", READER, f"List the tags of {text}", f"GET {tags}", f"GET {tags}/{{tag_id}}"),
        rule(
            f"update_{plural}_tags",
            MEMBER,
            f"Set and add tags of {text}",
            f"POST {tags}",
            f"PUT {tags}",
            f"PUT {tags}/{{tag_id}}",
        ),
        rule(f"delete_{plural}_tags", MEMBER, f"Delete tags of {text}", f"DELETE {tags}", f"DELETE {tags}/{{tag_id}}"),
    )


#: Rules of tags by kind of resource.
TAGS = {
    "networks": _tags("networks", _NETWORK),
    "subnets": _tags("subnets", _SUBNET),
    "subnetpools": _tags("subnetpools", "/v2.0/subnetpools/{subnetpool_id}"),
    "policies": _tags("policies", "/v2.0/policies/{policy_id}"),
    "ports": _tags("ports", _PORT),
    "routers": _tags("routers", _ROUTER),
    "floatingips": _tags("floatingips", _FLOATING),
    "trunks": _tags("trunks", "/v2.0/trunks/{trunk_id}"),
    "security_groups": _tags("security_groups", _GROUP),
    "security_group_rules": _tags("security_group_rules", _RULE),
}
AGENT_LIST = rule("get_agents", READER, "List network agents: empty without the rule get_agent", "GET /v2.0/agents")
AGENT_GET = rule("get_agent", ADMIN, "List and show network agents", "GET /v2.0/agents", "GET /v2.0/agents/{agent_id}")


def _objects(name: str, path: str, *update: str, changes: str = MEMBER) -> tuple[str, str, str, str]:
    """Return the rules that list, create, change and delete a kind of resources.

    ``update``: more URLs of changes. ``changes``: check of everything but reads.
    """
    text, one = name.replace("_", " "), f"{path}/{{{name}_id}}"
    return (
        rule(f"get_{name}", READER, f"List and show resources of the kind {text}", f"GET {path}", f"GET {one}"),
        rule(f"create_{name}", changes, f"Create a resource of the kind {text}", f"POST {path}"),
        rule(
            f"update_{name}",
            changes,
            f"Change the own project's resources of the kind {text}",
            f"PUT {one}",
            *(f"PUT {one}/{action}" for action in update),
        ),
        rule(f"delete_{name}", changes, f"Delete the own project's resources of the kind {text}", f"DELETE {one}"),
    )


#: Rules that list, create, change and delete each kind of resources that only the API knows.
POOL = _objects("subnetpool", "/v2.0/subnetpools")
SCOPE = _objects("address_scope", "/v2.0/address-scopes")
ADDRESS_GROUP = _objects("address_group", "/v2.0/address-groups", "add_addresses", "remove_addresses")
RBAC = _objects("rbac_policy", "/v2.0/rbac-policies")
FORWARDING = _objects("floatingip_port_forwarding", f"{_FLOATING}/port_forwardings")
TRUNK = _objects("trunk", "/v2.0/trunks")
SUBPORTS_GET = rule("get_subports", READER, "List the subports of a trunk", "GET /v2.0/trunks/{trunk_id}/get_subports")
SUBPORTS_ADD = rule("add_subports", MEMBER, "Add subports to a trunk", "PUT /v2.0/trunks/{trunk_id}/add_subports")
SUBPORTS_REMOVE = rule(
    "remove_subports", MEMBER, "Remove subports from a trunk", "PUT /v2.0/trunks/{trunk_id}/remove_subports"
)
QOS_POLICY = _objects("policy", "/v2.0/qos/policies", changes=ADMIN)
QOS_RULES = {
    kind: _objects(f"policy_{kind}_rule", f"/v2.0/qos/policies/{{policy_id}}/{kind}_rules", changes=ADMIN)
    for kind in ("bandwidth_limit", "dscp_marking")
}
QOS_RULE_TYPE_GET = rule(
    "get_rule_type",
    READER,
    "List and show the types of rules of QoS policies",
    "GET /v2.0/qos/rule-types",
    "GET /v2.0/qos/rule-types/{rule_type}",
)
_POOL_ONE = "/v2.0/subnetpools/{subnetpool_id}"
POOL_CREATE_SHARED = rule(
    "create_subnetpool:shared", ADMIN, "Create a subnet pool for all projects", "POST /v2.0/subnetpools"
)
POOL_CREATE_DEFAULT = rule(
    "create_subnetpool:is_default", ADMIN, "Create the default subnet pool", "POST /v2.0/subnetpools"
)
POOL_UPDATE_DEFAULT = rule(
    "update_subnetpool:is_default", ADMIN, "Change which subnet pool is the default", f"PUT {_POOL_ONE}"
)
POOL_ADD = rule("add_prefixes", MEMBER, "Add prefixes to a subnet pool", f"PUT {_POOL_ONE}/add_prefixes")
POOL_REMOVE = rule(
    "remove_prefixes", MEMBER, "Remove unused prefixes from a subnet pool", f"PUT {_POOL_ONE}/remove_prefixes"
)
SCOPE_CREATE_SHARED = rule(
    "create_address_scope:shared", ADMIN, "Create an address scope for all projects", "POST /v2.0/address-scopes"
)
SCOPE_UPDATE_SHARED = rule(
    "update_address_scope:shared",
    ADMIN,
    "Share an address scope with all projects",
    "PUT /v2.0/address-scopes/{address_scope_id}",
)
RBAC_CREATE_EVERYBODY = rule(
    "create_rbac_policy:target_tenant", ADMIN, "Share a resource with all projects", "POST /v2.0/rbac-policies"
)
RBAC_UPDATE_EVERYBODY = rule(
    "update_rbac_policy:target_tenant",
    ADMIN,
    "Share a resource with all projects by an existing policy",
    "PUT /v2.0/rbac-policies/{rbac_policy_id}",
)
NETWORK_UPDATE_SHARED = rule(
    "update_network:shared", ADMIN, "Share a project's network with all projects", f"PUT {_NETWORK}"
)
QUOTA_GET = rule(
    "get_quota",
    _QUOTA,
    "Show a project's network quota",
    "GET /v2.0/quotas/{project_id}",
    "GET /v2.0/quotas/{project_id}/details.json",
    "GET /v2.0/quotas/{project_id}/default",
)
QUOTA_LIST = rule(
    "get_quotas",
    READER,
    "List projects with network quotas of their own (an admin: all of them), and name the caller's project",
    "GET /v2.0/quotas",
    "GET /v2.0/quotas/tenant",
    "GET /v2.0/quotas/project",
)
QUOTA_UPDATE = rule(
    "update_quota",
    ADMIN,
    "Set a project's network quota",
    "PUT /v2.0/quotas/{project_id}",
    "DELETE /v2.0/quotas/{project_id}",
)
ZONES_GET = rule("get_availability_zone", ANYONE, "List availability zones", "GET /v2.0/availability_zones")
PROVIDERS_GET = rule("get_service_provider", READER, "List providers of routers", "GET /v2.0/service-providers")
IP_AVAILABILITY_GET = rule(
    "get_network_ip_availability",
    ADMIN,
    "Show how many addresses of networks are in use",
    "GET /v2.0/network-ip-availabilities",
    "GET /v2.0/network-ip-availabilities/{network_id}",
)
EXTENSIONS_GET = rule(
    "get_extension",
    ANYONE,
    "List the available extensions of Neutron's API",
    "GET /v2.0/extensions",
    "GET /v2.0/extensions/{alias}",
)
