"""Results of each host's last comparison of its domains: domains of no server, or newer than their server, and
servers whose disks are missing.

A restore of an older database leaves such domains: they belong to servers that were created or changed since. Hosts
leave them alone. A host without any finding has no row.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Service, UnknownDomains
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import services
from nova_lite.objects import ReportNumber

#: Uuids of a kind that are stored for each host. Beyond them, domains are only counted.
MAX_UUIDS = 100


def record(
    uow: UnitOfWork,
    host: str,
    uuids: Collection[str],
    without_disks: Collection[str],
    newer: Collection[tuple[str, int, int]],
    number: ReportNumber | None,
) -> None:
    """Record what a comparison of a host has found: unknown domains, servers without disks, and domains that are newer
    than their servers. Write only changes.

    Ignores a comparison that is late or replayed. ``number``: of the comparison, if it has one. ``newer``:
    uuid, generation and power state.
    """
    found, missing = sorted(uuids), sorted(without_disks)[:MAX_UUIDS]
    first = sorted(map(list, newer))[:MAX_UUIDS]
    table = UnknownDomains
    columns = (table.uuids, table.total, table.without_disks, table.newer)
    known = uow.rows(sa.select(*columns).where(table.host == host)).first()
    if tuple(known or ([], 0, None, None)) == (found[:MAX_UUIDS], len(found), missing or None, first or None):
        return
    service = services.locked(uow, host, services.COMPUTE)
    if service is None or _is_late(service, number):
        return
    if not found and not missing and not first:
        uow.change(sa.delete(table).where(table.host == host))
        return
    values = {"uuids": found[:MAX_UUIDS], "total": len(found), "without_disks": missing or None, "newer": first or None}
    insert_if_missing(uow, table, {"host": host, **values})
    uow.change(sa.update(table).where(table.host == host).values(**values))


def _is_late(service: Service, number: ReportNumber | None) -> bool:
    """Check whether a newer heartbeat of the host was accepted, or another start of its daemon has registered.

    A host compares again after its interval while it has unknown domains, or a row here.
    """
    if number is None:
        return False
    return number.boot_id != service.boot_id or number.number <= service.report_count
