"""Dumps of servers' rows at the end of each transaction, against which reads of the past are checked."""

from __future__ import annotations

import datetime
import itertools
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.cmd.manage.past import states_then
from nova_lite.db.core import server_changes
from nova_lite.db.core.engine import Database, UnitOfWork, utcnow
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import past
from nova_lite.objects import HostState

_COLUMNS = sorted(server_changes.RECORDED)
_ROWS = sa.select(*(getattr(Instance, name) for name in _COLUMNS))
_MOMENT = datetime.timedelta(milliseconds=1)


class Dump(NamedTuple):
    """A server's row. A transaction that began at ``begin`` has written it, and was about to end at ``end``."""

    begin: datetime.datetime
    end: datetime.datetime
    values: dict[str, Any]


class Witness:
    """Dumps the servers and hosts of a database whose changes of servers are recorded."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.dumps: dict[str, list[Dump]] = {}
        self._hosts: list[Dump] = []
        db.subscribe(self._dump, always=True)

    def _dump(self, uow: UnitOfWork) -> None:
        begin, end = uow.now, uow.rows(sa.select(utcnow())).scalar_one()
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in uow.rows(_ROWS)]

        hosts_now = {"hosts": _use_of(hosts.states(uow))}

        def committed() -> None:
            self._hosts.append(Dump(begin, end, hosts_now))
            for row in rows:
                dumps = self.dumps.setdefault(row["uuid"], [])
                if not dumps or dumps[-1].values != row:
                    dumps.append(Dump(begin, end, row))

        uow.after_commit(committed)

    def check(self) -> int:
        """Compare each server's past with its dumps, just after each and just before the next. Return how often."""
        return self._db.read(self._check)

    def _check(self, uow: UnitOfWork) -> int:
        checked = 0
        first = datetime.datetime.min
        changes = past.changes(uow, self.dumps, first)
        for row in uow.session.scalars(sa.select(Instance)).all():
            dumps = self.dumps[row.uuid]
            ends = [*(dump.begin - _MOMENT for dump in dumps[1:]), dumps[-1].end]
            for dump, until in zip(dumps, ends, strict=True):
                for time in (dump.end, until) if dump.end <= until else ():
                    then = past.then(row, [change for change in changes[row.uuid] if change.at > time])
                    assert past.is_known(then, time), f"{row.uuid} at {time}"
                    found = {name: getattr(then, name) for name in _COLUMNS}
                    assert found == dump.values, f"{row.uuid} at {time}"
                    checked += 1
        for dump, following in itertools.pairwise(self._hosts):
            if dump.end < following.begin:
                states, uncertain = states_then(uow, dump.end)
                assert uncertain or _use_of(states) == dump.values["hosts"], f"hosts at {dump.end}"
        return checked


def _use_of(states: list[HostState]) -> dict[str, tuple[Any, ...]]:
    """Return what servers use of each host."""
    return {
        state.host: (state.vcpus_used, state.memory_mb_used, state.disk_gb_used, sorted(state.instances))
        for state in states
    }
