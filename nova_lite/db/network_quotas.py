"""Quotas of networks and their parts, under Neutron's names."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db import fixed_ips, network_records, quotas, routers
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import SecurityGroup, SecurityGroupRule
from nova_lite.objects import ProjectLimits, QuotaUsage

#: Limits behind Neutron's names. A network has one subnet, so both share one limit.
RESOURCES = {
    "network": network_records.RESOURCE,
    "subnet": network_records.RESOURCE,
    "port": fixed_ips.RESOURCE,
    "router": routers.RESOURCE,
    "floatingip": "floating_ips",
    "security_group": "security_groups",
    "security_group_rule": "security_group_rules",
}


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> ProjectLimits:
    """Return limits and usage. The limit of rules is per group; their usage counts all groups."""
    found = quotas.get(uow, conf, project_id).quotas
    own = quotas.limits_of(uow, conf, project_id, None).of_project
    rules = sa.select(sa.func.count(SecurityGroupRule.id)).join(
        SecurityGroup, SecurityGroup.id == SecurityGroupRule.security_group_id
    )
    used = {
        "network": network_records.used(uow, project_id),
        "subnet": network_records.used(uow, project_id, with_subnet=True),
        "port": fixed_ips.used(uow, project_id),
        "router": routers.used(uow, project_id),
        "floatingip": found["floating_ips"].used,
        "security_group": found["security_groups"].used,
        "security_group_rule": uow.session.scalar(rules.where(SecurityGroup.project_id == project_id)) or 0,
    }
    configured = {
        network_records.RESOURCE: conf.network.networks_per_project,
        fixed_ips.RESOURCE: conf.network.fixed_ips_per_project,
        routers.RESOURCE: conf.network.routers_per_project,
    }
    limits = {name: own.get(behind, configured.get(behind, -1)) for name, behind in RESOURCES.items()}
    return ProjectLimits(
        project_id=project_id, quotas={name: QuotaUsage(limit=limits[name], used=used[name]) for name in RESOURCES}
    )


def set_limits(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, limits: dict[str, int | None]) -> ProjectLimits:
    """Set limits by Neutron's names. -1: unlimited; None: the default again."""
    for name in sorted(limits):
        if name not in RESOURCES or name == "subnet":
            raise exceptions.InvalidInput(
                reason=f"there is no quota of {name[:64]} to be set here: of {', '.join(RESOURCES)}, without subnet"
            )
        quotas.set_limit(uow, project_id, RESOURCES[name], limits[name])
    return get(uow, conf, project_id)
