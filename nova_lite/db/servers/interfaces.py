"""Interfaces as servers show them: read from ports and networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core import models, rows
from nova_lite.objects import VIF, Network, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.objects.pci import VIF_TYPES

_PORT = rows.shared_fields(VIF, models.Port)
_NETWORK = rows.shared_fields(Network, models.Network)


def by_primary(query: sa.Select[Any], row: Any) -> sa.Select[Any]:
    """Let MariaDB find further addresses by their port. It would read all rows, as it takes all their NULLs for one
    frequent value.
    """
    for dialect in ("mysql", "mariadb"):
        query = query.with_hint(row, "FORCE INDEX (ix_ports_primary_id)", dialect)
    return query


_FURTHER = orm.aliased(models.Port)
_ADDRESSES = sa.func.aggregate_strings(sa.func.coalesce(_FURTHER.address, _FURTHER.address6), " ")
#: Further addresses of a port in one text, None without any.
FURTHER: sa.ScalarSelect[str | None] = by_primary(
    sa.select(_ADDRESSES).where(_FURTHER.primary_id == models.Port.id), _FURTHER
).scalar_subquery()

#: Columns that `to_vif` reads.
VIF_COLUMNS = (
    *(getattr(models.Port, name) for name in _PORT),
    *(getattr(models.Network, name) for name in _NETWORK),
    models.Port.address6,
    FURTHER,
    sa.select(models.FloatingIp.address).where(models.FloatingIp.port_id == models.Port.id).scalar_subquery(),
)


def to_vif(values: Sequence[Any]) -> VIF:
    """Build an interface from the values of `VIF_COLUMNS`."""
    port = dict(zip(_PORT, values, strict=False))
    network = Network(**dict(zip(_NETWORK, values[len(_PORT) : -3], strict=True)))
    return VIF(
        **port,
        vif_type=VIF_TYPES.get(port["vnic_type"]),
        unguarded=not port["port_security_enabled"],
        network=network,
        floating_address=values[-1],
        version=version_of(port["address"]),
        more=ipv6.further_addresses(network, values[-3], (values[-2] or "").split()),
    )
