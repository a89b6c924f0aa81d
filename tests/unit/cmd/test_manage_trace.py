"""``nova-lite-manage trace`` and ``top``."""

from __future__ import annotations

import datetime
import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd.manage import top
from nova_lite.cmd.manage.app import App
from nova_lite.db.core import outbox
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceActionEvent, Service, VolumeTask
from nova_lite.db.upkeep import audit_events, request_trace
from nova_lite.objects import AuditEvent
from tests.support import make
from tests.support.manage import Tool, placed, report

REQUEST = "req-11111111-2222-3333-4444-555555555555"
SECOND = datetime.timedelta(seconds=1)


def write(tool: Tool, function: Callable[[UnitOfWork], Any]) -> Any:
    database = tool.database_of()
    try:
        return database.write(function)
    finally:
        database.close()


def audit_event(when: datetime.datetime, request_id: str = REQUEST) -> AuditEvent:
    fields = {
        "service": "compute",
        "action": "delete",
        "outcome": "success",
        "observer": "api1",
        "path": "/v2.1/servers/s",
    }
    return AuditEvent(uuid=str(uuid.uuid4()), event_time=when, request_id=request_id, reason_code=204, **fields)


def move(uow: UnitOfWork, **values: Any) -> str:
    """Write an operation that ran on two hosts, and return the server."""
    server = make.instance(uow)
    start = uow.now - 60 * SECOND
    events = [
        {
            "event": "migrate_source",
            "host": "h1",
            "start_time": start + SECOND,
            "finish_time": start + 3 * SECOND,
            "result": "Success",
        },
        {
            "event": "migrate_destination",
            "host": "h2",
            "start_time": start + 3 * SECOND,
            "result": "Error",
            "details": "no room",
        },
    ]
    stored = json.loads(json.dumps(events, default=lambda time: time.isoformat()))
    fields = {"action": "migrate", "request_id": REQUEST, "start_time": start, "events": stored}
    make.action(uow, server, **(fields | values))
    return str(server)


def test_request_is_followed_from_machine_to_machine(tool: Tool) -> None:
    def fill(uow: UnitOfWork) -> str:
        audit_events.record_events(uow, [audit_event(uow.now - 59.5 * SECOND), audit_event(uow.now, "req-other")])
        server = move(uow, finish_time=uow.now - 50 * SECOND, message="Error")
        move(uow, request_id="req-other")
        return server

    server = write(tool, fill)
    found = tool.json("trace", REQUEST)
    assert [(row["machine"], row["source"], row["event"], row["result"], row["seconds"]) for row in found] == [
        (None, "operation", "migrate", "Error", 10.0),
        ("api1", "compute API", "delete /v2.1/servers/s", "success 204", None),
        ("h1", "step", "migrate_source", "Success", 2.0),
        ("h2", "step", "migrate_destination", "Error: no room", None),
    ]
    assert {row["about"] for row in found if row["source"] == "step"} == {server}
    assert "migrate_destination" in tool("trace", REQUEST)


def test_operation_in_progress_shows_its_step_and_who_goes_on_with_it(tool: Tool) -> None:
    def fill(uow: UnitOfWork) -> None:
        late = uow.now.replace(hour=12, minute=0, second=5)
        move(uow, step="prepare", lease_owner="c1", lease_expires_at=late, attempts=2, events=None, deadline=late)

    write(tool, fill)
    (row,) = tool.json("trace", REQUEST)
    assert row["result"].startswith("at step prepare, by the conductor c1 until 12:00:05, 2 retries, deadline 20")
    assert row["seconds"] is None


def test_events_of_earlier_versions_work_of_volumes_and_notifications_are_shown(tool: Tool) -> None:
    def fill(uow: UnitOfWork) -> None:
        action = make.action(uow, make.instance(uow), request_id=REQUEST, finish_time=uow.now)
        uow.session.add(
            InstanceActionEvent(action_id=action.id, event="spawn", host="h1", start_time=uow.now, result="Success")
        )
        task = {"verb": "create", "volume_id": str(uuid.uuid4()), "lease_expires_at": uow.now, "deadline": uow.now}
        uow.session.add(VolumeTask(request_id=REQUEST, host="h2", **task))
        names = ("channel", "message_id", "event_type", "publisher_id", "priority")
        fields = dict(zip(names, ("bus", str(uuid.uuid4()), "instance.create.end", "p", "INFO"), strict=True))
        outbox.add(uow, [{**fields, "context": {"request_id": REQUEST}, "payload": {}}])
        outbox.add(uow, [{**fields, "context": {"request_id": "req-other"}, "payload": {}}])

    write(tool, fill)
    found = [(row["source"], row["machine"], row["event"]) for row in tool.json("trace", REQUEST)]
    assert sorted(found[1:], key=str) == [
        ("notification", None, "instance.create.end"),
        ("step", "h1", "spawn"),
        ("volume task", "h2", "create"),
    ]


def test_old_events_are_found_from_the_operation_or_from_the_given_time_on(tool: Tool) -> None:
    old = datetime.datetime(2026, 1, 5, 12)
    write(tool, lambda uow: audit_events.record_events(uow, [audit_event(old)]))
    error = tool.fails("trace", REQUEST)
    assert f"Nothing is known of request {REQUEST}." in error and "--since" in error
    assert [row["source"] for row in tool.json("trace", REQUEST, "--since", "2026-01-01")] == ["compute API"]
    write(tool, lambda uow: move(uow, start_time=old - SECOND, finish_time=old, events=None))
    assert [row["source"] for row in tool.json("trace", REQUEST)] == ["operation", "compute API"]


@pytest.mark.parametrize("request_id", ["", "x" * 256, "req\nx"])
def test_text_that_is_no_request_id_is_refused(tool: Tool, request_id: str) -> None:
    tool("trace", request_id, status=2)
    assert "a request id has 1 to 255 printable characters" in tool.error


def test_entries_of_a_request_are_bounded(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_trace, "MOST", 3)
    write(tool, lambda uow: [move(uow, events=None) for _ in range(5)])
    assert len(tool.json("trace", REQUEST)) == 3


# --- top


class Broker:
    """The lengths of queues. A queue without one cannot be read."""

    def __init__(self, **depths: int) -> None:
        self.depths = depths

    def depth(self, queue: str) -> int:
        if queue not in self.depths:
            raise exceptions.MessagingUnavailable(what=queue)
        return self.depths[queue]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker(conductor=3)
    monkeypatch.setattr(App, "transport", made)
    return made


def fill(tool: Tool) -> tuple[str, str]:
    """Make two hosts, one of which is down, an open and an ended operation, and return their servers."""
    report(tool, "h1", "h2")
    opened, ended = placed(tool, "h1"), placed(tool, "h1")

    def change(uow: UnitOfWork) -> None:
        uow.session.query(Service).filter_by(host="h2").update({"up": False})
        past = uow.now - 100 * SECOND
        make.action(uow, opened, action="pause", step="pause", host="h1", start_time=past, deadline=past, attempts=4)
        times = {"start_time": past - 7 * SECOND, "finish_time": past, "deadline": uow.now}
        make.action(uow, ended, action="reboot", host="h1", message="Error", **times)
        make.action(uow, ended, action="old", start_time=uow.now - 9000 * SECOND, finish_time=uow.now - 8000 * SECOND)

    write(tool, change)
    return opened, ended


def test_top_shows_hosts_operations_queues_and_the_slowest(tool: Tool, broker: Broker) -> None:
    opened, ended = fill(tool)
    found = tool.json("top", "--once")
    assert (found["hosts"]["up"], found["hosts"]["down"], found["past_deadline"]) == (1, 1, 1)
    assert found["queues"] == {"conductor": 3, "scheduler": None}
    assert found["operations"] == [{"action": "pause", "step": "pause", "open": 1}]
    assert [(host["name"], host["state"], host["servers"], host["operations"]) for host in found["host_list"]] == [
        ("h2", "down", 0, 0),
        ("h1", "up", 2, 1),
    ]
    slow = [(item["server"], item["action"], round(item["seconds"]), item["result"]) for item in found["slowest"]]
    assert slow == [(opened, "pause", 100, "past its deadline"), (ended, "reboot", 7, "Error")]


def test_top_without_a_terminal_prints_its_page_once(tool: Tool, broker: Broker) -> None:
    fill(tool)
    lines = tool("top").splitlines()
    assert lines[1] == "Hosts: 1 up, 1 down, 0 disabled, 0 forced down"
    assert lines[2].startswith("Operations: 1 open, 1 past their deadline, due since ")
    assert lines[3] == "Queues: conductor 3, scheduler ?"
    assert any(line.startswith("| h2") and "down" in line for line in lines)


def test_top_limits_its_tables(tool: Tool, broker: Broker) -> None:
    fill(tool)
    found = tool.json("top", "--limit", "1")
    assert (len(found["host_list"]), len(found["slowest"])) == (1, 1)


def test_top_on_a_terminal_is_refreshed_until_it_is_interrupted(
    tool: Tool, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tool)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    monkeypatch.setattr(top.time, "sleep", sleep)
    tool("top", "--interval", "7")
    assert pauses == [7, 7, 7]
    assert tool.text.count("\x1b[H\x1b[2J") == 3


def test_top_and_trace_leave_no_event_in_the_audit_log(tool: Tool, broker: Broker) -> None:
    fill(tool)
    tool("top", "--once")
    tool("trace", "req-1")
    assert tool.json("audit-log", "list") == []
