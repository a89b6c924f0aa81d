"""Policy rules of all APIs, one module per kind of resource, with the names that Nova and the other services use.

A constant holds a rule's name, so handlers write ``policies.CREATE``.

- `base`: the roles that rules are made of, and `rule`, which defines a rule with its default
- `enforcer`: decides whether a rule allows a caller, and reads the operator's overrides
- `identity`, `image_service`, `network_service`, `volume_service`, `placement_service`, `dns`, `load_balancer`,
  `key_manager`:
  rules of the other services
- `images`, `networks`, `floating_ips`, `security_groups`, `volumes`: rules of the compute API's proxies
- `servers`, `server_groups`, `server_external_events`, `instance_actions`, `consoles`, `keypairs`, `flavors`,
  `backups`, `assisted_volume_snapshots`: rules of servers and what they need
- `hosts`, `hypervisors`, `services`, `aggregates`, `availability_zone`: rules of the machines of the cloud
- `quotas`, `usage`, `audit_events`, `extensions`: rules of quotas, usage, audit log, and extensions

The names and defaults are part of the API: operators override them in ``[oslo_policy] policy_file``. Most handlers
declare their rule, and the dispatcher enforces it (`nova_lite.api.http.wsgi`). Entry points of `NAMESPACE` add rules of
other packages.
"""

from __future__ import annotations

import functools

from oslo_policy import policy

from nova_lite.base import plugins
from nova_lite.policies import (  # noqa: F401 each import adds rules
    aggregates,
    assisted_volume_snapshots,
    audit_events,
    availability_zone,
    backups,
    base,
    consoles,
    dns,
    extensions,
    flavors,
    floating_ips,
    hosts,
    hypervisors,
    identity,
    image_service,
    images,
    instance_actions,
    key_manager,
    keypairs,
    load_balancer,
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

#: Group of entry points. Each names a module with rules of another package, in the form of ours.
NAMESPACE = "nova_lite.policies"


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules with their defaults. Also the entry point of oslopolicy-sample-generator."""
    _load_installed()
    return list(base.RULES)


@functools.cache
def _load_installed() -> None:
    plugins.installed(NAMESPACE, "rules")
