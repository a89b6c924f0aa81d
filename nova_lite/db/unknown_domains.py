"""Domains of hosts that are of no server, as of each host's last comparison.

A restore of an older database leaves them: they belong to servers that were created since. Hosts leave them alone. A
host without any has no row.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from nova_lite.db import services
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Service, UnknownDomains
from nova_lite.db.statements import insert_if_missing
from nova_lite.objects import ReportNumber

#: Uuids that are stored for each host. Beyond them, domains are only counted.
MAX_UUIDS = 100


def record(uow: UnitOfWork, host: str, uuids: Collection[str], number: ReportNumber | None) -> None:
    """Record the unknown domains that a comparison of a host has found. Write only if they have changed.

    Ignores a comparison that is late or replayed. ``number``: of the comparison; None from older hosts.
    """
    found = sorted(uuids)
    query = sa.select(UnknownDomains.uuids, UnknownDomains.total).where(UnknownDomains.host == host)
    known = uow.rows(query).first()
    if list(known or ([], 0)) == [found[:MAX_UUIDS], len(found)]:
        return
    service = services.locked(uow, host, services.COMPUTE)
    if service is None or _is_late(service, number):
        return
    if not found:
        uow.change(sa.delete(UnknownDomains).where(UnknownDomains.host == host))
        return
    values = {"uuids": found[:MAX_UUIDS], "total": len(found)}
    insert_if_missing(uow, UnknownDomains, {"host": host, **values})
    uow.change(sa.update(UnknownDomains).where(UnknownDomains.host == host).values(**values))


def _is_late(service: Service, number: ReportNumber | None) -> bool:
    """Check whether a newer heartbeat of the host was accepted, or another start of its daemon has registered.

    A host compares again after its interval while it has unknown domains, or a row here.
    """
    if number is None:
        return False
    return number.boot_id != service.boot_id or number.number <= service.report_count
