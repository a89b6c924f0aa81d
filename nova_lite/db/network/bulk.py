"""Several resources of the network API that are created in one transaction."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import network_tags, networks, ports, routers, security_groups
from nova_lite.objects import NetworkResources, SecurityGroup


def create(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, wanted: NetworkResources
) -> NetworkResources:
    """Create all resources of a request. The error of one of them rolls back all."""
    return NetworkResources(
        networks=[networks.create(uow, conf, context, network) for network in wanted.networks],
        subnets=[networks.create_subnet(uow, conf, context, subnet) for subnet in wanted.subnets],
        ports=[ports.create(uow, conf, context, port) for port in wanted.ports],
        routers=[routers.create(uow, conf, context, router) for router in wanted.routers],
        security_groups=[_security_group(uow, conf, context, group) for group in wanted.security_groups],
        security_group_rules=[
            security_groups.add_rule(uow, conf, context, rule) for rule in wanted.security_group_rules
        ],
    )


def _security_group(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, wanted: SecurityGroup
) -> SecurityGroup:
    made = security_groups.create(uow, conf, context, wanted.name, wanted.description, wanted.stateful)
    if wanted.tags:
        made.tags = network_tags.change(uow, context, "security_groups", made.id, wanted.tags, [])
    return made
