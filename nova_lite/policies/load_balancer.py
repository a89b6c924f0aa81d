"""Rules of the load balancer service, with Octavia's names."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, rule

_LBAAS = "/v2/lbaas"
#: Paths of the kinds of resources, by Octavia's names in rules.
_PATHS = {
    "loadbalancer": "loadbalancers",
    "listener": "listeners",
    "pool": "pools",
    "member": "pools/{pool_id}/members",
    "healthmonitor": "healthmonitors",
}


def _name(kind: str, what: str) -> str:
    return f"os_load-balancer_api:{kind}:{what}"


def _rules(kind: str, path: str) -> tuple[str, str, str, str]:
    """Define the rules to read, create, change and delete resources of a kind."""
    many, one = f"{_LBAAS}/{path}", f"{_LBAAS}/{path}/{{id}}"
    return (
        rule(_name(kind, "get_all"), READER, f"List and show each {kind} of the project", f"GET {many}", f"GET {one}"),
        rule(_name(kind, "post"), MEMBER, f"Create a {kind}", f"POST {many}"),
        rule(_name(kind, "put"), MEMBER, f"Change a {kind}", f"PUT {one}"),
        rule(_name(kind, "delete"), MEMBER, f"Delete a {kind}", f"DELETE {one}"),
    )


#: Rules to read, create, change and delete, by kind.
RULES = {kind: _rules(kind, path) for kind, path in _PATHS.items()}
FAILOVER = rule(
    _name("loadbalancer", "put_failover"),
    ADMIN,
    "Move a load balancer to its other host",
    f"PUT {_LBAAS}/loadbalancers/{{id}}/failover",
)
CATALOGUE = rule(
    _name("provider", "get_all"),
    READER,
    "List providers, flavors, availability zones, and L7 policies, of which there are none",
    f"GET {_LBAAS}/providers",
    f"GET {_LBAAS}/flavors",
    f"GET {_LBAAS}/availabilityzones",
    f"GET {_LBAAS}/l7policies",
)
L7_CREATE = rule(
    _name("l7policy", "post"), MEMBER, "Create an L7 policy, which is refused", f"POST {_LBAAS}/l7policies"
)
QUOTA_GET = rule(
    _name("quota", "get_one"),
    "rule:context_is_admin or project_id:%(project_id)s",
    "See a project's quota of load balancers",
    f"GET {_LBAAS}/quotas/{{project_id}}",
)
QUOTA_UPDATE = rule(
    _name("quota", "put"),
    ADMIN,
    "Change a project's quota of load balancers",
    f"PUT {_LBAAS}/quotas/{{project_id}}",
    f"DELETE {_LBAAS}/quotas/{{project_id}}",
)
