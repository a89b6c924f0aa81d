"""Reads what aggregates set for their hosts: zone, ratios and reservations. `aggregates` changes them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Aggregate, AggregateHost
from nova_lite.hardware.baseline import CPU_BASELINE, is_definition
from nova_lite.objects import HostAggregate

ZONE = "availability_zone"

#: Keys that replace the ratios and reservations of an aggregate's hosts.
NUMBERS = (
    "cpu_allocation_ratio",
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "reserved_host_cpus",
    "reserved_host_memory_mb",
    "reserved_host_disk_gb",
)

#: Keys that filters of the scheduler read. Several numbers are separated by commas, and the smallest one counts.
WHOLE_NUMBERS = ("max_instances_per_host", "max_io_ops_per_host")

#: End of the keys that weighers of the scheduler read. A plug-in's weigher has such a key, too.
MULTIPLIER = "_weight_multiplier"

#: Columns that `made_of` reads.
COLUMNS = (Aggregate.id, Aggregate.name, Aggregate.metadata_)


_ALL = (
    sa.select(AggregateHost.host, *COLUMNS)
    .join(Aggregate, Aggregate.id == AggregateHost.aggregate_id)
    .order_by(Aggregate.id)
)
_OF_HOSTS = _ALL.where(AggregateHost.host.in_(sa.bindparam("hosts", expanding=True)))


def of_hosts(uow: UnitOfWork, hosts: Collection[str] | None = None) -> dict[str, list[HostAggregate]]:
    """Return, by host name, its aggregates in the order of their ids: of these hosts, or of all."""
    those = uow.rows(_ALL) if hosts is None else uow.rows(_OF_HOSTS, {"hosts": hosts})
    found: dict[str, list[HostAggregate]] = {}
    for host, *values in those:
        found.setdefault(host, []).extend(made_of([values]))
    return found


def made_of(rows: Iterable[Sequence[Any]]) -> list[HostAggregate]:
    """Build aggregates from values of `COLUMNS`. Nulls of an outer join build none."""
    return [HostAggregate(id=row[0], name=row[1], metadata=row[2]) for row in rows if row[0] is not None]


def cpu_baseline(uow: UnitOfWork, host: str) -> str:
    """Return the CPU baseline that the first of the host's aggregates sets; "" if none does."""
    aggregates = of_hosts(uow, [host]).get(host, [])
    return next((text for item in aggregates if (text := item.metadata.get(CPU_BASELINE))), "")


def zone(aggregates: Sequence[HostAggregate]) -> str | None:
    """Return the zone that a host's aggregates make; None if they make none."""
    return next((aggregate.metadata[ZONE] for aggregate in aggregates if aggregate.metadata.get(ZONE)), None)


def least(aggregates: Sequence[HostAggregate], key: str, default: float) -> float:
    """Return the smallest number >= 0 that the aggregates set for ``key``, else ``default``. Other values are
    ignored.
    """
    numbers = (_number(aggregate.metadata.get(key)) for aggregate in aggregates)
    return min((number for number in numbers if number is not None), default=default)


def check_numbers(changes: Mapping[str, str | None]) -> None:
    """Raise `InvalidInput` for a ratio, reservation, limit, multiplier or CPU baseline that would be ignored."""
    for key, value in changes.items():
        expected = None if value is None else _expected(key, value)
        if expected is not None:
            raise exceptions.InvalidInput(reason=f"{key}={value} is wrong: the value is {expected}")


def _expected(key: str, value: str) -> str | None:
    """Return what the value of the key has to be; None if it is that, or may be anything."""
    if key in NUMBERS and _number(value) is None:
        return "a number of 0 or more"
    if key in WHOLE_NUMBERS and not all(part.strip().isascii() and part.strip().isdigit() for part in value.split(",")):
        return "a whole number of 0 or more"
    if key == CPU_BASELINE and not is_definition(value):
        return "a CPU model, and features to add and to remove, such as Skylake-Server +pku -hle"
    if key.endswith(MULTIPLIER) and _finite(value) is None:
        return "a number"
    return None


def _number(text: str | None) -> float | None:
    number = _finite(text)
    return number if number is not None and number >= 0 else None


def _finite(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
