"""The reconciler takes due actions, and a daemon that does not answer delays no others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import actions
from nova_lite.db.hosts import hosts, services
from nova_lite.objects import BuildOutcome
from tests.support.conductor_world import World, heartbeat
from tests.support.waiting import wait_for

DEADLINE = 30.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def free(world: World) -> Iterator[threading.Event]:
    """Return an event, with the reconciler's own threads. Threads that wait for the event are released at the end."""
    event = threading.Event()
    for executor in world.reconciler.executors:
        executor.pool = futures.ThreadPoolExecutor(4)
    yield event
    event.set()
    for executor in world.reconciler.executors:
        executor.pool.shutdown()


def stopping(world: World) -> int:
    """Lose a server's stop command, and return the action's id."""
    uuid, _, _ = world.built()
    return world.lifecycle.accept_action(world.context(), uuid, "stop", {}).action_id


def commands(world: World) -> list[int]:
    return [sent.action_id for sent in world.compute.commands]


def test_absent_host_gets_no_command_until_its_next_heartbeat(world: World) -> None:
    uuid, host, _ = world.built()
    world.silence(host)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    for _ in range(20):
        world.let_time_pass(31)
        world.reconciler.sweep()
    assert commands(world) == []
    world.is_heard(host)
    world.reconciler.sweep()
    assert commands(world) == [command.action_id]


def test_build_is_not_repeated_to_an_absent_host(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host = world.compute.builds[-1][0]
    world.silence(host)
    for _ in range(5):
        world.let_time_pass(31)
        world.reconciler.sweep()
    assert len(world.compute.builds) == 1
    world.is_heard(host)
    world.reconciler.sweep()
    assert len(world.compute.builds) == 2


def test_hosts_that_do_not_answer_a_fence_delay_no_command(world: World, free: threading.Event) -> None:
    asked = threading.Semaphore(0)

    def silent(*_: Any, **__: Any) -> bool:
        asked.release()
        assert free.wait(2 * DEADLINE)
        return True

    builds = world.create(max_count=7)
    world.lifecycle.build_instances(world.context(), builds)
    world.let_time_pass(1000)
    world.compute.fence_instance = silent  # type: ignore[method-assign]
    world.reconciler.sweep()
    assert asked.acquire(timeout=DEADLINE)
    sent = threading.Event()
    uuid, _, _ = world.built()
    stop = world.lifecycle.accept_action(world.context(), uuid, "stop", {})
    world.compute.run_command = lambda *_, **__: sent.set()  # type: ignore[method-assign]
    world.let_time_pass(31)
    for _ in range(3):
        world.reconciler.sweep()
    assert sent.wait(DEADLINE), f"the command of action {stop.action_id} waits for others' fences"


def test_host_gets_one_fence_at_a_time(world: World, free: threading.Event) -> None:
    asked: list[str] = []

    def silent(_: Any, host: str, *__: Any, **___: Any) -> bool:
        asked.append(host)
        assert free.wait(2 * DEADLINE)
        return True

    world.lifecycle.build_instances(world.context(), world.create(max_count=8))
    world.let_time_pass(1000)
    world.compute.fence_instance = silent  # type: ignore[method-assign]
    for _ in range(5):
        world.reconciler.sweep()
        world.let_time_pass(31)
    assert sorted(asked) == sorted(set(asked))


def test_scheduler_that_does_not_answer_delays_no_command(world: World, free: threading.Event) -> None:
    def silent(*_: Any) -> Any:
        assert free.wait(2 * DEADLINE)
        return []

    stop = stopping(world)
    world.create(max_count=9)
    world.scheduler.select_destinations = silent  # type: ignore[method-assign]
    sent = threading.Event()
    world.compute.run_command = lambda *_, **__: None  # type: ignore[method-assign]
    for _ in range(6):
        world.let_time_pass(31)
        world.reconciler.sweep()
    world.compute.run_command = lambda *_, **__: sent.set()  # type: ignore[method-assign]
    world.let_time_pass(31)
    world.reconciler.sweep()
    assert sent.wait(DEADLINE), f"the command of action {stop} waits for the scheduler"


def test_scheduler_that_answers_late_places_the_server(world: World, free: threading.Event) -> None:
    """Its request keeps the lease meanwhile: sweeps do not lease the action again, so that the answer counts."""
    choose = world.scheduler.select_destinations
    asked: list[Any] = []

    def slow(*values: Any) -> Any:
        asked.append(values)
        assert free.wait(2 * DEADLINE)
        return choose(*values)

    (uuid,) = world.create()
    world.scheduler.select_destinations = slow  # type: ignore[method-assign]
    world.let_time_pass(31)
    assert world.reconciler.sweep() == 1
    wait_for("the scheduler is asked", lambda: asked)
    for _ in range(4):
        world.let_time_pass(7)
        assert world.reconciler.sweep() == 0
    free.set()
    wait_for("the build is sent", lambda: world.compute.builds)
    assert [build.instance.uuid for _, build in world.compute.builds] == [uuid]
    assert len(asked) == 1


def test_server_past_its_deadline_fails_while_the_scheduler_does_not_answer(
    world: World, free: threading.Event
) -> None:
    def silent(*_: Any) -> Any:
        assert free.wait(2 * DEADLINE)
        return []

    (uuid,) = world.create()
    world.scheduler.select_destinations = silent  # type: ignore[method-assign]
    world.let_time_pass(31)
    assert world.reconciler.sweep() == 1
    world.let_time_pass(world.conf.conductor.action_deadline)
    world.reconciler.sweep()
    assert world.instance(uuid).vm_state == "error"


def test_corrupt_row_is_put_off_and_other_actions_are_repeated(world: World) -> None:
    broken, whole = stopping(world), stopping(world)
    world.let_time_pass(31)
    world.db.write(
        lambda uow: uow.session.execute(
            sa.text("UPDATE instance_actions SET payload = '{' WHERE id = :id").bindparams(id=broken)
        )
    )
    assert world.reconciler.sweep() == 1
    assert commands(world) == [whole]
    assert world.db.read(actions.due, 10) == [], "the broken one is not looked at all the time"


def test_sweep_takes_several_batches(world: World) -> None:
    world.reconciler.batch = 2
    expected = sorted(stopping(world) for _ in range(5))
    world.let_time_pass(31)
    assert world.reconciler.sweep() == 5
    assert sorted(commands(world)) == expected


def test_a_host_whose_hypervisor_does_not_answer_is_alive_and_not_up(world: World) -> None:
    """The host gets no servers and its open actions wait, but its report about a build is accepted."""
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    hung = heartbeat(host)
    hung.hypervisor_up = False
    world.db.write(hosts.report_state, world.conf, hung)
    service = world.db.read(services.find, host, services.COMPUTE)
    assert service is not None
    assert (service.up, world.db.read(services.seconds_silent, service) < 5) == (False, True)
    world.let_time_pass(31)
    world.reconciler.sweep()
    assert [command[0] for command in world.compute.builds] == [host]
    world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, "the hypervisor does not answer")
    world.scheduler.hosts = [host, "host2"]
    world.lifecycle.build_instances(world.context(), world.conductor.nudged)
    assert [command[0] for command in world.compute.builds] == [host, "host2"]

    (stopped,) = world.create()
    world.is_heard(host)
    assert world.db.read(hosts.is_up, host)
    world.lifecycle.build_instances(world.context(), [stopped])
    assert world.compute.builds[-1][0] == host


def test_returning_host_makes_its_waiting_actions_due(world: World) -> None:
    uuid, host, _ = world.built()
    hung = heartbeat(host)
    hung.hypervisor_up = False
    world.db.write(hosts.report_state, world.conf, hung)
    action_id = world.lifecycle.accept_action(world.context(), uuid, "stop", {}).action_id
    world.let_time_pass(31)
    world.reconciler.sweep()
    assert commands(world) == []
    world.db.write(hosts.report_state, world.conf, hung)
    world.reconciler.sweep()
    assert commands(world) == []
    world.is_heard(host)
    world.reconciler.sweep()
    assert commands(world) == [action_id]
