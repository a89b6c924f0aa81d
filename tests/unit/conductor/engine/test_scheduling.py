"""Request specs: the scheduler's view of an instance."""

from __future__ import annotations

from typing import Any

from nova_lite.conductor.engine import placement_request
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import instances
from tests.support import make


def hints_of(db: Database, hints: dict[str, Any]) -> dict[str, Any]:
    def request_hints(uow: UnitOfWork) -> dict[str, Any]:
        uuid = make.instance(uow, scheduler_hints=hints)
        row = instances.lock(uow, uuid)
        assert row is not None
        return placement_request.request_spec(uow, row, []).scheduler_hints

    return db.write(request_hints)


def test_hints_name_servers_of_the_own_project_only(db: Database) -> None:
    """Otherwise the chosen host would show where a server of another project is."""
    mine, theirs = db.write(make.instance), db.write(make.instance, project_id="p2")
    nowhere = [placement_request.NOWHERE]
    assert hints_of(db, {"same_host": theirs, "query": "[]"}) == {"same_host": nowhere, "query": "[]"}
    assert hints_of(db, {"same_host": [theirs, mine]}) == {"same_host": [mine]}
    assert hints_of(db, {"different_host": [theirs, mine], "same_host": mine}) == {
        "different_host": [mine],
        "same_host": [mine],
    }
    assert hints_of(db, {"different_host": theirs}) == {"different_host": nowhere}
    assert hints_of(db, {}) == {}
