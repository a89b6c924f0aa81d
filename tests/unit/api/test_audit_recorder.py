"""Queue of the audit log's events in an API process: batches, retries, a full queue, and floods of failures."""

from __future__ import annotations

import datetime
import threading
import uuid
from typing import Any

import pytest

from nova_lite.api.audit import flood, recorder
from nova_lite.api.audit.flood import FailureLimits
from nova_lite.api.audit.recorder import Recorder
from nova_lite.base import exceptions, metrics
from nova_lite.base.timing import ApiTiming
from nova_lite.objects import AuditEvent
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.fake_clients import fake_client

TIMING = ApiTiming(audit_delay=0.01, audit_retry=0.01, audit_last_attempt=10.0)


def event(**fields: Any) -> AuditEvent:
    given: dict[str, Any] = {"service": "compute", "action": "create", "outcome": "success", "reason_code": 202}
    when = datetime.datetime(2026, 1, 1)
    return AuditEvent(**{"uuid": str(uuid.uuid4()), "event_time": when, **given, **fields})


class Store:
    """A conductor that refuses the first calls, and then stores events."""

    def __init__(self, *errors: Exception) -> None:
        self.client = fake_client(ConductorRPC)
        self.client.script("audit_record", self._take)
        self.errors = list(errors)
        self.batches: list[list[AuditEvent]] = []
        self.stored = threading.Event()

    def _take(self, context: Any, events: list[AuditEvent]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if any(item.action == "broken" for item in events):
            raise ValueError("a row that no database takes")
        self.batches.append(list(events))
        self.stored.set()

    def recorder(self) -> Recorder:
        return Recorder(lambda: self.client, True, TIMING)


def test_recorder_sends_batches_in_order_and_the_rest_at_its_end() -> None:
    store = Store()
    log = store.recorder()
    events = [event() for _ in range(2 * recorder.BATCH + 1)]
    for item in events:
        log.record(item)
    log.start()
    log.stop()
    assert [len(batch) for batch in store.batches] == [recorder.BATCH, recorder.BATCH, 1]
    assert [item for batch in store.batches for item in batch] == events
    assert log.waiting == []


def test_recorder_without_conductor_keeps_events_and_sends_them_again() -> None:
    store = Store(exceptions.MessagingUnavailable(what="x"), exceptions.DatabaseUnavailable())
    log = store.recorder()
    log.record(first := event())
    log.start()
    assert store.stored.wait(30)
    log.stop()
    assert store.batches == [[first]]


def test_recorder_event_that_cannot_be_stored_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    log = store.recorder()
    before = metrics.AUDIT_DROPPED._value.get()
    events = [event(), event(action="broken"), event()]
    for item in events:
        log.record(item)
    log.start()
    log.stop()
    assert store.batches == [[events[0]], [events[2]]]
    assert metrics.AUDIT_DROPPED._value.get() == before + 1
    assert "does not store an event" in caplog.text


def test_recorder_full_queue_is_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "QUEUE_SIZE", 2)
    log = Store().recorder()
    before = metrics.AUDIT_DROPPED._value.get()
    events = [event() for _ in range(5)]
    for item in events:
        log.record(item)
    assert log.waiting == events[:2]
    assert metrics.AUDIT_DROPPED._value.get() == before + 3
    assert caplog.text.count("are lost") == 1
    log.start()
    log.stop()
    assert "3 events were lost" in caplog.text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failure(address: str = "192.0.2.1", **fields: Any) -> AuditEvent:
    return event(**{"address": address, "outcome": "failure", "action": "authenticate", "reason_code": 401, **fields})


def test_failures_flood_from_one_address_becomes_one_summary() -> None:
    clock = Clock()
    limits = FailureLimits(clock)
    admitted = sum(limits.admits(failure(user_id=f"u{number}", path="/x")) for number in range(1000))
    assert admitted == flood.PER_CLIENT
    assert limits.admits(failure("192.0.2.2")), "other addresses are not affected"
    assert limits.take() == []
    clock.now = flood.WINDOW
    (summary,) = limits.take()
    assert (summary.count, summary.address, summary.user_id, summary.path) == (980, "192.0.2.1", "", "")
    assert limits.admits(failure()), "a new window has begun"


def test_failures_flood_from_one_ipv6_network_is_that_of_one_client() -> None:
    limits = FailureLimits(Clock())
    admitted = sum(limits.admits(failure(f"2001:db8::{number:x}")) for number in range(1000))
    (summary,) = limits.take(at_once=True)
    assert (admitted, summary.count, summary.address) == (flood.PER_CLIENT, 980, "2001:db8::/64")


def test_failures_flood_from_many_addresses_has_bounded_events() -> None:
    limits = FailureLimits(Clock())
    admitted = sum(limits.admits(failure(f"2001:db8:{number:x}::1")) for number in range(5000))
    summaries = limits.take(at_once=True)
    assert admitted == flood.PER_PROCESS
    assert len(summaries) == flood.MAX_SUMMARIES + 1
    assert sum(summary.count for summary in summaries) == 5000 - admitted
    assert {summary.address for summary in summaries if summary.action == "unknown"} == {""}


def test_recorder_sends_summaries_at_its_end() -> None:
    store = Store()
    log = store.recorder()
    for _ in range(flood.PER_CLIENT + 3):
        log.record(failure())
    log.start()
    log.stop()
    assert [item.count for batch in store.batches for item in batch] == [1] * flood.PER_CLIENT + [3]
