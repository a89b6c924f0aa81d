"""``server show`` and ``server replay``: servers and decisions of the past, from recorded changes."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import server_changes
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, InstanceAction
from nova_lite.operations.steps import SCHEDULE_EVENT
from tests.support.manage import Tool, placed, report

DAY = datetime.datetime(2026, 1, 1)
MINUTE = datetime.timedelta(minutes=1)


class Cloud:
    """Two hosts of 1024 MB in a database whose changes of servers are recorded. ``time``: of the next change."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.db: Database = tool.database_of()
        self.time = DAY
        report(tool, "h1", "h2")
        self.db.write(lambda uow: uow.session.execute(sa.update(ComputeNode).values(created_at=DAY)))

    def record(self) -> None:
        server_changes.watch(self.db)

    def server(self, host: str) -> str:
        """Return a server of 512 MB that has been at this host all the time."""
        uuid = placed(self.tool, host, created_at=DAY)
        self.db.write(lambda uow: uow.session.execute(sa.update(Allocation).values(created_at=DAY)))
        return uuid

    def change(self, uuid: str, action: str = "", **values: Any) -> datetime.datetime:
        """Change a server a minute later, by an ``action`` that ends at once, or by none. Return the time."""
        self.time += MINUTE

        def write(uow: UnitOfWork) -> None:
            row = uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one()
            for name, value in values.items():
                setattr(row, name, value)
            row.updated_at = self.time
            if action:
                uow.session.add(made_action(uuid, action, self.time))

        self.db.write(write)
        return self.time


def made_action(uuid: str, kind: str, time: datetime.datetime, **values: Any) -> InstanceAction:
    return InstanceAction(
        **{
            "action": kind,
            "instance_uuid": uuid,
            "request_id": f"req-{kind}",
            "step": "",
            "payload": {},
            "lease_expires_at": time,
            "deadline": time,
            "start_time": time,
            "updated_at": time,
            "finish_time": time,
        }
        | values
    )


@pytest.fixture
def cloud(tool: Tool) -> Iterator[Cloud]:
    made = Cloud(tool)
    yield made
    made.db.close()


def shown(tool: Tool, uuid: str, time: datetime.datetime, status: int = 0) -> dict[str, Any]:
    fields = tool.json("server", "show", uuid, "--at", time.isoformat(), status=status)
    return {item["field"]: item["value"] for item in fields}


def test_server_show_at_each_time_has_the_values_of_then(tool: Tool, cloud: Cloud) -> None:
    cloud.record()
    uuid = placed(tool, "h1", created_at=DAY, vm_state="active")
    cloud.change(uuid, "start")
    stopped = cloud.change(uuid, "stop", vm_state="stopped", power_state=4)
    named = cloud.change(uuid, display_name="new", metadata_={"a": "b"})
    cloud.change(uuid, "delete", deleted=True, host=None, terminated_at=cloud.time)
    second = datetime.timedelta(seconds=1)
    before = shown(tool, uuid, stopped - second)
    assert (before["vm_state"], before["host"], before["display_name"]) == ("active", "h1", "vm")
    after = shown(tool, uuid, stopped)
    assert (after["vm_state"], after["power_state"], after["updated_at"]) == ("stopped", 4, stopped.isoformat())
    renamed = shown(tool, uuid, named + second)
    assert (renamed["display_name"], renamed["metadata"], renamed["deleted"]) == ("new", {"a": "b"}, False)
    now = {item["field"]: item["value"] for item in tool.json("server", "show", uuid)}
    assert (now["deleted"], now["host"], now["interfaces, volumes, tags"]) == (True, None, "not recorded")


def test_server_show_between_changes_without_a_record_says_not_recorded(tool: Tool, cloud: Cloud) -> None:
    uuid = placed(tool, "h1", created_at=DAY)
    first = cloud.change(uuid, "stop", vm_state="stopped")
    last = cloud.change(uuid, "start", vm_state="active")
    assert shown(tool, uuid, last)["vm_state"] == "active"
    unknown = shown(tool, uuid, first, status=1)
    assert (unknown["vm_state"], unknown["host"]) == ("not recorded", "not recorded")
    assert (unknown["uuid"], unknown["project_id"]) == (uuid, "p1")
    assert "does not record changes" in tool.error


def test_server_show_during_an_operation_names_it_and_its_steps(tool: Tool, cloud: Cloud) -> None:
    uuid = placed(tool, "h1", created_at=DAY)
    event = {"event": "compute_reboot_instance", "host": "h1", "start_time": (DAY + MINUTE).isoformat()}
    event["finish_time"] = (DAY + 2 * MINUTE).isoformat()
    action = made_action(uuid, "reboot", DAY + MINUTE, finish_time=DAY + 3 * MINUTE, events=[event])
    cloud.db.write(lambda uow: uow.session.add(action))
    found = [shown(tool, uuid, DAY + minutes * MINUTE)["operations"] for minutes in range(4)]
    both = "reboot req-reboot, compute_reboot_instance at h1"
    assert found == [[], [both], ["reboot req-reboot"], []]


def test_server_show_at_a_time_without_the_server_is_refused(tool: Tool, cloud: Cloud) -> None:
    uuid = placed(tool, "h1", created_at=DAY)
    early = tool.fails("server", "show", uuid, "--at", (DAY - MINUTE).isoformat())
    assert "was created at 2026-01-01 00:00:00" in early
    assert "lies ahead" in tool.fails("server", "show", uuid, "--at", "2999-01-01")
    assert "could not be found" in tool.fails("server", "show", "none")


def test_server_changes_of_one_action_are_limited_and_older_ones_are_not_recorded(
    tool: Tool, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_changes, "MOST", 2)
    cloud.record()
    uuid = placed(tool, "h1", created_at=DAY)
    first = cloud.change(uuid, "create", display_name="first")
    times = [cloud.change(uuid, "" if number else "start", display_name=f"vm{number}") for number in range(4)]
    assert [shown(tool, uuid, time)["display_name"] for time in times[1:]] == ["vm1", "vm2", "vm3"]
    for time in (times[0], first):
        assert shown(tool, uuid, time, status=1)["display_name"] == "not recorded"


def decided(cloud: Cloud, uuid: str, chosen: str | None, **values: Any) -> datetime.datetime:
    """Record that the scheduler chose a host for a new server. Return the time of its decision."""
    time = cloud.time + MINUTE
    event = {"event": SCHEDULE_EVENT, "host": "c", "start_time": time.isoformat(), "finish_time": time.isoformat()}
    cloud.db.write(lambda uow: uow.session.add(made_action(uuid, "create", cloud.time, events=[event], **values)))
    cloud.time = time
    cloud.change(uuid, host=chosen, node=chosen, generation=int(chosen is not None))
    cloud.db.write(lambda uow: _end(uow, uuid, cloud.time))
    return time


def _end(uow: UnitOfWork, uuid: str, time: datetime.datetime) -> None:
    for action in uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid)):
        action.finish_time = time


def test_server_replay_has_the_servers_of_then_and_repeats_the_decision(tool: Tool, cloud: Cloud) -> None:
    cloud.record()
    other = placed(tool, None, created_at=DAY)
    cloud.change(other, "create", host="h1", node="h1")
    uuid = placed(tool, None, created_at=DAY)
    decided(cloud, uuid, "h2")
    cloud.change(other, "delete", host=None, node=None, deleted=True)
    placed(tool, "h2")
    first, second = tool.json("server", "replay", uuid)
    assert (first["rank"], first["host"], first["chosen_then"], first["memory_mb_used"]) == (1, "h2", True, 0)
    assert (second["rank"], second["host"], second["chosen_then"], second["memory_mb_used"]) == (2, "h1", False, 512)
    assert "Decision of create at 2026-01-01 00:02:00." in tool.error
    assert "capacity, capabilities, states and aggregates of hosts" in tool.error


def test_server_replay_of_another_decision_exits_with_1_and_says_why(tool: Tool, cloud: Cloud) -> None:
    cloud.record()
    for _ in range(2):
        cloud.server("h1")
    uuid = placed(tool, None, created_at=DAY)
    decided(cloud, uuid, "h1")
    first, last = tool.json("server", "replay", uuid, status=1)
    assert (first["host"], first["chosen_then"], first["why_not"]) == ("h2", False, None)
    assert (last["host"], last["chosen_then"], last["rank"]) == ("h1", True, None)
    assert "failed RamFilter" in last["why_not"]


def test_server_replay_of_a_refusal_repeats_it(tool: Tool, cloud: Cloud) -> None:
    cloud.record()
    for host in ("h1", "h1", "h2", "h2"):
        cloud.server(host)
    uuid = placed(tool, None, created_at=DAY)
    decided(cloud, uuid, None, message="Error")
    (refused,) = tool.json("server", "replay", uuid)
    assert (refused["host"], refused["chosen_then"]) == (None, False)
    assert "2 failed RamFilter" in refused["why_not"]


def test_server_replay_of_a_failed_build_has_the_host_that_failed(tool: Tool, cloud: Cloud) -> None:
    cloud.record()
    cloud.server("h1")
    uuid = placed(tool, None, created_at=DAY)
    decided(cloud, uuid, "h2", payload={"tried": ["h2"]})
    cloud.change(uuid, host=None, node=None)
    cloud.db.write(lambda uow: _end(uow, uuid, cloud.time))
    first, _ = tool.json("server", "replay", uuid)
    assert (first["host"], first["chosen_then"]) == ("h2", True)


def test_server_replay_without_a_record_says_that(tool: Tool, cloud: Cloud) -> None:
    uuid = placed(tool, "h1", created_at=DAY)
    assert "No decision about server" in tool.fails("server", "replay", uuid)
    decided(cloud, uuid, "h1")
    assert "is not recorded" in tool.fails("server", "replay", uuid)
    assert "by 2025-12-31" in tool.fails("server", "replay", uuid, "--at", "2025-12-31")


def test_server_replay_names_the_number_of_servers_without_a_record(tool: Tool, cloud: Cloud) -> None:
    other = cloud.server("h1")
    cloud.change(other, "stop", vm_state="stopped")
    cloud.record()
    uuid = placed(tool, None, created_at=DAY)
    decided(cloud, uuid, "h2")
    tool("server", "replay", uuid)
    assert "but for" not in tool.text
    silent = tool.database_of()
    cloud.db, recorded = silent, cloud.db
    for name in ("a", "b"):
        cloud.change(other, "", display_name=name)
    cloud.db = recorded
    silent.close()
    tool("server", "replay", uuid)
    assert "but for 1 server(s) without a record or on two hosts." in tool.text
