"""Reports of compute hosts that the replay cache does not hold. Repeated at any later time, they change no row.

A story with every kind of report continues step by step. After each step all reports so far are sent again, as they
were on the wire.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.hosts.heartbeats import Heartbeats
from nova_lite.conductor.network.endpoints import NetworkServiceEndpoints
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import fencing
from nova_lite.objects import ActionReport, BuildOutcome, BuildResult, HostReport, LeaseRequest, digest_of_domains
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.conductor_world import BUILT, World, heartbeat
from tests.support.server_moves import force_down

#: Methods of hosts that may be repeated and whose names do not show that they only read.
METHODS = {
    name
    for name, method in rpc.contract_of(ConductorRPC).methods.items()
    if rpc.COMPUTE in method.access.roles and method.replay_safe and not name.endswith("_get")
}
#: Methods among them that only read.
READS = {
    "is_command_current",
    "is_command_open",
    "is_volume_work_open",
    "is_volume_data_needed",
    "domains_expected",
    "fencing_records_settled",
    "interfaces_active",
}
#: Heartbeats that may wait do so only for a moment.
TIMING = ConductorTiming(heartbeat_batches=ConductorTiming.heartbeat_batches._replace(max_delay=0.001))


class Recorder:
    """Records the reports of hosts as JSON."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: list[tuple[str, bytes]] = []
        self.heartbeats = Heartbeats(world.db, world.conf, TIMING)
        parts = world.reports
        self.functions: dict[str, Callable[..., Any]] = {
            "report_state": lambda report: self.heartbeats.report_state(world.context(), report),
            "renew_lease": lambda request: world.db.write(hosts.renew_lease, world.conf, request),
            **{name: self._of(world.volumes, name) for name in ("is_volume_work_open", "is_volume_data_needed")},
            "interfaces_active": self._of(NetworkServiceEndpoints(world.engine), "interfaces_active"),
            "fencing_records_settled": lambda **arguments: world.db.read(fencing.settled, **arguments),
        }
        self.functions |= {name: self._of(parts, name) for name in METHODS - self.functions.keys()}

    def _of(self, parts: Any, name: str) -> Callable[..., Any]:
        return lambda **arguments: getattr(parts, name)(self.world.context(), **arguments)

    def say(self, method: str, **arguments: Any) -> Any:
        self.heard.append((method, msgspec.json.encode(arguments)))
        return self.functions[method](**arguments)

    def again(self, method: str, wire: bytes) -> None:
        hints = rpc.contract_of(ConductorRPC).methods[method].arguments
        arguments = {name: msgspec.convert(value, hints[name]) for name, value in msgspec.json.decode(wire).items()}
        with contextlib.suppress(exceptions.NovaLiteException):
            self.functions[method](**arguments)


class Life:
    """A compute daemon from its start to its end."""

    def __init__(self, recorder: Recorder, host: str, number: int = 1) -> None:
        self.recorder = recorder
        self.host = host
        self.boot_id = f"{host}-{number}"
        self.number = self.leases = 0
        self.epoch = 0
        report = self.report()
        self.epoch = recorder.world.db.write(hosts.register_host, recorder.world.conf, report)

    def report(self, **values: Any) -> HostReport:
        self.number += 1
        fields = {"boot_id": self.boot_id, "number": self.number, "epoch": self.epoch, "identity": self.host, **values}
        return msgspec.structs.replace(heartbeat(self.host), **fields)

    def lease(self, *guests: str) -> None:
        self.leases += 1
        fields = {"host": self.host, "boot_id": self.boot_id, "epoch": self.epoch, "identity": self.host}
        request = LeaseRequest(**fields, number=self.leases, seconds=50.0, guests=list(guests))
        self.recorder.say("renew_lease", request=request)

    def beat(self, **values: Any) -> None:
        self.recorder.say("report_state", report=self.report(**values))


def rows(world: World) -> dict[str, list[Any]]:
    def read(uow: Any) -> dict[str, list[Any]]:
        tables = models.Base.metadata.sorted_tables
        return {table.name: [tuple(row) for row in uow.session.execute(sa.select(table))] for table in tables}

    return copy.deepcopy(world.db.read(read))


def story(recorder: Recorder) -> Iterator[str]:
    """Yield the event of each step."""
    world = recorder.world

    def ordered(uuid: str, outcome: BuildOutcome, batch: bool = False) -> None:
        host, request = [build for build in world.compute.builds if build[1].instance.uuid == uuid][-1]
        address = {"action_id": request.action_id, "sequence": 0}
        recorder.say("is_command_current", host=host, **address)
        recorder.say("is_command_open", host=host, request_id=request.request_id, **address)
        with contextlib.suppress(exceptions.StaleReport):  # the host has lost it meanwhile
            recorder.say("interfaces_active", instance_uuid=uuid, host=host, refresh=True)
        what = {"instance_uuid": uuid, "generation": request.generation, "host": host, "action_id": request.action_id}
        result = BuildResult(outcome=outcome, power_state=1, message="" if outcome == BUILT else "no", **what)
        if batch:
            recorder.say("finish_builds", host=host, results=[result])
        else:
            recorder.say("finish_build", result=result)
        recorder.say("is_volume_work_open", host=host, task_id=1, volume_id=uuid)
        recorder.say("is_volume_data_needed", host=host, verb="create", made_id=uuid)
        recorder.say("domains_expected", host=host)
        recorder.say("fencing_records_settled", host=host, instance_uuids=[uuid])

    def start(uuid: str) -> None:
        world.lifecycle.build_instances(world.context(), [uuid])

    def acted(uuid: str, kind: str, power_state: int | None, **payload: Any) -> None:
        command = world.lifecycle.accept_action(world.context(admin=True), uuid, kind, payload)
        report = ActionReport(
            host=str(command.host), action_id=command.action_id, power_state=power_state, sequence=command.sequence
        )
        world.reports.finish_action(world.context(), report)

    first, second = Life(recorder, "host1"), Life(recorder, "host2")
    for life in (first, second):
        life.beat()
    yield "two hosts are there"
    first.beat(building={"no-such": 1}, acting=[1, 2, 3])
    first.beat(cpu_allocation_ratio=2.0, hypervisor_up=False)
    second.beat(serving=False)
    yield "one host's hypervisor has stopped to answer"
    first.beat(cpu_allocation_ratio=2.0)
    yield "and answers again"
    second = Life(recorder, "host2", 2)
    yield "the other's daemon was started again"
    second.beat()
    second.lease()
    yield "and says so"
    (one, two) = world.create(min_count=2, max_count=2, metadata={"ha:restart": "always"})
    start(one)
    yield "a server is being built"
    first.beat(building={one: 1})
    yield "its host is at it"
    ordered(one, BUILT)
    yield "it is built"
    first.lease()
    first.lease(one)
    yield "its host protects it"
    first.beat(domains=digest_of_domains([(one, 1, 1)]))
    yield "its host asks whether all agrees"
    start(two)
    ordered(two, BuildOutcome.RESCHEDULED)
    yield "another failed, and is built elsewhere"
    first.beat()
    ordered(two, BUILT, batch=True)
    yield "and that is done"
    acted(one, "stop", 4)
    yield "the first is stopped"
    acted(one, "start", 1)
    yield "and started"
    (three,) = world.create()
    start(three)
    ordered(three, BuildOutcome.ABORTED, batch=True)
    yield "a third is in ERROR"
    host = world.instance(one).host
    assert host is not None
    force_down(world, host)
    yield "a host is forced down"
    world.lifecycle.accept_action(world.context(admin=True), one, "evacuate", {})
    start(one)
    yield "its server is made again elsewhere"
    ordered(one, BUILT)
    yield "and is there"
    force_down(world, host, False)
    yield "the host may come back"
    back = Life(recorder, host, 2)
    yield "and has registered"
    back.beat()
    yield "and says so"
    for uuid in (one, two, three):
        command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
        yield "a server is to be deleted"
        if command.host is not None:
            world.reports.finish_action(world.context(), ActionReport(host=command.host, action_id=command.action_id))
            yield "and is"
    assert world.used() == {"host1": 0, "host2": 0}

    def retire(uow: Any) -> None:
        for row in services.list_(uow, binary=services.COMPUTE):
            services.delete(uow, row.uuid)

    world.db.write(retire)
    yield "the hosts are gone"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_repeated_reports_change_no_row(world: World) -> None:
    recorder = Recorder(world)
    for happened in story(recorder):
        before = rows(world)
        for method, wire in list(recorder.heard):
            recorder.again(method, wire)
            after = rows(world)
            for table in before:
                assert after[table] == before[table], f"{method} {wire.decode()} again, when {happened}: {table}"
    assert {method for method, _ in recorder.heard} == METHODS, "each has to be in the story"


def test_story_has_every_repeatable_report() -> None:
    """The replay cache holds all others (test_replay_cache.py), or their names show that they only read."""
    assert {"report_state", "renew_lease", "finish_build", "finish_builds"} == METHODS - READS


def test_heartbeat_of_an_earlier_start_makes_its_host_register(world: World) -> None:
    recorder = Recorder(world)
    old = Life(recorder, "host1")
    old.beat()
    new = Life(recorder, "host1", 2)
    with pytest.raises(exceptions.HostNotAdmitted):
        old.beat()
    new.beat()


def test_heartbeat_without_a_number_is_accepted(world: World) -> None:
    """Older versions send no number."""
    recorder = Recorder(world)
    life = Life(recorder, "host1")
    for _ in range(2):
        life.beat(number=0)
