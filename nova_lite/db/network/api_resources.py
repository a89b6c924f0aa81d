"""Resources of the network API that only the API knows, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import address_groups, address_scopes, port_forwardings, qos, rbac, subnet_pools
from nova_lite.objects import NetworkObject

#: Modules of the kinds of resources, by their plural in the network API.
_KINDS: Mapping[str, Any] = {
    "subnetpools": subnet_pools,
    "address_scopes": address_scopes,
    "address_groups": address_groups,
    "rbac_policies": rbac,
    "policies": qos,
    "port_forwardings": port_forwardings,
}


def list_(uow: UnitOfWork, context: RequestContext, kind: str, ids: list[str] | None = None) -> list[NetworkObject]:
    """Return the resources of a kind that the caller may see, by id. ``ids``: only of these."""
    found: list[NetworkObject] = _module(kind).list_(uow, context, ids)
    return found


def create_object(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, wanted: NetworkObject
) -> NetworkObject:
    """Create a resource under the id that the caller chose: a repeated request returns the same resource."""
    module = _module(str(type(wanted).__struct_config__.tag))
    for known in module.list_(uow, context, [wanted.id]):
        return known  # type: ignore[no-any-return]
    created: NetworkObject = module.create(uow, conf, context, wanted)
    return created


def update_object(
    uow: UnitOfWork, context: RequestContext, kind: str, object_id: str, changes: dict[str, Any]
) -> NetworkObject:
    changed: NetworkObject = _module(kind).update(uow, context, object_id, changes)
    return changed


def delete_object(uow: UnitOfWork, context: RequestContext, kind: str, object_id: str) -> None:
    _module(kind).delete(uow, context, object_id)


def _module(kind: str) -> Any:
    if kind not in _KINDS:
        raise exceptions.InvalidInput(reason=f"there are no resources of the kind {kind[:64]}")
    return _KINDS[kind]
