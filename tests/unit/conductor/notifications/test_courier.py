"""Delivery from the outbox: in order, at least once, with the same id, and never in an operation's way."""

from __future__ import annotations

import dataclasses
import datetime
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import metrics
from nova_lite.base.timing import TIMING
from nova_lite.conductor.notifications import courier
from nova_lite.conductor.notifications.courier import Courier, RefusedError
from nova_lite.conductor.notifications.service import Notifications
from nova_lite.db.core import models, outbox
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.outbox import Waiting
from nova_lite.objects import ActionReport
from tests.support.conductor_world import World

#: Attempts follow each other at once, and nothing is trimmed after the first look.
FAST = dataclasses.replace(TIMING.conductor, notification_backoff=(0.0,), notification_trim_interval=1e9)


class Consumer:
    """A channel that records what it gets. ``errors``: raised by the next deliveries, in this order."""

    versioned = True

    def __init__(self, name: str = "c", max_attempts: int | None = None) -> None:
        self.name = self.label = name
        self.max_attempts = max_attempts
        self.got: list[Waiting] = []
        self.errors: list[Exception] = []
        self.closed = False

    def send(self, notification: Waiting) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.got.append(notification)

    def close(self) -> None:
        self.closed = True

    @property
    def types(self) -> list[str]:
        return [item.event_type for item in self.got]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def add(world: World, *types: str, channel: str = "c") -> None:
    fields = {"channel": channel, "publisher_id": "p", "priority": "INFO", "context": {}, "payload": {"a": 1}}
    items = [{**fields, "event_type": name, "message_id": f"id-{name}"} for name in types]
    world.db.write(outbox.add, items)


def left(world: World) -> list[str]:
    query = sa.select(models.Notification.event_type).order_by(models.Notification.id)
    return world.db.read(lambda uow: list(uow.session.scalars(query)))


def age(world: World, seconds: float) -> None:
    """Let time pass for all notifications."""
    step = datetime.timedelta(seconds=seconds)

    def shift(uow: UnitOfWork) -> None:
        for row in uow.session.scalars(sa.select(models.Notification)):
            row.due_at -= step
            row.created_at -= step

    world.db.write(shift)


def dropped(channel: str, reason: str) -> float:
    value: float = metrics.NOTIFICATIONS_DROPPED.labels(channel, reason)._value.get()
    return value


def test_courier_delivers_in_order_and_deletes_what_was_delivered(world: World) -> None:
    add(world, "a", "b", "c")
    add(world, "other", channel="d")
    consumer = Consumer()
    assert Courier(world.db, world.conf, consumer, FAST).deliver() == 0.0
    assert consumer.types == ["a", "b", "c"]
    assert left(world) == ["other"]
    assert consumer.got[0].payload == {"a": 1}


def test_courier_with_nothing_to_deliver_waits(world: World) -> None:
    assert Courier(world.db, world.conf, Consumer(), FAST).deliver() == FAST.notification_poll


def test_failed_delivery_is_repeated_before_later_notifications(world: World) -> None:
    add(world, "a", "b")
    consumer = Consumer()
    consumer.errors = [OSError("down"), OSError("still down")]
    sender = Courier(world.db, world.conf, consumer, FAST)
    for _ in range(3):
        sender.deliver()
    assert consumer.types == ["a", "b"]
    assert consumer.got[0].attempts == 2
    assert left(world) == []


def test_failed_delivery_waits_longer_each_time(world: World) -> None:
    add(world, "a")
    consumer = Consumer()
    consumer.errors = [OSError("down")] * 9
    timing = dataclasses.replace(TIMING.conductor, notification_backoff=(1.0, 3.0), notification_poll=99.0)
    sender = Courier(world.db, world.conf, consumer, timing)
    waits = []
    for _ in range(3):
        waits.append(sender.deliver())
        assert 0 < sender.deliver() <= waits[-1], "it is not due yet"
        age(world, waits[-1])
    assert waits == [1.0, 3.0, 3.0]
    assert len(consumer.errors) == 6


def test_conductor_that_dies_after_the_delivery_has_it_repeated_with_the_same_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification is delivered twice, and never lost."""
    add(world, "a", "b")
    dying, consumer = Consumer(), Consumer()
    with monkeypatch.context() as patch:

        def killed(*arguments: Any) -> None:
            raise SystemExit

        patch.setattr(outbox, "settle_notifications", killed)
        with pytest.raises(SystemExit):
            Courier(world.db, world.conf, dying, FAST).deliver()
    other = Courier(world.db, world.conf, consumer, FAST)
    assert other.deliver() == FAST.notification_poll, "the lease of the dead conductor holds"
    age(world, other.lease_seconds)
    other.deliver()
    assert dying.types == consumer.types == ["a", "b"]
    assert [item.message_id for item in dying.got] == [item.message_id for item in consumer.got]
    assert left(world) == []


def test_two_conductors_do_not_deliver_the_same_notifications(world: World) -> None:
    add(world, "a", "b")
    second = Courier(world.db, world.conf, Consumer(), FAST)

    class First(Consumer):
        def send(self, notification: Waiting) -> None:
            assert second.deliver() > 0
            super().send(notification)

    consumer = First()
    Courier(world.db, world.conf, consumer, FAST).deliver()
    assert consumer.types == ["a", "b"]
    assert second.channel.got == []  # type: ignore[attr-defined]


def test_lease_that_another_conductor_takes_at_the_same_time_is_given_up(world: World) -> None:
    add(world, "a", "b")

    def race(uow: UnitOfWork) -> None:
        original = uow.change

        def change(statement: Any, values: Any = None) -> int:
            return original(statement, values) - 1

        uow.change = change  # type: ignore[method-assign]
        outbox.lease_notifications(uow, "c", "me", 10, 60)

    with pytest.raises(outbox.LeaseTakenError):
        world.db.write(race)
    assert world.db.read(outbox.seconds_until_due, "c") == 0.0, "nothing is leased"


def test_notification_that_its_consumer_refuses_is_dropped_at_once(world: World) -> None:
    add(world, "a", "b")
    consumer = Consumer("refusing")
    add(world, "bad", "good", channel="refusing")
    consumer.errors = [RefusedError("status 400")]
    before = dropped("refusing", "refused")
    Courier(world.db, world.conf, consumer, FAST).deliver()
    assert consumer.types == ["good"]
    assert dropped("refusing", "refused") == before + 1
    assert left(world) == ["a", "b"]


def test_notification_is_dropped_after_its_last_attempt(world: World) -> None:
    add(world, "bad", "good", channel="failing")
    consumer = Consumer("failing", max_attempts=3)
    consumer.errors = [OSError("down")] * 3
    before = dropped("failing", "attempts")
    sender = Courier(world.db, world.conf, consumer, FAST)
    for _ in range(3):
        sender.deliver()
    assert consumer.types == ["good"]
    assert dropped("failing", "attempts") == before + 1


def test_oldest_notifications_beyond_the_limit_are_dropped(world: World) -> None:
    add(world, "a", "b", "c", channel="full")
    add(world, "other", channel="d")
    consumer = Consumer("full")
    before = dropped("full", "number")
    world.conf.set_override("max_waiting", 2, "notifications")
    Courier(world.db, world.conf, consumer, FAST).deliver()
    assert consumer.types == ["b", "c"]
    assert dropped("full", "number") == before + 1
    assert left(world) == ["other"]


def test_old_notifications_of_any_channel_are_dropped(world: World) -> None:
    add(world, "old", channel="gone")
    age(world, int(FAST.notification_age) + 1)
    add(world, "new")
    before = dropped("all", "age")
    Notifications(world.db, world.conf, FAST, []).drop_old()
    assert left(world) == ["new"]
    assert dropped("all", "age") == before + 1


def test_waiting_notifications_are_a_metric(world: World) -> None:
    add(world, "a", "b")
    channels = [Consumer(), Consumer("empty")]
    found = list(Notifications(world.db, world.conf, FAST, channels).samples())
    name = metrics.NOTIFICATIONS_WAITING
    assert found == [metrics.sample(name, 2, "c"), metrics.sample(name, 0, "empty")]


def test_slow_consumer_delays_neither_operations_nor_other_channels(world: World) -> None:
    """The slow one blocks until the operation has ended, and each other channel has been notified."""
    may_end, begun, notified = threading.Event(), threading.Event(), threading.Event()

    class Slow(Consumer):
        def send(self, notification: Waiting) -> None:
            begun.set()
            assert may_end.wait(30)
            super().send(notification)

    class Quick(Consumer):
        def send(self, notification: Waiting) -> None:
            super().send(notification)
            if notification.event_type == "instance.pause.end":
                notified.set()

    slow, quick = Slow("slow"), Quick("quick")
    uuid, host, _ = world.built()
    notifications = Notifications(world.db, world.conf, FAST, [slow, quick])
    notifications.start()
    notifications.start()
    try:
        command = world.lifecycle.accept_action(world.context(), uuid, "pause", {})
        assert begun.wait(30)
        world.reports.finish_action(
            world.context(),
            ActionReport(host=host, action_id=command.action_id, power_state=3, sequence=command.sequence),
        )
        assert world.instance(uuid).vm_state == "paused"
        assert notified.wait(30)
        assert slow.got == []
    finally:
        may_end.set()
        notifications.close()
    assert quick.types == ["instance.pause.start", "instance.pause.end"]
    assert quick.closed and slow.closed


def test_courier_survives_a_database_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()
    failures = iter([OSError("database away")])
    original = outbox.seconds_until_due

    def failing(uow: UnitOfWork, channel: str) -> float | None:
        for error in failures:
            raise error
        return original(uow, channel)

    class Signal(Consumer):
        def send(self, notification: Waiting) -> None:
            sent.set()

    monkeypatch.setattr(courier.outbox, "seconds_until_due", failing)
    add(world, "a")
    timing = dataclasses.replace(FAST, notification_poll=0.01)
    sender = Courier(world.db, world.conf, Signal(), timing)
    sender.start()
    try:
        assert sent.wait(30)
    finally:
        sender.close()
