"""Policy rules of all APIs, one module per kind of resource, with the names that Nova and the other services use.

- `base` has the roles that rules are made of, and `rule`, which defines a rule with its default.
- `enforcer` decides whether a rule allows a caller, and reads the operator's overrides.
- The other modules define the rules. A constant holds a rule's name, so handlers write ``policies.CREATE``.

The names and defaults are part of the API: operators override them in ``[oslo_policy] policy_file``. Most handlers
declare their rule, and the dispatcher enforces it (`nova_lite.api.http.wsgi`).
"""

from __future__ import annotations

from oslo_policy import policy

from nova_lite.policies import (  # noqa: F401 each import adds rules
    aggregates,
    assisted_volume_snapshots,
    audit_events,
    availability_zone,
    backups,
    base,
    consoles,
    extensions,
    flavors,
    floating_ips,
    hosts,
    hypervisors,
    identity,
    image_service,
    images,
    instance_actions,
    keypairs,
    network_service,
    networks,
    placement_service,
    quotas,
    security_groups,
    server_external_events,
    server_groups,
    servers,
    services,
    usage,
    volume_service,
    volumes,
)


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules with their defaults. Also the entry point of oslopolicy-sample-generator."""
    return list(base.RULES)
