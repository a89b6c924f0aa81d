"""Moves on the source's and destination's host, with late and duplicate commands and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.compute.fencing import NEVER
from nova_lite.objects import DomainVerdict, Flavor, Verdict
from nova_lite.operations.states import PowerState
from tests.support.compute_host import LATER, UUID, Gate, Host, command

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN
FLAVOR = Flavor(flavorid="2", name="m2", vcpus=2, memory_mb=512, root_gb=2)

#: Sequence numbers of the commands in their action.
LEAVE, ARRIVE, DROP, RETURN = range(4)
METHODS = {LEAVE: "resize_instance", ARRIVE: "finish_resize", DROP: "drop_resize", RETURN: "finish_revert_resize"}


@pytest.fixture
def source(tmp_path: Path) -> Host:
    return Host(tmp_path / "a", name="a").built()


@pytest.fixture
def destination(tmp_path: Path) -> Host:
    return Host(tmp_path / "b", name="b")


def execute(host: Host, sequence: int, generation: int, **payload: Any) -> None:
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), **payload}
    sent = command("resize", LATER, generation, sequence=sequence, payload=values, host=host.name)
    host.manager.commands[METHODS[sequence]](host.context, sent)
    host.settle()


def left(source: Host) -> dict[str, Any]:
    execute(source, LEAVE, 1)
    (answer,) = [answer for answer in source.conductor.answers if answer]
    return {"leave": answer}


def arrive(source: Host, destination: Host, **payload: Any) -> None:
    execute(destination, ARRIVE, 2, answers=left(source), **payload)


def errors(host: Host) -> list[str | None]:
    return [error for _, _, error in host.conductor.of("finish_action")]


@pytest.mark.parametrize(("running", "power"), [(True, RUNNING), (False, SHUTDOWN)])
def test_guest_moves_to_another_host(source: Host, destination: Host, running: bool, power: PowerState) -> None:
    arrive(source, destination, running=running)
    assert (source.power(), destination.power()) == (SHUTDOWN, power)
    assert (source.domains(), destination.domains()) == ({UUID: 1}, {UUID: 2})
    disk = Path(destination.driver.hypervisor.path, "disks", UUID, "disk").read_text()
    assert disk == "generation 1\n", "it is the source's"
    assert destination.manager.host.claims.used().vcpus == 2


def test_guest_that_left_is_not_started_by_a_late_command(source: Host) -> None:
    left(source)
    source.act(command("start", LATER - 1))
    source.act(command("start", LATER + 1))
    source.settle()
    assert source.power() == SHUTDOWN
    assert "is being moved to another host" in str(errors(source)[-1])


def test_guest_that_left_is_held_after_a_kill(source: Host) -> None:
    left(source)
    again = source.next_life()
    again.act(command("start", LATER + 1))
    again.settle()
    assert again.power() == SHUTDOWN


def test_reverted_guest_ignores_a_late_command_to_leave(source: Host) -> None:
    left(source)
    execute(source, RETURN, 1)
    assert source.power() == RUNNING
    execute(source, LEAVE, 1)
    assert source.power() == RUNNING, "a late command of an earlier step"


def test_revert_overtakes_the_command_to_leave(source: Host) -> None:
    execute(source, RETURN, 1)
    execute(source, LEAVE, 1)
    assert (source.power(), source.conductor.answers) == (RUNNING, [None])


@pytest.mark.parametrize("leaves", [True, False])
def test_move_whose_guest_is_missing_is_reverted_and_the_guest_may_be_made_again(source: Host, leaves: bool) -> None:
    if leaves:
        left(source)
    source.driver.hypervisor.remove(UUID)
    if not leaves:
        execute(source, LEAVE, 1)
        assert "has no domain on this host" in str(errors(source)[-1])
    execute(source, RETURN, 1)
    assert (errors(source)[-1], source.domains()) == (None, {})
    assert source.manager.host.fencing.get(UUID).held_generation == NEVER


def test_dropped_destination_creates_nothing(source: Host, destination: Host) -> None:
    answers = left(source)
    execute(destination, DROP, 2)
    assert destination.conductor.answers == [{"done": False}]
    execute(destination, ARRIVE, 2, answers=answers)
    assert destination.traces() == []


def test_busy_destination_is_dropped_when_it_is_done(source: Host, destination: Host) -> None:
    answers = left(source)
    gate = destination.driver.hooks["finish_migration"] = Gate()
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), "answers": answers}
    sent = command("resize", LATER, 2, sequence=ARRIVE, payload=values)
    destination.manager.commands["finish_resize"](destination.context, sent)
    gate.wait()
    dropped = command("resize", LATER, 2, sequence=DROP, payload=values)
    destination.manager.commands["drop_resize"](destination.context, dropped)
    gate.open()
    destination.settle()
    assert destination.traces() == []


def test_arrived_guest_is_not_dropped(source: Host, destination: Host) -> None:
    arrive(source, destination)
    execute(destination, DROP, 2)
    assert destination.conductor.answers[-1] == {"done": True}
    assert destination.power() == RUNNING
    again = destination.next_life()
    assert again.manager.reconciler.run() == set()
    assert again.power() == RUNNING


def test_obsolete_command_creates_nothing(source: Host, destination: Host) -> None:
    destination.conductor.is_current = False
    arrive(source, destination)
    assert destination.traces() == []
    assert "is not current any more" in str(errors(destination)[-1])


@pytest.mark.parametrize("step", ["copy_disk", "finish_migration", "finish_migration_after_domain"])
def test_failed_arrival_leaves_no_guest_and_its_drop_no_files(source: Host, destination: Host, step: str) -> None:
    destination.control(fail_at=[step])
    arrive(source, destination)
    assert (destination.domains(), source.power()) == ({}, SHUTDOWN)
    execute(destination, DROP, 2)
    assert destination.traces() == []
    assert destination.manager.host.claims.used().vcpus == 0


def test_killed_destination_repeats_the_arrival(source: Host, destination: Host) -> None:
    answers = left(source)
    destination.driver.hooks["finish_migration_after_domain"] = Gate()
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), "answers": answers}
    sent = command("resize", LATER, 2, sequence=ARRIVE, payload=values)
    destination.manager.commands["finish_resize"](destination.context, sent)
    destination.driver.hooks["finish_migration_after_domain"].wait()  # type: ignore[attr-defined]
    again = destination.next_life()
    execute(again, ARRIVE, 2, answers=answers)
    assert (again.domains(), errors(again)[-1]) == ({UUID: 2}, None)


# --- on one host

CONFIRM, REVERT, REVERTED = 10, 11, 12
ONE_HOST = {
    LEAVE: "resize_instance_same_host",
    **{sequence: METHODS[sequence] for sequence in (ARRIVE, DROP, RETURN)},
    CONFIRM: "confirm_resize",
    REVERT: "revert_resize",
    REVERTED: "finish_revert_resize",
}
SMALL = Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=64, root_gb=1)


def execute_here(host: Host, sequence: int, generation: int, **payload: Any) -> None:
    ends = {end: {"host": host.name, "generation": number} for end, number in (("source", 1), ("destination", 2))}
    values = {"running": True, "flavor": msgspec.to_builtins(FLAVOR), **ends, **payload}
    sent = command("resize", LATER, generation, sequence=sequence, payload=values, host=host.name)
    sent.instance.flavor = SMALL
    host.manager.commands[ONE_HOST[sequence]](host.context, sent)
    host.settle()


def set_aside(host: Host) -> dict[str, Any]:
    execute_here(host, LEAVE, 1)
    return {"leave": next(answer for answer in reversed(host.conductor.answers) if answer)}


def aside(host: Host) -> bool:
    return any(trace.startswith("aside/") for trace in host.traces())


def write_disk(host: Host, text: str) -> None:
    Path(host.driver.hypervisor.path, "disks", UUID, "disk").write_text(text)


def read_disk(host: Host) -> str:
    return Path(host.driver.hypervisor.path, "disks", UUID, "disk").read_text()


def test_guest_is_resized_on_its_own_host(source: Host) -> None:
    write_disk(source, "the guest's")
    answers = set_aside(source)
    assert (source.domains(), aside(source)) == ({}, True)
    execute_here(source, ARRIVE, 2, answers=answers)
    assert (source.domains(), source.power(), aside(source)) == ({UUID: 2}, RUNNING, True)
    assert (read_disk(source), source.manager.host.claims.used().vcpus) == ("the guest's", 2)
    execute_here(source, CONFIRM, 1)
    assert errors(source) == [None] * 3
    assert (source.domains(), source.power(), aside(source)) == ({UUID: 2}, RUNNING, False)
    assert read_disk(source) == "the guest's"


@pytest.mark.parametrize("kills", [False, True])
def test_resize_on_its_own_host_is_reverted(source: Host, kills: bool) -> None:
    def life() -> Host:
        return source.next_life() if kills else source

    write_disk(source, "before")
    answers = set_aside(source)
    execute_here(source, ARRIVE, 2, answers=answers)
    write_disk(source, "after")
    source = life()
    execute_here(source, REVERT, 2)
    assert (source.domains(), aside(source)) == ({}, True)
    source = life()
    execute_here(source, REVERTED, 1)
    assert errors(source)[-1] is None
    assert (source.domains(), source.power(), aside(source)) == ({UUID: 1}, RUNNING, False)
    assert (read_disk(source), source.manager.host.claims.used().vcpus) == ("before", 1)
    source = source.next_life()
    assert source.manager.reconciler.run() == set(), "the revocation of the later generation does not affect this one"
    assert source.domains() == {UUID: 1}
    assert source.manager.host.claims.used().vcpus == 1
    source.act(command("reboot", LATER + 1))
    source.settle()
    assert (source.power(), errors(source)[-1]) == (RUNNING, None)


@pytest.mark.parametrize("step", ["migrate_disk", "set_aside", "copy_disk", "finish_migration_after_domain"])
def test_failed_resize_on_its_own_host_is_rolled_back(source: Host, step: str) -> None:
    write_disk(source, "before")
    source.control(fail_at=[step])
    if step in ("migrate_disk", "set_aside"):
        execute_here(source, LEAVE, 1)
    else:
        execute_here(source, ARRIVE, 2, answers=set_aside(source))
        source.control()
        execute_here(source, DROP, 2)
    assert f"configured to fail at {step}" in "".join(filter(None, errors(source)))
    source.control()
    execute_here(source, RETURN, 1)
    assert (source.domains(), source.power(), aside(source)) == ({UUID: 1}, RUNNING, False)
    assert read_disk(source) == "before"


@pytest.mark.parametrize("step", ["set_aside", "restore_set_aside"])
def test_killed_resize_on_its_own_host_continues(source: Host, step: str) -> None:
    write_disk(source, "before")
    if step == "restore_set_aside":
        set_aside(source)
    source.driver.hooks[step] = gate = Gate()
    values = {"running": True, "source": {"host": source.name}, "destination": {"host": source.name}}
    sequence, generation = (LEAVE, 1) if step == "set_aside" else (RETURN, 1)
    sent = command("resize", LATER, generation, sequence=sequence, payload=values, host=source.name)
    sent.instance.flavor = SMALL
    source.manager.commands[ONE_HOST[sequence]](source.context, sent)
    gate.wait()
    again = source.next_life()
    assert again.manager.reconciler.run() == set()
    if step == "set_aside":
        execute_here(again, ARRIVE, 2, answers=set_aside(again))
        assert again.domains() == {UUID: 2}
    else:
        execute_here(again, RETURN, 1)
        assert again.domains() == {UUID: 1}
    assert read_disk(again) == "before"


@pytest.mark.parametrize("moment", ["leave", "arrive"])
def test_delete_during_a_resize_on_its_own_host_leaves_nothing(source: Host, moment: str) -> None:
    answers = set_aside(source)
    if moment == "arrive":
        execute_here(source, ARRIVE, 2, answers=answers)
    for generation in (1, 2):  # one command to the source, one to the destination
        source.act(command("delete", LATER + 1, generation))
        source.settle()
    assert (source.traces(), errors(source)[-1]) == ([], None)
    execute_here(source, ARRIVE, 2, answers=answers)
    assert source.traces() == []


def test_set_aside_guest_without_a_domain_is_a_leftover(source: Host) -> None:
    set_aside(source)
    source.driver.networks.unplug(UUID)
    source.conductor.verdicts = [DomainVerdict(uuid=UUID, generation=1, verdict=Verdict.DESTROY)]
    source.manager.reconciler.run()
    assert source.conductor.of("reconcile_domains")[-1] == ([], [UUID])
    assert source.traces() == []


def test_replacement_is_removed_when_the_original_is_restored(source: Host) -> None:
    """The host was forced down meanwhile, so it received no command to drop the replacement."""
    execute_here(source, ARRIVE, 2, answers=set_aside(source))
    execute_here(source, RETURN, 1)
    assert (source.domains(), source.power(), aside(source)) == ({UUID: 1}, RUNNING, False)
