"""Releases of several instances by the statements of one: their quota, ports and allocations.

Each table is changed once, in the order in which the release of a single instance changes them, and its rows in the
order of their keys. So transactions do not wait for each other in a circle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa

from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Port
from nova_lite.db.core.releases import collected
from nova_lite.db.servers import claims


@contextlib.contextmanager
def together(uow: UnitOfWork) -> Iterator[None]:
    """Collect what the block releases, and release it at its end."""
    with collected(uow) as releases:
        yield
    for project_id in sorted(releases.quotas):
        quotas.give_back(uow, project_id, dict(releases.quotas[project_id]))
    if releases.ports:
        uow.change(sa.delete(Port).where(Port.instance_uuid.in_(sorted(releases.ports))))
    if releases.allocations:
        claims.release_all(uow, sorted(releases.allocations))
