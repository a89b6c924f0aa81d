"""Events of a transaction, as sets."""

from __future__ import annotations

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged, HostChanged, HostRemoved, InterfacesChanged


def projects(uow: UnitOfWork) -> set[str]:
    """Return the projects whose filters have changed."""
    return {event.project_id for event in uow.published(FiltersChanged)}


def instances(uow: UnitOfWork) -> set[str]:
    """Return the uuids of the servers whose interfaces have changed."""
    return {event.instance_uuid for event in uow.published(InterfacesChanged)}


def nodes(uow: UnitOfWork) -> set[int]:
    """Return the ids of the nodes that have changed or are deleted."""
    changed = {event.node_id for event in uow.published(HostChanged)}
    return changed | {event.state.id for event in uow.published(HostRemoved)}
