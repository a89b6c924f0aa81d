"""Flavors."""

from __future__ import annotations

import functools
import uuid
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions, patterns
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, paging, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.objects import Flavor

SORT_KEYS = {
    name: getattr(models.Flavor, name)
    for name in (
        "created_at", "description", "disabled", "ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name",
        "root_gb", "rxtx_factor", "swap", "updated_at", "vcpus",
    )
}  # fmt: skip


def to_object(row: models.Flavor) -> Flavor:
    return rows.to_object(Flavor, row, extra_specs=dict(row.extra_specs))


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    is_public: bool | None = None,
    min_ram: int | None = None,
    min_disk: int | None = None,
    limit: int | None = None,
    marker: str | None = None,
    sort_key: str = "flavorid",
    sort_dir: str = "asc",
    name: str | None = None,
) -> list[Flavor]:
    """Return flavors in pages.

    ``is_public`` True: public flavors and those with access for the context's project; False: private flavors; None:
    all. A caller who is no admin always gets the result of True.
    """
    query = sa.select(models.Flavor)
    if is_public or not context.is_admin:
        query = query.where(_usable(context))
    elif is_public is False:
        query = query.where(models.Flavor.is_public.is_(False))
    if min_ram is not None:
        query = query.where(models.Flavor.memory_mb >= min_ram)
    if min_disk is not None:
        query = query.where(models.Flavor.root_gb >= min_disk)
    if name is not None:
        query = query.where(models.Flavor.name.regexp_match(patterns.checked(name)))
    order = paging.Order(SORT_KEYS, [sort_key], [sort_dir], tie_breaker=models.Flavor.id)
    start = paging.start(marker, lambda flavor_id: _find(uow, context, flavor_id))
    return [to_object(row) for row in uow.session.scalars(order.page(query, start, limit))]


def find(uow: UnitOfWork, context: RequestContext, flavor_id: str) -> Flavor | None:
    """Return a flavor, or None if there is none that the context's project may use."""
    row = _find(uow, context, flavor_id)
    return None if row is None else to_object(row)


def get(uow: UnitOfWork, context: RequestContext, flavor_id: str) -> Flavor:
    return to_object(get_row(uow, context, flavor_id))


def create(uow: UnitOfWork, flavor: Flavor) -> Flavor:
    """Create a flavor; an empty ``flavorid`` becomes a new uuid. Raises `FlavorExists` when id or name are taken."""
    flavorid = flavor.flavorid or str(uuid.uuid4())
    for attr, column, value in (
        ("ID", models.Flavor.flavorid, flavorid),
        ("name", models.Flavor.name, flavor.name),
    ):
        if uow.session.scalars(sa.select(models.Flavor.id).where(column == value)).first() is not None:
            raise exceptions.FlavorExists(attr=attr, value=value)
    new = {"id": None, "flavorid": flavorid, "created_at": uow.now}
    row = models.Flavor(**rows.values_of(flavor, models.Flavor) | new)
    rows.insert(uow, row, exceptions.FlavorExists(attr="name", value=flavor.name))
    return to_object(row)


def update(uow: UnitOfWork, context: RequestContext, flavor_id: str, description: str | None) -> Flavor:
    row = get_row(uow, context, flavor_id, lock=True)
    row.description, row.updated_at = description, uow.now
    return to_object(row)


def delete(uow: UnitOfWork, context: RequestContext, flavor_id: str) -> None:
    """Delete a flavor. Instances keep their snapshot of it."""
    row = get_row(uow, context, flavor_id, lock=True)
    uow.change(sa.delete(models.FlavorAccess).where(models.FlavorAccess.flavor_id == row.id))
    uow.session.delete(row)


def update_extra_specs(
    uow: UnitOfWork, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
) -> dict[str, str]:
    """Add or change these keys and return all of them."""
    row = get_row(uow, context, flavor_id, lock=True)
    row.extra_specs = {**row.extra_specs, **extra_specs}
    row.updated_at = uow.now
    return row.extra_specs


def delete_extra_spec(uow: UnitOfWork, context: RequestContext, flavor_id: str, key: str) -> None:
    row = get_row(uow, context, flavor_id, lock=True)
    if key not in row.extra_specs:
        raise exceptions.FlavorExtraSpecNotFound(flavor_id=flavor_id, key=key)
    row.extra_specs = {name: value for name, value in row.extra_specs.items() if name != key}
    row.updated_at = uow.now


def get_row(uow: UnitOfWork, context: RequestContext, flavor_id: str, lock: bool = False) -> models.Flavor:
    """Return a flavor's row. Raises `FlavorNotFound`, also for a flavor that the context's project may not use, except
    for an admin.
    """
    row = _find(uow, context, flavor_id, lock)
    if row is None:
        raise exceptions.FlavorNotFound(flavor_id=flavor_id)
    return row


def _find(uow: UnitOfWork, context: RequestContext, flavor_id: str, lock: bool = False) -> models.Flavor | None:
    values = {"flavor_id": flavor_id, "asker": context.project_id}
    found = uow.timed(_one(bool(context.is_admin), lock), values)
    return found[0] if found else None


@functools.cache
def _one(of_any: bool, lock: bool) -> sa.Select[models.Flavor]:
    query = sa.select(models.Flavor).where(models.Flavor.flavorid == sa.bindparam("flavor_id"))
    if not of_any:
        query = query.where(_given(sa.bindparam("asker")))
    return query.with_for_update() if lock else query


def _usable(context: RequestContext) -> sa.ColumnElement[bool]:
    """Return the condition "public, or accessible to the context's project"."""
    return _given(context.project_id)


def _given(project_id: Any) -> sa.ColumnElement[bool]:
    given = sa.select(models.FlavorAccess.flavor_id).where(models.FlavorAccess.project_id == project_id)
    return sa.or_(models.Flavor.is_public.is_(True), models.Flavor.id.in_(given))
