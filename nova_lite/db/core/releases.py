"""Quota, ports and places that several instances release together: see `nova_lite.db.servers.resource_releases`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator

from nova_lite.db.core.engine import UnitOfWork


@dataclasses.dataclass
class Releases:
    """Collection of a transaction. ``quotas``: amounts by project and resource.

    ``ports``: uuids of instances whose ports are deleted. ``allocations``: uuids of instances without any place from
    now on.
    """

    quotas: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    ports: set[str] = dataclasses.field(default_factory=set)
    allocations: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class _Collection:
    """The open collection of a transaction, if there is one."""

    releases: Releases | None = None


def collecting(uow: UnitOfWork) -> Releases | None:
    """Return what the transaction collects. None: it releases each item at once."""
    return uow.part(_Collection).releases


@contextlib.contextmanager
def collected(uow: UnitOfWork) -> Iterator[Releases]:
    """Collect what the block releases."""
    collection = uow.part(_Collection)
    collection.releases = Releases()
    try:
        yield collection.releases
    finally:
        collection.releases = None
