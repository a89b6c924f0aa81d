"""Transactions that overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nova_lite.db.core.engine import Database, UnitOfWork

#: Seconds for which the first transaction stays open when the second one waits for it, as it has to.
HELD = 1.0


def overlap(db: Database, first: Callable[[UnitOfWork], Any], second: Callable[[UnitOfWork], Any]) -> Any:
    """Return the result of ``second``, which begins when ``first`` has written but not committed."""
    written, done = threading.Event(), threading.Event()

    def hold(uow: UnitOfWork) -> None:
        first(uow)
        uow.session.flush()
        written.set()
        done.wait(HELD)

    def follow() -> Any:
        assert written.wait(30)
        try:
            return db.write(second)
        finally:
            done.set()

    with ThreadPoolExecutor(2) as pool:
        held, followed = pool.submit(db.write, hold), pool.submit(follow)
        held.result(60)
        return followed.result(60)
