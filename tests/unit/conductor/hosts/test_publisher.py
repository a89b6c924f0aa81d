"""Host publisher: committed changes reach the schedulers in batches, and few callers wait for that."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.hosts.publisher import HostPublisher
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.events import HostChanged
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import claims, instances
from nova_lite.objects import HostState, Selection
from tests.support import make

DEADLINE = 30


class Scheduler:
    def __init__(self) -> None:
        self.published: list[list[str]] = []
        self.failure: Exception | None = None
        self.released = threading.Event()
        self.released.set()
        self.changed = threading.Condition()

    def update_host_states(self, context: Any, states: list[HostState]) -> None:
        with self.changed:
            self.published.append(sorted(state.host for state in states))
            self.changed.notify_all()
        assert self.released.wait(DEADLINE)
        if self.failure is not None:
            raise self.failure

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.published) >= count, DEADLINE), self.published


@pytest.fixture
def nodes(db: Database, conf: cfg.ConfigOpts) -> dict[str, HostState]:
    for host in ("h1", "h2", "h3"):
        db.write(hosts.register_host, conf, make.report(host=host))
    return {state.host: state for state in db.read(hosts.states)}


def test_publisher_before_start_publishes_immediately(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    HostPublisher(db, scheduler).add({nodes["h1"].id}, {})  # type: ignore[arg-type]
    assert scheduler.published == [["h1"]]


def test_publisher_changes_during_a_publication_share_the_next_one(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    host_publisher.start()
    scheduler.released.clear()
    host_publisher.add({nodes["h1"].id}, {})
    scheduler.wait_for(1)
    for _ in range(5):
        host_publisher.add({nodes["h1"].id, nodes["h2"].id}, {})
    host_publisher.add({nodes["h3"].id}, {nodes["h3"].id: nodes["h3"]})  # its last state, as its row is gone
    scheduler.released.set()
    scheduler.wait_for(2)
    host_publisher.stop()
    assert scheduler.published == [["h1"], ["h1", "h2", "h3"]]


def test_publisher_change_at_once_is_published_on_return(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler, timing = Scheduler(), ConductorTiming(publish_interval=2 * DEADLINE)
    host_publisher = HostPublisher(db, scheduler, timing)  # type: ignore[arg-type]
    host_publisher.start()
    host_publisher.add({nodes["h2"].id}, {})
    assert scheduler.published == []
    host_publisher.add({nodes["h3"].id}, {}, at_once=True)
    assert scheduler.published == [["h2", "h3"]]
    host_publisher.stop()


@pytest.mark.parametrize("changes", [{"disabled": True}, {"forced_down": True}])
def test_disabled_host_is_published_at_once(db: Database, nodes: dict[str, HostState], changes: dict[str, Any]) -> None:
    flags: list[bool] = []
    db.subscribe(lambda uow: flags.extend(event.at_once for event in uow.published(HostChanged)), HostChanged)
    (service,) = db.read(services.list_, "h1")
    db.write(services.update, service.uuid, changes)
    assert flags == [True]


def test_publisher_goes_on_after_a_failure(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler, ConductorTiming(publish_interval=0.0))  # type: ignore[arg-type]
    host_publisher.start()
    for number, failure in enumerate((exceptions.MessagingUnavailable(what="it"), ValueError("no"), None)):
        scheduler.failure = failure
        host_publisher.add({nodes["h1"].id}, {})
        scheduler.wait_for(number + 1)
    host_publisher.stop()


def test_publisher_freed_capacity_is_published_with_the_next_change(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    host_publisher.start()
    host_publisher.add_freed({nodes["h1"].id})
    host_publisher.add_freed({nodes["h2"].id})
    assert scheduler.published == []
    host_publisher.add({nodes["h3"].id}, {})
    scheduler.wait_for(1)
    host_publisher.stop()
    assert scheduler.published == [["h1", "h2", "h3"]]


def test_publisher_changes_within_the_interval_share_a_publication(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler, ConductorTiming(publish_interval=1.0))  # type: ignore[arg-type]
    host_publisher.start()
    host_publisher.add({nodes["h1"].id}, {})
    assert scheduler.published == [], "the build that has changed the host continues first"
    host_publisher.add({nodes["h2"].id}, {})
    scheduler.wait_for(1)
    host_publisher.stop()
    assert scheduler.published == [["h1", "h2"]]


def test_publisher_freed_capacity_is_published_after_its_delay(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler, ConductorTiming(publish_freed_delay=0.01))  # type: ignore[arg-type]
    host_publisher.start()
    host_publisher.add_freed({nodes["h1"].id})
    scheduler.wait_for(1)
    host_publisher.stop()


def test_publisher_stop_publishes_freed_capacity(db: Database, nodes: dict[str, HostState]) -> None:
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    host_publisher.start()
    host_publisher.add_freed({nodes["h1"].id})
    host_publisher.stop()
    assert scheduler.published == [["h1"]]


def test_publisher_before_refusal_publishes_what_another_conductor_has_freed(
    db: Database, nodes: dict[str, HostState]
) -> None:
    """The other conductor may have died. Capacity that is already published is not published again."""
    scheduler = Scheduler()
    host_publisher = HostPublisher(db, scheduler)  # type: ignore[arg-type]
    host_publisher.start()
    known = host_publisher.publish_before_refusal()
    assert scheduler.published == []
    db.write(free, "h2")
    assert host_publisher.publish_before_refusal() == known + 2  # a claim, and its release
    host_publisher.publish_before_refusal()
    assert scheduler.published == [["h2"]]
    db.write(free, "h2")
    scheduler.failure = exceptions.MessagingUnavailable(what="it")
    host_publisher.publish_before_refusal()
    scheduler.failure = None
    host_publisher.publish_before_refusal()
    host_publisher.stop()
    assert scheduler.published == [["h2"]] * 3


def test_publisher_before_refusal_says_that_the_database_is_away(
    db: Database, nodes: dict[str, HostState], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise sa.exc.OperationalError("SELECT", {}, Exception(2013, "Lost connection"), connection_invalidated=True)

    monkeypatch.setattr(db, "read", broken)
    with pytest.raises(exceptions.DatabaseUnavailable):
        HostPublisher(db, Scheduler()).publish_before_refusal()  # type: ignore[arg-type]


def free(uow: UnitOfWork, host: str) -> None:
    """Free the place of a server on this host."""
    uuid = make.instance(uow, host=host, node="n1")
    row = instances.lock(uow, uuid)
    assert row is not None and claims.claim(uow, row, Selection(host=host, node="n1"))
    claims.release(uow, uuid)
