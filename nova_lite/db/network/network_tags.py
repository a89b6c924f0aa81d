"""Tags of the network API's resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import SecurityGroupRule
from nova_lite.db.network import floating_ips, networks, ports, qos, routers, security_groups, subnet_pools

#: Number of tags that a resource may have.
MAX_TAGS = 50

#: Functions that return the locked row of a resource that the caller may change, by kind.
_ROWS: Mapping[str, Callable[[UnitOfWork, RequestContext, str], Any]] = {
    "networks": networks.locked_network,
    "ports": ports.locked,
    "subnetpools": subnet_pools.locked,
    "policies": qos.locked,
    "routers": routers.locked,
    "floatingips": floating_ips.locked,
    "security_groups": security_groups.locked,
    "security_group_rules": security_groups.locked_rule,
}
_SUBNETS = "subnets"


def change(
    uow: UnitOfWork, context: RequestContext, kind: str, resource_id: str, add: list[str], remove: list[str] | None
) -> list[str]:
    """Remove tags of a resource (None: all), then add tags. Return its tags, in order.

    ``kind``: key of `_ROWS`, or `_SUBNETS`. Raises the errors of the resource, a 404 for a tag to remove that it does
    not have, or a 400 for too many tags.
    """
    if kind == _SUBNETS:
        return _change_subnet(uow, context, resource_id, add, remove)
    row = _ROWS[kind](uow, context, resource_id)
    row.tags = tags = changed(row.tags, add, remove)
    if not isinstance(row, SecurityGroupRule):
        row.updated_at = uow.now
    uow.session.flush()
    return tags


def _change_subnet(
    uow: UnitOfWork, context: RequestContext, subnet_id: str, add: list[str], remove: list[str] | None
) -> list[str]:
    row, version = networks.locked_subnet(uow, context, subnet_id)
    if version == 6 and row.subnet6 is not None:
        tags = changed(row.subnet6.tags, add, remove)
        row.subnet6 = msgspec.structs.replace(row.subnet6, tags=tags)
    else:
        row.subnet_tags = tags = changed(row.subnet_tags, add, remove)
    row.updated_at = uow.now
    uow.session.flush()
    return tags


def changed(present: list[str] | None, add: list[str], remove: list[str] | None) -> list[str]:
    """Return tags after a change. Raises `NetworkTagNotFound`, or `InvalidInput` for too many."""
    present = present or []
    for tag in remove or ():
        if tag not in present:
            raise exceptions.NetworkTagNotFound(tag=tag)
    kept = set() if remove is None else set(present) - set(remove)
    tags = sorted(kept | set(add))
    if len(tags) > MAX_TAGS:
        raise exceptions.InvalidInput(reason=f"a resource has at most {MAX_TAGS} tags")
    return tags
