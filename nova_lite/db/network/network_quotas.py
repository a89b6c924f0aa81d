"""Quotas of networks and their parts, under Neutron's names."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import QuotaLimit, Trunk
from nova_lite.db.network import networks as api_networks
from nova_lite.db.network import port_quota, rbac, routers, security_groups, subnet_pools
from nova_lite.objects import ProjectLimits, QuotaUsage

#: Limit of trunks, and that of a project without one of its own.
TRUNKS, TRUNK_LIMIT = "trunks", 100

#: Limits behind Neutron's names. Without a limit of its own, a project may have as many subnets as networks.
RESOURCES = {
    "network": api_networks.RESOURCE,
    "subnet": api_networks.SUBNETS,
    "port": port_quota.RESOURCE,
    "router": routers.RESOURCE,
    "subnetpool": subnet_pools.RESOURCE,
    "rbac_policy": rbac.RESOURCE,
    "trunk": TRUNKS,
    "floatingip": "floating_ips",
    "security_group": "security_groups",
    "security_group_rule": "security_group_rules",
}


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> ProjectLimits:
    """Return limits and usage."""
    found = quotas.get(uow, conf, project_id).quotas
    own = quotas.limits_of(uow, conf, project_id, None).of_project
    used = {
        "network": api_networks.used(uow, project_id),
        "subnet": api_networks.used(uow, project_id, with_subnet=True),
        "port": port_quota.used(uow, project_id),
        "router": routers.used(uow, project_id),
        "subnetpool": subnet_pools.used(uow, project_id),
        "rbac_policy": rbac.used(uow, project_id),
        "trunk": trunks(uow, project_id),
        "floatingip": found["floating_ips"].used,
        "security_group": found["security_groups"].used,
        "security_group_rule": security_groups.rules_of(uow, project_id),
    }
    limits = _limits(conf, own)
    return ProjectLimits(
        project_id=project_id, quotas={name: QuotaUsage(limit=limits[name], used=used[name]) for name in RESOURCES}
    )


def trunks(uow: UnitOfWork, project_id: str) -> int:
    """Return the number of a project's trunks."""
    return uow.session.scalar(sa.select(sa.func.count(Trunk.id)).where(Trunk.project_id == project_id)) or 0


def list_(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext) -> list[ProjectLimits]:
    """Return the limits, without usage, of the projects with network limits of their own; for an admin, of all."""
    query = sa.select(QuotaLimit.project_id).where(QuotaLimit.resource.in_(RESOURCES.values()))
    mine = sa.true() if context.is_admin else QuotaLimit.project_id == (context.project_id or "")
    projects = sorted(set(uow.session.scalars(query.where(QuotaLimit.project_id != "", mine))))
    found = quotas.limits_of_several(uow, conf, [(project_id, None) for project_id in projects])
    limits = {project_id: _limits(conf, found[project_id, None].of_project) for project_id in projects}
    return [
        ProjectLimits(project_id=project_id, quotas={name: QuotaUsage(limit=limit) for name, limit in own.items()})
        for project_id, own in limits.items()
    ]


def _limits(conf: cfg.ConfigOpts, own: dict[str, int]) -> dict[str, int]:
    networks = own.get(api_networks.RESOURCE, conf.network.networks_per_project)
    configured = {
        api_networks.RESOURCE: networks,
        api_networks.SUBNETS: networks,
        port_quota.RESOURCE: port_quota.limit_of(conf, own),
        routers.RESOURCE: conf.network.routers_per_project,
        rbac.RESOURCE: rbac.DEFAULT_LIMIT,
        TRUNKS: TRUNK_LIMIT,
        subnet_pools.RESOURCE: subnet_pools.DEFAULT_LIMIT,
    }
    return {name: own.get(behind, configured.get(behind, -1)) for name, behind in RESOURCES.items()}


def set_limits(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, limits: dict[str, int | None]) -> ProjectLimits:
    """Set limits by Neutron's names. -1: unlimited; None: the default again."""
    for name in sorted(limits):
        if name not in RESOURCES:
            raise exceptions.InvalidInput(
                reason=f"there is no quota of {name[:64]} to be set here: of {', '.join(RESOURCES)}"
            )
        quotas.set_limit(uow, project_id, RESOURCES[name], limits[name])
    return get(uow, conf, project_id)
