"""Rules of the network service, with Neutron's names."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, READER, rule

_NETWORK = "/v2.0/networks/{network_id}"
_SUBNET = "/v2.0/subnets/{subnet_id}"
_PORT = "/v2.0/ports/{port_id}"
_GROUP = "/v2.0/security-groups/{security_group_id}"
_RULE = "/v2.0/security-group-rules/{security_group_rule_id}"
_FLOATING = "/v2.0/floatingips/{floatingip_id}"
_QUOTA = "rule:context_is_admin or project_id:%(project_id)s"

NETWORK_GET = rule(
    "get_network", READER, "See networks that one's project may use", "GET /v2.0/networks", f"GET {_NETWORK}"
)
NETWORK_CREATE = rule("create_network", MEMBER, "Make a network for one's project", "POST /v2.0/networks")
NETWORK_CREATE_SHARED = rule(
    "create_network:shared", ADMIN, "Make a network that all projects share", "POST /v2.0/networks"
)
NETWORK_UPDATE = rule("update_network", MEMBER, "Change one's project's network", f"PUT {_NETWORK}")
NETWORK_DELETE = rule("delete_network", MEMBER, "Delete one's project's network", f"DELETE {_NETWORK}")
PROVIDER_GET = rule("get_network:provider:network_type", ADMIN, "See what a network is on the hosts", f"GET {_NETWORK}")
SUBNET_GET = rule("get_subnet", READER, "See subnets of such networks", "GET /v2.0/subnets", f"GET {_SUBNET}")
SUBNET_CREATE = rule("create_subnet", MEMBER, "Give one's project's network a subnet", "POST /v2.0/subnets")
SUBNET_UPDATE = rule("update_subnet", MEMBER, "Change a subnet of one's project's network", f"PUT {_SUBNET}")
SUBNET_DELETE = rule("delete_subnet", MEMBER, "Delete a subnet of one's project's network", f"DELETE {_SUBNET}")
PORT_GET = rule("get_port", READER, "See one's project's ports", "GET /v2.0/ports", f"GET {_PORT}")
PORT_GET_BINDING = rule("get_port:binding:host_id", ADMIN, "See on which host a port is", f"GET {_PORT}")
PORT_CREATE = rule("create_port", MEMBER, "Make a port for one's project", "POST /v2.0/ports")
PORT_UPDATE = rule("update_port", MEMBER, "Change one's project's port", f"PUT {_PORT}")
PORT_DELETE = rule("delete_port", MEMBER, "Delete one's project's port", f"DELETE {_PORT}")
GROUP_GET = rule(
    "get_security_group",
    READER,
    "See one's project's security groups",
    *("GET /v2.0/security-groups", f"GET {_GROUP}"),
)
GROUP_CREATE = rule("create_security_group", MEMBER, "Make a security group", "POST /v2.0/security-groups")
GROUP_UPDATE = rule("update_security_group", MEMBER, "Change one's project's security group", f"PUT {_GROUP}")
GROUP_DELETE = rule("delete_security_group", MEMBER, "Delete one's project's security group", f"DELETE {_GROUP}")
RULE_GET = rule(
    "get_security_group_rule",
    READER,
    "See rules of one's project's security groups",
    *("GET /v2.0/security-group-rules", f"GET {_RULE}"),
)
RULE_CREATE = rule("create_security_group_rule", MEMBER, "Add a rule to one's group", "POST /v2.0/security-group-rules")
RULE_DELETE = rule("delete_security_group_rule", MEMBER, "Take a rule away from one's group", f"DELETE {_RULE}")
FLOATING_GET = rule(
    "get_floatingip",
    READER,
    "See one's project's floating addresses",
    *("GET /v2.0/floatingips", f"GET {_FLOATING}"),
)
FLOATING_CREATE = rule("create_floatingip", MEMBER, "Take a floating address", "POST /v2.0/floatingips")
FLOATING_UPDATE = rule("update_floatingip", MEMBER, "Lead one's project's floating address", f"PUT {_FLOATING}")
FLOATING_DELETE = rule("delete_floatingip", MEMBER, "Give back a floating address", f"DELETE {_FLOATING}")
ROUTER_GET = rule("get_router", READER, "List routers, of which there are none", "GET /v2.0/routers")
ROUTER_CREATE = rule("create_router", MEMBER, "Be told that there are no routers", "POST /v2.0/routers")
AGENT_GET = rule("get_agent", ADMIN, "See the hosts that connect servers", "GET /v2.0/agents")
QUOTA_GET = rule(
    "get_quota",
    _QUOTA,
    "See a project's quota of networks, ports and the like",
    *(
        "GET /v2.0/quotas/{project_id}",
        "GET /v2.0/quotas/{project_id}/details.json",
        "GET /v2.0/quotas/{project_id}/default",
    ),
)
QUOTA_UPDATE = rule(
    "update_quota",
    ADMIN,
    "Set a project's quota of networks, ports and the like",
    *("PUT /v2.0/quotas/{project_id}", "DELETE /v2.0/quotas/{project_id}"),
)
ZONES_GET = rule("get_availability_zone", ANYONE, "List availability zones", "GET /v2.0/availability_zones")
EXTENSIONS_GET = rule(
    "get_extension",
    ANYONE,
    "List the parts of Neutron's API that are here",
    *("GET /v2.0/extensions", "GET /v2.0/extensions/{alias}"),
)
