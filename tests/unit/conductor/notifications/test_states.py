"""``instance.update`` and ``instance.exists``, held against Nova's documented samples."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base.timing import TIMING
from nova_lite.conductor.notifications import recorder
from nova_lite.conductor.notifications.periods import current_period, last_period
from nova_lite.conductor.notifications.service import Notifications
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from tests.support import make
from tests.support.server_moves import SHUTDOWN, Live
from tests.unit.conductor.notifications.bodies import checked, data, rows
from tests.unit.conductor.notifications.sinks import CHANNELS


def make_world(path: Path, **options: Any) -> tuple[Live, Notifications]:
    world = Live(path)
    world.conf.set_override("host", "conductor1")
    for name, value in options.items():
        world.conf.set_override(name, value, group="notifications")
    notifications = Notifications(world.db, world.conf, TIMING.conductor, CHANNELS)
    return world, notifications


def updates(world: Live, channel: str = "versioned") -> list[models.Notification]:
    return [row for row in rows(world.db, channel) if row.event_type.endswith("instance.update")]


def states(row: models.Notification) -> tuple[str, str, str | None, str | None]:
    found = data(row)["state_update"]["nova_object.data"]
    return found["old_state"], found["state"], found["old_task_state"], found["new_task_state"]


def stop(world: Live) -> None:
    world.act("stop")
    world.answer(SHUTDOWN)


def test_change_of_states_is_sent_for_vm_and_task_states(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path, notify_on_state_change="vm_and_task_state")
    stop(world)
    assert [states(row) for row in updates(world)] == [
        ("active", "active", None, "powering-off"),
        ("active", "stopped", "powering-off", None),
    ]
    for row in updates(world):
        payload = checked(row.payload)
        assert (payload["nova_object.name"], row.event_type) == ("InstanceUpdatePayload", "instance.update")
        assert (row.publisher_id, row.priority) == ("nova-compute:host1", "INFO")
        assert row.context["request_id"] and data(row)["action_initiator_project"]
        assert (data(row)["old_display_name"], data(row)["tags"]) == (None, [])
        period = data(row)["audit_period"]["nova_object.data"]
        assert period["audit_period_beginning"].endswith("-01T00:00:00Z")
        assert period["audit_period_beginning"] < period["audit_period_ending"]


def test_change_of_the_vm_state_is_sent_alone_on_request(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path, notify_on_state_change="vm_state")
    stop(world)
    assert [states(row) for row in updates(world)] == [("active", "stopped", "powering-off", None)]


def test_changes_of_states_are_not_sent_by_default(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path)
    stop(world)
    assert updates(world) == []


def test_new_server_is_in_its_first_states(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path, notify_on_state_change="vm_state")
    world.db.write(make.instance, vm_state="building", task_state="scheduling", host=None)
    (row,) = updates(world)
    assert states(row) == ("building", "building", "scheduling", "scheduling")
    assert row.publisher_id == "nova-conductor:conductor1"
    assert row.context == {"request_id": None, "user_id": None, "project_id": None}


def test_older_format_has_the_states_beside_the_others(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path, notify_on_state_change="vm_state")
    stop(world)
    (row,) = updates(world, "unversioned")
    payload = row.payload
    assert (row.event_type, row.publisher_id) == ("compute.instance.update", "compute.host1")
    assert (payload["old_state"], payload["state"], payload["new_task_state"]) == ("active", "stopped", None)
    assert payload["instance_id"] == world.uuid and payload["audit_period_ending"].endswith("Z")


def test_state_that_returns_in_one_transaction_is_not_sent(tmp_path: Path) -> None:
    world, _ = make_world(tmp_path, notify_on_state_change="vm_and_task_state")

    def there_and_back(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(models.Instance).where(models.Instance.uuid == world.uuid)).one()
        for state in ("stopped", "active"):
            row.vm_state = state
            uow.session.flush()

    world.db.write(there_and_back)
    assert updates(world) == []


# --- audits


def test_servers_of_a_period_are_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, notifications = make_world(tmp_path, instance_usage_audit=True, instance_usage_audit_period="hour")
    monkeypatch.setattr(recorder, "AUDIT_BATCH", 2)
    monkeypatch.setattr("nova_lite.conductor.notifications.service.AUDIT_BATCH", 2)
    now = world.db.read(lambda uow: uow.now)
    period = last_period("hour", now)
    second = datetime.timedelta(seconds=1)
    before, within, after = period.beginning - second, period.beginning + second, period.ending + second

    def make_servers(uow: UnitOfWork) -> list[str]:
        uow.change(sa.update(models.Instance).values(launched_at=None))  # the world's server has never run
        times = [(before, None), (before, within), (within, None), (before, before), (after, None)]
        return [make.instance(uow, launched_at=start, terminated_at=end, host="host1") for start, end in times]

    uuids = world.db.write(make_servers)
    notifications.audit_usage()
    found = [row for row in rows(world.db) if row.event_type == "instance.exists"]
    assert sorted(data(row)["uuid"] for row in found) == sorted(uuids[:3])
    assert [row.publisher_id for row in found] == ["nova-compute:host1"] * 3
    for row in found:
        assert checked(row.payload)["nova_object.name"] == "InstanceExistsPayload"
        ends = data(row)["audit_period"]["nova_object.data"]
        assert ends["audit_period_ending"] == period.ending.isoformat() + "Z"
    older = [row for row in rows(world.db, "unversioned") if row.event_type == "compute.instance.exists"]
    assert sorted(row.payload["instance_id"] for row in older) == sorted(uuids[:3])
    assert older[0].payload["audit_period_ending"] == str(period.ending)
    for conductor in (notifications, Notifications(world.db, world.conf, TIMING.conductor, CHANNELS)):
        conductor.audit_usage()
    assert len([row for row in rows(world.db) if row.event_type == "instance.exists"]) == 3
    (audit,) = world.db.read(lambda uow: list(uow.session.scalars(sa.select(models.UsageAudit))))
    assert (audit.servers, audit.finished_at is not None) == (3, True)


def test_audit_waits_for_a_slow_consumer(tmp_path: Path) -> None:
    world, notifications = make_world(tmp_path, instance_usage_audit=True, max_waiting=1)
    world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(launched_at=datetime.datetime(2020, 1, 1))))
    world.act("pause")
    notifications.audit_usage()
    assert "instance.exists" not in [row.event_type for row in rows(world.db)]
    world.db.write(lambda uow: uow.change(sa.delete(models.Notification)))
    notifications.audit_usage()
    assert "instance.exists" in [row.event_type for row in rows(world.db)]


def test_audits_are_off_by_default(tmp_path: Path) -> None:
    world, notifications = make_world(tmp_path)
    notifications.audit_usage()
    assert rows(world.db) == []


@pytest.mark.parametrize(
    ("option", "now", "beginning", "ending"),
    [
        ("hour", "2026-03-01T00:30:00", "2026-02-28T23:00:00", "2026-03-01T00:00:00"),
        ("hour@45", "2026-03-01T00:30:00", "2026-02-28T22:45:00", "2026-02-28T23:45:00"),
        ("day", "2026-03-01T00:00:00", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("day@18", "2026-03-01T17:59:59", "2026-02-27T18:00:00", "2026-02-28T18:00:00"),
        ("month", "2026-01-01T00:00:00", "2025-12-01T00:00:00", "2026-01-01T00:00:00"),
        ("month@28", "2026-03-10T00:00:00", "2026-01-28T00:00:00", "2026-02-28T00:00:00"),
        ("year", "2026-03-10T00:00:00", "2025-01-01T00:00:00", "2026-01-01T00:00:00"),
        ("year@6", "2026-03-10T00:00:00", "2024-06-01T00:00:00", "2025-06-01T00:00:00"),
    ],
)
def test_periods_are_those_of_nova(option: str, now: str, beginning: str, ending: str) -> None:
    moment = datetime.datetime.fromisoformat(now)
    period = last_period(option, moment)
    assert [item.isoformat() for item in period] == [beginning, ending]
    assert current_period(option, moment) == (period.ending, moment)
