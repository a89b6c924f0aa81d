"""Versions of the members of projects' security groups.

The transaction that changes members raises the version of their project. So a conductor that remembers the members of a
version reads one row, and no member, while nothing changes.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged, InterfacesChanged
from nova_lite.db.core.models import Instance, MemberVersion
from nova_lite.objects.security_group import LARGE

#: Addresses of a project's members, sorted, by name of their group and by network. Names of its guests are a group.
Members = Mapping[str, Mapping[str, list[str]]]

#: Projects whose members are remembered. They need about 7 MB for each 100,000.
MAX_PROJECTS = 16
#: Seconds for which members are remembered at most.
MAX_AGE = 60.0

_ORDER = sa.select(Instance.project_id, sa.literal(1)).distinct().order_by(Instance.project_id)
_OF_INSTANCES = _ORDER.where(Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))
_COLUMNS = [MemberVersion.project_id, MemberVersion.version]
_VERSIONS = sa.select(*_COLUMNS).where(MemberVersion.project_id.in_(sa.bindparam("projects", expanding=True)))


def raise_versions(uow: UnitOfWork) -> None:
    """Raise the versions of the projects whose rules or members the transaction changes.

    Nothing is locked after these rows, and they are locked by name: so no transaction waits for another in a circle.
    """
    connection = uow.connection
    if uuids := {event.instance_uuid for event in uow.published(InterfacesChanged)}:
        uow.change(_raising(connection.dialect.name, _OF_INSTANCES), {"uuids": sorted(uuids)})
    if projects := {event.project_id for event in uow.published(FiltersChanged)}:
        values = [{"project_id": project_id, "version": 1} for project_id in sorted(projects)]
        connection.execute(_raising(connection.dialect.name), values)


@functools.cache
def _raising(dialect: str, selected: sa.Select[str, int] | None = None) -> Any:
    """Return the statement that inserts rows or raises their versions."""
    made: Any = {"postgresql": postgresql, "sqlite": sqlite}.get(dialect, mysql).insert(MemberVersion)
    if selected is not None:
        made = made.from_select(["project_id", "version"], selected)
    version = MemberVersion.version + 1
    if dialect in ("postgresql", "sqlite"):
        return made.on_conflict_do_update(index_elements=[MemberVersion.project_id], set_={"version": version})
    return made.on_duplicate_key_update(version=version)


def read(uow: UnitOfWork, projects: Collection[str]) -> dict[str, int]:
    """Return the versions of these projects. A project without one never had a change.

    Call it before the read of the members. Then these may be newer than the version, and never older.
    """
    found = uow.rows(_VERSIONS, {"projects": projects})
    return {row.project_id: row.version for row in found}


def through(
    uow: UnitOfWork,
    projects: Collection[str],
    cache: MemberCache | None,
    read_members: Callable[..., dict[str, Members]],
) -> dict[str, Members]:
    """Return what ``read_members`` reads of these projects. What ``cache`` knows is not read."""
    if cache is None or not projects:
        return read_members(uow, projects) if projects else {}
    versions = uow.once(("member versions", frozenset(projects)), lambda: read(uow, projects))
    found = cache.get(versions)
    if missing := set(projects) - found.keys():
        new = read_members(uow, missing)
        cache.put(versions, new)
        found |= new
    return found


class _Known(NamedTuple):
    version: int
    read_at: float
    members: Members


class MemberCache:
    """Members of large projects, as they were at a version. No caller changes a returned list."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, versions: Mapping[str, int]) -> dict[str, Members]:
        """Return the members of those projects that still have this version."""
        since = time.monotonic() - MAX_AGE
        with self._lock:
            known = {project_id: self._known[project_id] for project_id in versions if project_id in self._known}
            for project_id in known:
                self._known.move_to_end(project_id)
        return {
            project_id: item.members
            for project_id, item in known.items()
            if item.version == versions[project_id] and item.read_at > since
        }

    def put(self, versions: Mapping[str, int], read: Mapping[str, Members]) -> None:
        """Remember the members that were read after ``versions``, of large projects."""
        now = time.monotonic()
        with self._lock:
            for project_id, members in read.items():
                self._known.pop(project_id, None)
                if project_id in versions and _count(members) >= LARGE:
                    self._known[project_id] = _Known(versions[project_id], now, members)
            while len(self._known) > MAX_PROJECTS:
                self._known.popitem(last=False)


def _count(members: Members) -> int:
    return sum(len(addresses) for by_network in members.values() for addresses in by_network.values())
