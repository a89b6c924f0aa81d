"""Both ends of a move on their hosts: late and doubled orders, and kills, in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.objects import Flavor
from nova_lite.states import PowerState
from tests.unit.compute.fakes import LATER, UUID, Gate, Host, ticket

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN
FLAVOR = Flavor(flavorid="2", name="m2", vcpus=2, memory_mb=512, root_gb=2)

#: The orders' places in their action.
LEAVE, ARRIVE, DROP, RETURN = range(4)
METHODS = {LEAVE: "resize_instance", ARRIVE: "finish_resize", DROP: "drop_resize", RETURN: "finish_revert_resize"}


@pytest.fixture
def source(tmp_path: Path) -> Host:
    return Host(tmp_path / "a", name="a").built()


@pytest.fixture
def destination(tmp_path: Path) -> Host:
    return Host(tmp_path / "b", name="b")


def order(host: Host, position: int, generation: int, **payload: Any) -> None:
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), **payload}
    sent = ticket("resize", LATER, generation, position=position, payload=values, host=host.name)
    host.manager.orders[METHODS[position]](host.context, sent)
    host.settle()


def left(source: Host) -> dict[str, Any]:
    order(source, LEAVE, 1)
    (answer,) = [answer for answer in source.conductor.answers if answer]
    return {"leave": answer}


def arrive(source: Host, destination: Host, **payload: Any) -> None:
    order(destination, ARRIVE, 2, answers=left(source), **payload)


def errors(host: Host) -> list[str | None]:
    return [error for _, _, error in host.conductor.of("finish_action")]


@pytest.mark.parametrize(("running", "power"), [(True, RUNNING), (False, SHUTDOWN)])
def test_a_guest_moves(source: Host, destination: Host, running: bool, power: PowerState) -> None:
    arrive(source, destination, running=running)
    assert (source.power(), destination.power()) == (SHUTDOWN, power)
    assert (source.domains(), destination.domains()) == ({UUID: 1}, {UUID: 2})
    disk = Path(destination.driver.path, "disks", UUID, "disk").read_text()
    assert disk == "generation 1\n", "it is the source's"
    assert destination.manager.host.claims.used().vcpus == 2


def test_what_has_left_is_not_started_by_a_late_order(source: Host) -> None:
    left(source)
    source.act(ticket("start", LATER - 1))
    source.act(ticket("start", LATER + 1))
    source.settle()
    assert source.power() == SHUTDOWN
    assert "is being moved to another host" in str(errors(source)[-1])


def test_what_has_left_is_held_back_over_a_kill(source: Host) -> None:
    left(source)
    again = source.next_life()
    again.act(ticket("start", LATER + 1))
    again.settle()
    assert again.power() == SHUTDOWN


def test_the_way_back_and_a_late_order_to_leave(source: Host) -> None:
    left(source)
    order(source, RETURN, 1)
    assert source.power() == RUNNING
    order(source, LEAVE, 1)
    assert source.power() == RUNNING, "an earlier step of the same action came late"


def test_the_way_back_overtakes_the_order_to_leave(source: Host) -> None:
    order(source, RETURN, 1)
    order(source, LEAVE, 1)
    assert (source.power(), source.conductor.answers) == (RUNNING, [None])


def test_a_dropped_destination_makes_nothing_any_more(source: Host, destination: Host) -> None:
    answers = left(source)
    order(destination, DROP, 2)
    assert destination.conductor.answers == [{"done": False}]
    order(destination, ARRIVE, 2, answers=answers)
    assert destination.traces() == []


def test_a_destination_that_is_at_it_is_dropped_when_it_is_done(source: Host, destination: Host) -> None:
    answers = left(source)
    gate = destination.driver.hooks["finish_migration"] = Gate()
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), "answers": answers}
    sent = ticket("resize", LATER, 2, position=ARRIVE, payload=values)
    destination.manager.orders["finish_resize"](destination.context, sent)
    gate.wait()
    dropped = ticket("resize", LATER, 2, position=DROP, payload=values)
    destination.manager.orders["drop_resize"](destination.context, dropped)
    gate.open()
    destination.settle()
    assert destination.traces() == []


def test_what_has_arrived_is_not_thrown_away(source: Host, destination: Host) -> None:
    arrive(source, destination)
    order(destination, DROP, 2)
    assert destination.conductor.answers[-1] == {"done": True}
    assert destination.power() == RUNNING
    again = destination.next_life()
    assert again.manager.reconciler.run() == set()
    assert again.power() == RUNNING


def test_an_order_that_nobody_waits_for_makes_nothing(source: Host, destination: Host) -> None:
    destination.conductor.wanted = False
    arrive(source, destination)
    assert destination.traces() == []
    assert "is not current any more" in str(errors(destination)[-1])


@pytest.mark.parametrize("step", ["copy_disk", "finish_migration", "finish_migration_after_domain"])
def test_a_failure_leaves_no_guest_and_its_drop_nothing(source: Host, destination: Host, step: str) -> None:
    destination.control(fail_at=[step])
    arrive(source, destination)
    assert (destination.domains(), source.power()) == ({}, SHUTDOWN)
    order(destination, DROP, 2)
    assert destination.traces() == []
    assert destination.manager.host.claims.used().vcpus == 0


def test_a_destination_that_was_killed_does_it_again(source: Host, destination: Host) -> None:
    answers = left(source)
    destination.driver.hooks["finish_migration_after_domain"] = Gate()
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), "answers": answers}
    sent = ticket("resize", LATER, 2, position=ARRIVE, payload=values)
    destination.manager.orders["finish_resize"](destination.context, sent)
    destination.driver.hooks["finish_migration_after_domain"].wait()  # type: ignore[attr-defined]
    again = destination.next_life()
    order(again, ARRIVE, 2, answers=answers)
    assert (again.domains(), errors(again)[-1]) == ({UUID: 2}, None)
