"""Traces of servers of real daemons are paths on each kind of database, and rows that are made wrong are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core.models import Allocation, Base, Instance, InstanceAction
from nova_lite.db.upkeep import server_traces
from nova_lite.db.upkeep.server_traces import Verdict
from nova_lite.virt.fake_hypervisor import write_control
from tests.support.in_process_cloud import HOST, InProcessCloud
from tests.support.waiting import wait_for

#: Actions of one server, one after another.
LIFE: tuple[dict[str, Any], ...] = (
    {"os-stop": None},
    {"os-start": None},
    {"pause": None},
    {"unpause": None},
    {"suspend": None},
    {"resume": None},
    {"reboot": {"type": "HARD"}},
    {"rescue": {}},
    {"unrescue": None},
    {"rebuild": {}},
    {"createImage": {"name": "copy"}},
    {"lock": None},
    {"unlock": None},
    {"os-resetState": {"state": "error"}},
    {"os-resetState": {"state": "active"}},
    {"shelve": None},
    {"unshelve": None},
)


class Cloud(InProcessCloud):
    """A cloud in one process, on any database."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory, "[fake]\nvcpus = 1000\nmemory_mb = 1000000\ndisk_gb = 1000\n", url)
        self.db = self.conductor.db

    def is_finished(self, server_id: str) -> bool:
        is_open = sa.exists().where(InstanceAction.instance_uuid == server_id, InstanceAction.finish_time.is_(None))
        return not self.db.read(lambda uow: uow.session.scalar(sa.select(is_open)))

    def act(self, server: str, body: dict[str, Any]) -> None:
        response = self.request("POST", f"/servers/{server}/action", body)
        assert response.status_int < 300, response.text
        wait_for(f"{body} is over", lambda: self.is_finished(server))

    def verdict(self, server: str) -> Verdict:
        (found,) = server_traces.judge(self.db, server=server)
        return found

    def run(self, statement: Any) -> None:
        self.db.write(lambda uow: uow.change(statement))


@pytest.fixture(scope="module")
def cloud(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("cloud"), url)
    yield made
    made.close()
    with made.db.engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())


def test_trace_of_a_whole_life_is_a_path(cloud: Cloud) -> None:
    server = cloud.create()
    for body in LIFE:
        cloud.act(server, {"rebuild": {"imageRef": cloud.image_id}} if "rebuild" in body else body)
        assert cloud.verdict(server) == Verdict(server), body
    cloud.request("DELETE", f"/servers/{server}")
    wait_for("it is deleted", lambda: cloud.is_finished(server))
    assert cloud.verdict(server) == Verdict(server)
    (trace,) = cloud.db.read(server_traces._page, 0, None, server)[1]
    assert len(trace.changes) > len(LIFE), "changes are recorded"


def test_trace_of_a_failed_build_is_a_path(cloud: Cloud) -> None:
    write_control(cloud.conf, HOST, fail_at=["spawn_before_domain"])
    server = cloud.send_create()
    wait_for("it has failed", lambda: cloud.is_finished(server))
    write_control(cloud.conf, HOST)
    assert cloud.settled(server) == "ERROR"
    assert cloud.verdict(server) == Verdict(server)


def of_row(**values: Any) -> Any:
    return lambda server: sa.update(Instance).where(Instance.uuid == server).values(**values)


def of_actions(**values: Any) -> Any:
    return lambda server: sa.update(InstanceAction).where(InstanceAction.instance_uuid == server).values(**values)


def second_claim(server: str) -> Any:
    """Return an insert of a second claim, which is one of another generation at the only host."""
    names = ["instance_uuid", "compute_node_id", "vcpus", "memory_mb", "disk_gb", "created_at"]
    values = sa.select(sa.literal(7), *(getattr(Allocation, name) for name in names))
    return sa.insert(Allocation).from_select(["generation", *names], values.where(Allocation.instance_uuid == server))


def no_claim(server: str) -> Any:
    return sa.delete(Allocation).where(Allocation.instance_uuid == server)


DAMAGES = {
    "two claims": (second_claim, "it has 2 claims (host1, host1), and no action is open"),
    "no claim": (no_claim, "it has no claim at host host1, generation 2"),
    "other host": (of_row(host="host2"), "create ended at host host1, which is not that of the server then"),
    "generation that goes back": (of_row(generation=0), "to host host1, generation 0: its generation went back"),
    "state of no action": (of_row(vm_state="paused"), "to paused, which is no outcome of start (action"),
    "delete without an action": (of_row(deleted=True), "it is deleted, and its state is building"),
    "task without an action": (of_row(task_state="rebooting"), "its task became rebooting, which is no task of start"),
    "actions that are another": (of_actions(action="pause"), "pause"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_trace_with_a_wrong_row_is_refused(cloud: Cloud, damage: str) -> None:
    statement, said = DAMAGES[damage]
    server = cloud.create()
    for body in ({"rebuild": {"imageRef": cloud.image_id}}, {"os-stop": None}, {"os-start": None}):
        cloud.act(server, body)
    assert cloud.verdict(server) == Verdict(server)
    cloud.run(statement(server))
    verdict = cloud.verdict(server)
    assert verdict.wrong is not None and said in verdict.wrong
    assert verdict.action is not None
