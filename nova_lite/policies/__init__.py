"""Authorization rules, one file per kind of resource, with Nova's names."""

from __future__ import annotations

from oslo_policy import policy

from nova_lite.policies import (  # noqa: F401 each adds its rules
    aggregates,
    base,
    consoles,
    extensions,
    flavors,
    floating_ips,
    hosts,
    identity,
    image_service,
    images,
    instance_actions,
    keypairs,
    network_service,
    proxies,
    quotas,
    security_groups,
    server_external_events,
    server_groups,
    servers,
    usage,
    volume_service,
)


def list_rules() -> list[policy.RuleDefault]:
    """Every rule with its default; also the entry point of oslopolicy-sample-generator."""
    return list(base.RULES)
