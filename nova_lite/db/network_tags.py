"""Tags of the network API's resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import floating_ips, network_records, ports, routers, security_groups, subnet_pools
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import SecurityGroupRule

#: Number of tags that a resource may have.
MAX_TAGS = 50

#: Functions that return the locked row of a resource that the caller may change, by kind.
_ROWS: Mapping[str, Callable[[UnitOfWork, RequestContext, str], Any]] = {
    "networks": network_records.locked,
    "subnets": network_records.locked_subnet,
    "ports": ports.locked,
    "subnetpools": subnet_pools.locked,
    "routers": routers.locked,
    "floatingips": floating_ips.locked,
    "security_groups": security_groups.locked,
    "security_group_rules": security_groups.locked_rule,
}
_OF_SUBNETS = "subnet_tags"


def change(
    uow: UnitOfWork, context: RequestContext, kind: str, resource_id: str, add: list[str], remove: list[str] | None
) -> list[str]:
    """Remove tags of a resource (None: all), then add tags. Return its tags, in order.

    ``kind``: key of `_ROWS`. Raises the errors of the resource, a 404 for a tag to remove that it does not have, or a
    400 for too many tags.
    """
    row = _ROWS[kind](uow, context, resource_id)
    column = _OF_SUBNETS if kind == "subnets" else "tags"
    present = getattr(row, column) or []
    for tag in remove or ():
        if tag not in present:
            raise exceptions.NetworkTagNotFound(tag=tag)
    kept = set() if remove is None else set(present) - set(remove)
    tags = sorted(kept | set(add))
    if len(tags) > MAX_TAGS:
        raise exceptions.InvalidInput(reason=f"a resource has at most {MAX_TAGS} tags")
    setattr(row, column, tags)
    if isinstance(row, SecurityGroupRule):
        uow.session.flush()
        return tags
    row.updated_at = uow.now
    uow.session.flush()
    return tags
