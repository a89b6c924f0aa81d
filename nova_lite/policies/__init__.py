"""Authorization rules, one file per kind of resource, with Nova's names."""

from __future__ import annotations

from oslo_policy import policy

from nova_lite.policies import (
    aggregates,
    base,
    catalogue,
    flavors,
    hosts,
    identity,
    image_service,
    instance_actions,
    keypairs,
    proxies,
    quotas,
    server_external_events,
    server_groups,
    server_readings,
    servers,
    usage,
)

_FILES = (
    aggregates,
    base,
    catalogue,
    flavors,
    hosts,
    identity,
    image_service,
    instance_actions,
    keypairs,
    proxies,
    quotas,
    server_external_events,
    server_groups,
    server_readings,
    servers,
    usage,
)


def list_rules() -> list[policy.RuleDefault]:
    """Every rule with its default; also the entry point of oslopolicy-sample-generator."""
    return [rule for file in _FILES for rule in file.RULES]
