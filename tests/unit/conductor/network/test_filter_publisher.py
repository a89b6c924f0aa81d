"""Filter publisher: hosts are notified of changed rules, and no more often than needed."""

from __future__ import annotations

import threading

import pytest

from nova_lite.base import exceptions
from nova_lite.conductor.network import filter_publisher
from nova_lite.conductor.network.filter_publisher import FilterPublisher
from nova_lite.db.core.engine import Database
from tests.support import make


class Compute:
    def __init__(self) -> None:
        self.notified: list[str] = []
        self.error: Exception | None = None

    def refresh_security_groups(self, context: object, host: str) -> None:
        self.notified.append(host)
        if self.error is not None:
            raise self.error


@pytest.fixture
def compute() -> Compute:
    return Compute()


@pytest.fixture
def publisher(db: Database, compute: Compute) -> FilterPublisher:
    for host in ("h1", "h2"):
        db.write(make.instance, host=host)
    return FilterPublisher(db, compute)  # type: ignore[arg-type]


def publish(publisher: FilterPublisher) -> None:
    for notification in publisher.publish():
        notification.result()


def test_filter_publisher_notifies_each_host_once(publisher: FilterPublisher, compute: Compute) -> None:
    for _ in range(3):
        publisher.add({"p1"}, set())
    publish(publisher)
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2"]
    publisher.add({"p2"}, set())
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2"]


def test_filter_publisher_notifies_few_hosts_of_changed_members(
    publisher: FilterPublisher, db: Database, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_publisher, "MAX_MEMBER_HOSTS", 2)
    for number in range(3, 6):
        db.write(make.instance, host=f"h{number}")
    gone = db.write(make.instance, host="h9")
    for hosts in (["h1", "h2"], ["h3", "h4"], ["h1", "h5"]):  # a host that was notified last comes last
        publisher.add(set(), {gone})
        publish(publisher)
        assert sorted(compute.notified) == hosts
        compute.notified.clear()
    publisher.add({"p1"}, {gone})
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2", "h3", "h4", "h5", "h9"], "a change of rules concerns all at once"
    compute.notified.clear()
    publish(publisher)
    assert compute.notified == [], "nothing is left then"


def test_filter_publisher_skips_a_host_whose_build_command_has_the_change(
    publisher: FilterPublisher, db: Database, compute: Compute
) -> None:
    built = db.write(make.instance, host="h1")
    publisher.add(set(), {built})
    publisher.sent("h1", {built}, publisher.changes)
    publish(publisher)
    assert compute.notified == ["h2"]
    publisher.add(set(), {built})
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2", "h2"], "the next change is in no command"


@pytest.mark.parametrize("when", ["before the rules are sent", "afterwards", "to another instance"])
def test_filter_publisher_notifies_a_host_of_changes_that_its_build_command_lacks(
    publisher: FilterPublisher, db: Database, compute: Compute, when: str
) -> None:
    built, other = (db.write(make.instance, host="h1") for _ in range(2))
    publisher.add(set(), {built})
    changes = publisher.changes
    if when == "before the rules are sent":
        publisher.add(set(), {built})
    publisher.sent("h1", {built}, changes)
    if when != "before the rules are sent":
        publisher.add(set(), {built if when == "afterwards" else other})
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2"]


@pytest.mark.parametrize(
    "error",
    [exceptions.MessagingUnavailable(what="x"), exceptions.ServiceTooOld("old")],
)
def test_filter_publisher_failed_notification_does_not_stop_the_others(
    publisher: FilterPublisher, compute: Compute, error: Exception
) -> None:
    compute.error = error
    publisher.add({"p1"}, set())
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2"]


def test_filter_publisher_failed_lookup_is_repeated(
    publisher: FilterPublisher, db: Database, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(db, "read", lambda *_: 1 / 0)
        publisher.add({"p1"}, set())
        with pytest.raises(ZeroDivisionError):
            publish(publisher)
    publish(publisher)
    assert sorted(compute.notified) == ["h1", "h2"]


def test_filter_publisher_silent_host_does_not_delay_the_others(
    publisher: FilterPublisher, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, notified = threading.Event(), threading.Event()

    def refresh(context: object, host: str) -> None:
        if host == "h1":
            assert released.wait(10)
        else:
            notified.set()

    monkeypatch.setattr(compute, "refresh_security_groups", refresh)
    for _ in range(2):
        publisher.add({"p1"}, set())
        pending = publisher.publish()
        assert notified.wait(10)
        notified.clear()
    released.set()
    for notification in pending:
        notification.result()
