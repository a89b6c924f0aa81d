"""Quality of service of volume types: named specs, and the types that have them. They are kept for clients."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeQosSpecs as Row
from nova_lite.db.volume import volume_types
from nova_lite.objects import VolumeQosSpecs


def list_(uow: UnitOfWork) -> list[VolumeQosSpecs]:
    """Return all specs, newest first."""
    found = uow.session.scalars(sa.select(Row).order_by(Row.created_at.desc(), Row.id))
    types: dict[str, dict[str, str]] = {}
    table = models.VolumeType
    query = sa.select(table.qos_specs_id, table.id, table.name).where(table.qos_specs_id.is_not(None))
    for qos_id, type_id, name in uow.session.execute(query.order_by(table.name)):
        types.setdefault(str(qos_id), {})[type_id] = name
    return [rows.to_object(VolumeQosSpecs, row, types=types.get(row.id, {})) for row in found]


def get(uow: UnitOfWork, qos_id: str) -> VolumeQosSpecs:
    """Return specs with their types. Raises `NotFound`."""
    return _to_object(uow, _row(uow, qos_id))


def create(uow: UnitOfWork, qos: VolumeQosSpecs) -> VolumeQosSpecs:
    """Raise `Conflict` if the name is taken."""
    row = Row(**rows.values_of(qos, Row) | {"created_at": uow.now})
    rows.insert(uow, row, exceptions.Conflict(f"QoS specs {qos.name} already exist."))
    return _to_object(uow, row)


def update(uow: UnitOfWork, qos_id: str, changes: dict[str, Any]) -> VolumeQosSpecs:
    """Change ``consumer`` and ``specs``, which are merged; None removes one."""
    row = _row(uow, qos_id, lock=True)
    row.consumer = changes.get("consumer", row.consumer)
    specs = {**row.specs, **changes.get("specs", {})}
    row.specs = {key: value for key, value in specs.items() if value is not None}
    if len(row.specs) > volume_types.MAX_SPECS:
        raise exceptions.InvalidInput(reason=f"QoS specs have at most {volume_types.MAX_SPECS} keys")
    uow.session.flush()
    return _to_object(uow, row)


def delete(uow: UnitOfWork, qos_id: str, force: bool) -> None:
    """Delete specs. Raises `InvalidInput` while types have them, unless by ``force``."""
    row = _row(uow, qos_id, lock=True)
    if _types(uow, qos_id) and not force:
        raise exceptions.InvalidInput(reason=f"QoS specs {qos_id} are associated with volume types; use force")
    disassociate_all(uow, qos_id)
    uow.session.delete(row)


def associate(uow: UnitOfWork, conf: cfg.ConfigOpts, qos_id: str, type_id: str) -> None:
    """Give a type the specs. Raises `InvalidInput` if the type has others."""
    _row(uow, qos_id)
    row = volume_types.locked(uow, conf, type_id)
    if row.qos_specs_id not in (None, qos_id):
        raise exceptions.InvalidInput(reason=f"volume type {type_id} has other QoS specs: {row.qos_specs_id}")
    row.qos_specs_id = qos_id


def disassociate(uow: UnitOfWork, conf: cfg.ConfigOpts, qos_id: str, type_id: str) -> None:
    _row(uow, qos_id)
    row = volume_types.locked(uow, conf, type_id)
    if row.qos_specs_id == qos_id:
        row.qos_specs_id = None


def disassociate_all(uow: UnitOfWork, qos_id: str) -> None:
    _row(uow, qos_id)
    table = models.VolumeType
    uow.change(sa.update(table).where(table.qos_specs_id == qos_id).values(qos_specs_id=None))


def _types(uow: UnitOfWork, qos_id: str) -> dict[str, str]:
    table = models.VolumeType
    query = sa.select(table.id, table.name).where(table.qos_specs_id == qos_id).order_by(table.name)
    return dict(uow.session.execute(query).all())


def _row(uow: UnitOfWork, qos_id: str, lock: bool = False) -> Row:
    row = uow.session.get(Row, qos_id, with_for_update=lock or None)
    if row is None:
        raise exceptions.NotFound(f"No such QoS specs {qos_id[:64]}.")
    return row


def _to_object(uow: UnitOfWork, row: Row) -> VolumeQosSpecs:
    return rows.to_object(VolumeQosSpecs, row, types=_types(uow, row.id))
