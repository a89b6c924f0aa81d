"""State machine of a conductor and two hosts, in which events happen in any order."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.conductor.hosts.domains import LOST
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import invariants
from nova_lite.objects import ActionCommand, BuildRequest, HostReport
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.support.compute_host import DEADLINE, Gate, Host
from tests.support.conductor_world import World
from tests.support.past_witness import Witness

T = TypeVar("T")


HOSTS = ("host1", "host2")


STEPS = ["plug_vifs", "spawn_before_domain", "spawn_after_domain", "destroy", "power_on", "power_off", "reboot"]


KINDS = ["stop", "start", "reboot", "delete", "delete", "evacuate"]


#: Progress of a request before other events: its row is written, its message is sent, its host has it.
ACCEPTED, SENT, DELIVERED = "accepted", "sent", "delivered"


FAR = st.sampled_from([ACCEPTED, SENT, DELIVERED, DELIVERED, DELIVERED])


CUTS = st.sampled_from(["", "", "", "before", "after"])


#: Rounds of half a minute within which everything has to settle once nothing breaks any more. What finds no room (the
#: played scheduler does not look) ends at its deadline, which is after 29 of them.
ROUNDS = 40


class Link:
    """Reports of a host to the conductor. ``cut``: the next report is lost (before), or its reply (after), and the
    host is dead from then on.
    """

    def __init__(self, world: World) -> None:
        self.reports = world.reports
        self.world = world
        self.cut = ""
        self.life: Life | None = None

    def register_host(self, context: Any, report: HostReport) -> int:
        return self.world.db.write(hosts.register_host, self.world.conf, report)

    def report_state(self, context: Any, report: HostReport, timeout: float | None = None) -> bool | None:
        self.world.db.write(hosts.report_state, self.world.conf, report)
        digests = {} if report.domains is None else {report.host: report.domains}
        return self.world.db.read(instances.agree, digests).get(report.host)

    def start_build(self, *arguments: Any, **named: Any) -> Any:
        return self._say(self.reports.start_build, *arguments, **named)

    def finish_build(self, *arguments: Any, **named: Any) -> Any:
        return self._say(self.reports.finish_build, *arguments, **named)

    def finish_action(self, *arguments: Any, **named: Any) -> Any:
        return self._say(self.reports.finish_action, *arguments, **named)

    def finish_builds(self, *arguments: Any, **named: Any) -> Any:
        return self._say(self.reports.finish_builds, *arguments, **named)

    def finish_actions(self, *arguments: Any, **named: Any) -> Any:
        return self._say(self.reports.finish_actions, *arguments, **named)

    def reconcile_domains(self, *arguments: Any) -> Any:
        return self.reports.reconcile_domains(*arguments)

    def domains_expected(self, *arguments: Any) -> Any:
        return self.reports.domains_expected(*arguments)

    def domain_lost(self, *arguments: Any) -> None:
        self.reports.domain_lost(*arguments)

    def is_command_open(self, *arguments: Any) -> Any:
        return self.reports.is_command_open(*arguments)

    def _say(self, method: Callable[..., T], *arguments: Any, **named: Any) -> T:
        if self.cut == "before":
            self._die()
        answer = method(*arguments, **named)
        if self.cut == "after":
            self._die()
        return answer

    def _die(self) -> None:
        assert self.life is not None
        self.life.manager._stopping.set()
        raise exceptions.MessagingUnavailable(what="a report")


class Post:
    """Messages of the conductor to hosts, kept for delivery in any order and number."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, BuildRequest | ActionCommand]] = []
        self.alive: dict[str, Life] = {}

    def build_and_run_instance(self, context: Any, host: str, request: BuildRequest) -> None:
        self.sent.append((host, request))

    def build_and_run_instances(self, context: Any, host: str, requests: list[BuildRequest]) -> None:
        self.sent.extend((host, request) for request in requests)

    def run_command(self, context: Any, host: str, method: str, command: ActionCommand, version: str = "2.0") -> None:
        self.sent.append((host, command))

    def fence_instance(self, context: Any, host: str, uuid: str, generation: int, timeout: float) -> bool:
        if host not in self.alive:
            raise exceptions.ComputeHostUnavailable(host=host)
        return self.alive[host].manager.fence_instance(context, uuid, generation)


#: A fence waits only for a moment, since a test's host may hold a build back.
TIMING = ComputeTiming(fence_wait=0.05)


class Life(Host):
    """A run of a host's daemon, whose work can be held at a step of the hypervisor."""

    def __init__(self, *arguments: Any, **compute: Any) -> None:
        self.gates: list[Gate] = []
        super().__init__(*arguments, **compute)

    def control(self, **values: Any) -> None:
        super().control(vcpus=4, memory_mb=1024, disk_gb=50, **values)

    def hold(self, step: str) -> None:
        """Hold the next thread that comes to ``step`` until `release`. Without a release it was killed there."""
        gate = Gate()

        def once() -> None:
            del self.driver.hooks[step]
            self.gates.append(gate)
            gate()

        self.driver.hooks[step] = once

    def release(self) -> None:
        self.driver.hooks.clear()
        while self.gates:
            self.gates.pop().open()
        self.settle()

    def settle(self) -> None:
        """Run until nothing moves any more: no work is left, or all of it is held."""
        moves = time.monotonic() + DEADLINE
        while not self.manager.jobs.wait_idle(0.05):
            if self.gates:
                return
            assert time.monotonic() < moves, "jobs do not end"


class ControlPlane(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.world = World(self.path)
        self.witness = Witness(self.world.db)
        self.post = Post()
        self.world.engine.compute = self.post  # type: ignore[assignment]
        self.links = {name: Link(self.world) for name in HOSTS}
        self.forced: set[str] = set()
        self.ended: set[str] = set()
        self.uuids: list[str] = []
        for name in HOSTS:
            self.begin_life(name)

    # --- what users and operators do

    @precondition(lambda self: len(self.uuids) < 6)
    @rule(count=st.integers(1, 2), far=FAR, cut=CUTS)
    def create(self, count: int, far: str, cut: str) -> None:
        uuids = self.world.create(min_count=count, max_count=count)
        self.uuids += uuids
        first = len(self.post.sent)
        if far != ACCEPTED:
            self.world.lifecycle.build_instances(self.world.context(), uuids)
        if far == DELIVERED:
            self.hand_over_from(first, cut)

    @precondition(lambda self: self.uuids)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), far=FAR, cut=CUTS)
    def act(self, data: st.DataObject, kind: str, far: str, cut: str) -> None:
        uuid = data.draw(st.sampled_from(self.uuids))
        first = len(self.post.sent)
        try:
            command = self.world.lifecycle.accept_action(self.world.context(admin=True), uuid, kind, {})
        except exceptions.NovaLiteException as error:
            assert error.code < 500
            return
        if far == ACCEPTED:
            return
        if kind == "evacuate":
            self.world.lifecycle.build_instances(self.world.context(), [uuid])
        elif command.host is not None:
            self.post.sent.append((command.host, command))
        if far == DELIVERED:
            self.hand_over_from(first, cut)

    @precondition(lambda self: self.uuids)
    @rule(data=st.data())
    def nudge(self, data: st.DataObject) -> None:
        uuid = data.draw(st.sampled_from(self.uuids))
        self.world.lifecycle.build_instances(self.world.context(), [uuid])

    # --- what messages do

    @precondition(lambda self: self.post.sent)
    @rule(data=st.data(), cut=CUTS)
    def deliver(self, data: st.DataObject, cut: str) -> None:
        """Deliver any message once more, the newest ones more often."""
        newest = st.integers(max(0, len(self.post.sent) - 3), len(self.post.sent) - 1)
        self.hand_over(data.draw(newest | st.integers(0, len(self.post.sent) - 1)), cut)

    def hand_over_from(self, first: int, cut: str = "") -> None:
        for index in range(first, len(self.post.sent)):
            self.hand_over(index, cut)

    def hand_over(self, index: int, cut: str = "") -> None:
        name, command = self.post.sent[index]
        life = self.post.alive.get(name)
        if life is None:
            return
        self.links[name].cut = cut
        if isinstance(command, BuildRequest):
            life.manager.build_and_run_instance(life.context, command)
        else:
            life.act(command)
        life.settle()
        self.links[name].cut = ""
        if life.manager._stopping.is_set():
            del self.post.alive[name]

    # --- what time and hosts do

    @rule(seconds=st.sampled_from([0, 3, 31, 31, 1000]))
    def sweep(self, seconds: int) -> None:
        self.world.let_time_pass(seconds)
        self.world.reconciler.sweep()

    @rule(name=st.sampled_from(HOSTS), step=st.sampled_from(STEPS))
    def fail_next(self, name: str, step: str) -> None:
        if name in self.post.alive:
            self.post.alive[name].control(fail_at=[step], fail_count=1)

    @rule(name=st.sampled_from(HOSTS), step=st.sampled_from(STEPS))
    def hold_next(self, name: str, step: str) -> None:
        if name in self.post.alive:
            self.post.alive[name].hold(step)

    @rule(name=st.sampled_from(HOSTS))
    def release(self, name: str) -> None:
        if name in self.post.alive:
            self.post.alive[name].release()

    @rule(name=st.sampled_from(HOSTS), noticed=st.booleans())
    def kill(self, name: str, noticed: bool) -> None:
        self.post.alive.pop(name, None)
        if noticed:
            self.world.silence(name)

    @rule(name=st.sampled_from(HOSTS))
    def begin_life(self, name: str) -> None:
        if name in self.forced:
            return
        link = self.links[name]
        link.life = life = Life(self.path / name, link, name, TIMING)  # type: ignore[arg-type]
        life.control()
        life.manager.heartbeat.refresh()
        life.manager.clean_up()
        life.manager.registration.serve()
        self.ended.discard(name)
        self.post.alive[name] = life

    @rule(name=st.sampled_from(HOSTS), forced_down=st.booleans())
    def force_down(self, name: str, forced_down: bool) -> None:
        """Stop everything on the host, then force it down, as an operator does."""
        if forced_down:
            self.post.alive.pop(name, None)
            self.forced.add(name)
            self.ended.add(name)
        else:
            self.forced.discard(name)
        self.world.db.write(self._force_down, name, forced_down)

    @staticmethod
    def _force_down(uow: UnitOfWork, name: str, forced_down: bool) -> None:
        uuid = uow.session.scalars(sa.select(models.Service.uuid).where(models.Service.host == name)).one()
        services.update(uow, uuid, {"forced_down": forced_down})

    @rule(name=st.sampled_from(HOSTS))
    def reconcile(self, name: str) -> None:
        if name in self.post.alive:
            self.post.alive[name].manager.reconciler.run()

    # --- what holds

    def domains(self) -> dict[str, dict[str, int]]:
        """Return the generation by uuid and host, except on hosts that an operator has ended."""
        found: dict[str, dict[str, int]] = {}
        for name, link in self.links.items():
            assert link.life is not None
            if name not in self.ended:
                for uuid, generation in link.life.domains().items():
                    found.setdefault(uuid, {})[name] = generation
        return found

    @invariant()
    def nothing_is_twice(self) -> None:
        for uuid, places in self.domains().items():
            assert len(places) == 1, f"{uuid} is on {places}"

    @invariant()
    def what_is_there_is_paid_for(self) -> None:
        query = sa.select(models.Allocation.instance_uuid, models.ComputeNode.host).join(
            models.ComputeNode, models.ComputeNode.id == models.Allocation.compute_node_id
        )
        held = self.world.db.read(lambda uow: {tuple(row) for row in uow.session.execute(query)})
        there = {(uuid, name) for uuid, places in self.domains().items() for name in places}
        assert there <= held, "a domain on a host that its instance holds nothing of"

    @invariant()
    def rows_agree(self) -> None:
        assert self.world.db.read(invariants.find) == []
        for used in self.world.used().values():
            assert 0 <= used <= 4

    def settle(self) -> None:
        for name in HOSTS:
            self.force_down(name, False)
            if name in self.post.alive:
                self.post.alive[name].release()
            else:
                self.begin_life(name)
        for _ in range(ROUNDS):
            first = len(self.post.sent)
            self.world.let_time_pass(31)
            self.world.reconciler.sweep()
            self.hand_over_from(first)
            if not self.world.open_actions():
                break
        for life in self.post.alive.values():
            life.control()
            life.manager.reconciler.run()
        assert self.world.open_actions() == []
        self.rows_agree()

    def teardown(self) -> None:
        self.settle()
        found = self.domains()
        for uuid in self.uuids:
            row = self.world.db.read(lambda uow, uuid=uuid: uow.session.scalars(_row(uuid)).one())
            places = found.pop(uuid, {})
            assert row.task_state is None
            if row.deleted:
                assert places == {}
            elif row.vm_state == states.ERROR:
                assert row.fault is not None
                assert row.fault["message"] != LOST, "nothing has ever vanished"
                assert places in ({}, {row.host: row.generation})
            else:
                power = {states.ACTIVE: PowerState.RUNNING, states.STOPPED: PowerState.SHUTDOWN}[row.vm_state]
                assert places == {row.host: row.generation}
                assert self.post.alive[row.host].power(uuid) == power
        assert found == {}
        if all(
            row.deleted for row in self.world.db.read(lambda uow: list(uow.session.scalars(sa.select(models.Instance))))
        ):
            assert [life.traces() for life in self.post.alive.values()] == [[], []]
        assert self.witness.check() >= len(self.uuids)
        self.world.db.close()
        shutil.rmtree(self.path)


def _row(uuid: str) -> sa.Select[tuple[models.Instance]]:
    return sa.select(models.Instance).where(models.Instance.uuid == uuid)
