"""Domains of hosts that are of no server, and servers whose disks are missing, as of each host's last comparison.

A restore of an older database leaves such domains: they belong to servers that were created since. Hosts leave them
alone. A host with neither has no row.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from nova_lite.db import services
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Service, UnknownDomains
from nova_lite.db.statements import insert_if_missing
from nova_lite.objects import ReportNumber

#: Uuids of a kind that are stored for each host. Beyond them, domains are only counted.
MAX_UUIDS = 100


def record(
    uow: UnitOfWork, host: str, uuids: Collection[str], without_disks: Collection[str], number: ReportNumber | None
) -> None:
    """Record what a comparison of a host has found: unknown domains, and servers without disks. Write only changes.

    Ignores a comparison that is late or replayed. ``number``: of the comparison; None from older hosts.
    """
    found, missing = sorted(uuids), sorted(without_disks)[:MAX_UUIDS]
    columns = (UnknownDomains.uuids, UnknownDomains.total, UnknownDomains.without_disks)
    known = uow.rows(sa.select(*columns).where(UnknownDomains.host == host)).first()
    if tuple(known or ([], 0, None)) == (found[:MAX_UUIDS], len(found), missing or None):
        return
    service = services.locked(uow, host, services.COMPUTE)
    if service is None or _is_late(service, number):
        return
    if not found and not missing:
        uow.change(sa.delete(UnknownDomains).where(UnknownDomains.host == host))
        return
    values = {"uuids": found[:MAX_UUIDS], "total": len(found), "without_disks": missing or None}
    insert_if_missing(uow, UnknownDomains, {"host": host, **values})
    uow.change(sa.update(UnknownDomains).where(UnknownDomains.host == host).values(**values))


def _is_late(service: Service, number: ReportNumber | None) -> bool:
    """Check whether a newer heartbeat of the host was accepted, or another start of its daemon has registered.

    A host compares again after its interval while it has unknown domains, or a row here.
    """
    if number is None:
        return False
    return number.boot_id != service.boot_id or number.number <= service.report_count
