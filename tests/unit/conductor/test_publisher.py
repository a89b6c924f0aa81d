"""Schedulers hear of what was committed, of several transactions at once, and nobody waits for that."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conductor.hosts import publisher
from nova_lite.conductor.hosts.publisher import HostPublisher
from nova_lite.db import claims, hosts, instances, services
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.objects import HostState, Selection
from tests.support import make

DEADLINE = 30


class Scheduler:
    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.failure: Exception | None = None
        self.may = threading.Event()
        self.may.set()
        self.changed = threading.Condition()

    def update_host_states(self, context: Any, states: list[HostState]) -> None:
        with self.changed:
            self.told.append(sorted(state.host for state in states))
            self.changed.notify_all()
        assert self.may.wait(DEADLINE)
        if self.failure is not None:
            raise self.failure

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, DEADLINE), self.told


@pytest.fixture
def nodes(db: Database, conf: cfg.ConfigOpts) -> dict[str, HostState]:
    for host in ("h1", "h2", "h3"):
        db.write(hosts.register_host, conf, make.report(host=host))
    return {state.host: state for state in db.read(hosts.states)}


def test_before_it_is_started_it_is_told_at_once(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    HostPublisher(db, scheduler).add({nodes["h1"].id}, {})  # type: ignore[arg-type]
    assert scheduler.told == [["h1"]]


def test_what_comes_meanwhile_is_told_together(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    scheduler.may.clear()
    news.add({nodes["h1"].id}, {})
    scheduler.wait_for(1)
    for _ in range(5):
        news.add({nodes["h1"].id, nodes["h2"].id}, {})
    news.add({nodes["h3"].id}, {nodes["h3"].id: nodes["h3"]})  # its last state, as its row is gone
    scheduler.may.set()
    scheduler.wait_for(2)
    news.stop()
    assert scheduler.told == [["h1"], ["h1", "h2", "h3"]]


def test_who_changes_a_host_waits_until_it_is_told(
    db: Database, nodes: dict[str, HostState], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "PAUSE", 2 * DEADLINE)
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.add({nodes["h1"].id}, {})
    scheduler.wait_for(1)
    news.add({nodes["h2"].id}, {})
    assert (scheduler.told, news.count) == ([["h1"]], 1)
    news.add({nodes["h3"].id}, {}, at_once=True)
    assert (scheduler.told, news.count) == ([["h1"], ["h2", "h3"]], 2)
    news.stop()


@pytest.mark.parametrize("changes", [{"disabled": True}, {"forced_down": True}])
def test_a_host_that_is_disabled_is_told_at_once(
    db: Database, nodes: dict[str, HostState], changes: dict[str, Any]
) -> None:
    marked: list[bool] = []
    db.before_commit = lambda uow: marked.append(uow.tell_at_once)
    (service,) = db.read(services.list_, "h1")
    db.write(services.update, service.uuid, changes)
    assert marked == [True]


def test_after_a_failure_it_goes_on(db: Database, nodes: dict[str, HostState], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "PAUSE", 0.0)
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    for number, failure in enumerate((exceptions.MessagingUnavailable(what="it"), ValueError("no"), None)):
        scheduler.failure = failure
        news.add({nodes["h1"].id}, {})
        scheduler.wait_for(number + 1)
    news.stop()


def test_free_places_are_told_with_what_is_told_next(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.add_freed({nodes["h1"].id})
    news.add_freed({nodes["h2"].id})
    assert scheduler.told == []
    news.add({nodes["h3"].id}, {})
    scheduler.wait_for(1)
    news.stop()
    assert scheduler.told == [["h1", "h2", "h3"]]


def test_free_places_are_told_before_a_scheduler_is_asked(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.tell_freed()
    news.add_freed({nodes["h1"].id})
    news.tell_freed()
    news.tell_freed()
    news.stop()
    assert scheduler.told == [["h1"]]


def test_free_places_are_told_after_a_while_in_any_case(
    db: Database, nodes: dict[str, HostState], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "FREED_PAUSE", 0.01)
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.add_freed({nodes["h1"].id})
    scheduler.wait_for(1)
    news.stop()


def test_a_conductor_that_stops_tells_them(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.add_freed({nodes["h1"].id})
    news.stop()
    assert scheduler.told == [["h1"]]


def test_what_another_conductor_has_freed_is_told_before_anybody_is_refused(
    db: Database, nodes: dict[str, HostState]
) -> None:
    """That one may wait for its next announcement, or have died. What is known to be told is not told again."""
    scheduler = Scheduler()
    news = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    news.start()
    news.refused()
    assert scheduler.told == []
    db.write(free, "h2")
    news.refused()
    news.refused()
    assert scheduler.told == [["h2"]]
    db.write(free, "h2")
    scheduler.failure = exceptions.MessagingUnavailable(what="it")
    news.refused()
    scheduler.failure = None
    news.refused()
    news.stop()
    assert scheduler.told == [["h2"]] * 3


def free(uow: UnitOfWork, host: str) -> None:
    """A server that was there goes."""
    uuid = make.instance(uow, host=host, node="n1")
    row = instances.lock(uow, uuid)
    assert row is not None and claims.claim(uow, row, Selection(host=host, node="n1"))
    claims.release(uow, uuid)
