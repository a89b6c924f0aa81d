"""A database that lost its last commits assigns ids again that this host has seen. Their commands are executed."""

from __future__ import annotations

import pytest

from nova_lite.objects import ActionCommand
from nova_lite.operations.states import PowerState
from tests.support.compute_host import LATER, UUID, Host, command

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN


def execute(host: Host, action: str, action_id: int, request_id: str, is_open: bool = True) -> ActionCommand:
    if is_open:
        host.conductor.open_requests.add(request_id)
    made = command(action, action_id, request_id=request_id)
    host.act(made)
    host.settle()
    return made


def reports(host: Host) -> list[tuple[int, int | None]]:
    return [(action_id, power) for action_id, power, _ in host.conductor.of("finish_action")]


@pytest.fixture
def ahead(host: Host) -> Host:
    """Host that has seen actions up to LATER + 5, which the database does not know."""
    host.built()
    execute(host, "start", LATER + 5, "req-lost", is_open=False)
    assert reports(host) == [(LATER + 5, RUNNING)]
    return host


def test_command_with_a_reused_id_is_executed(ahead: Host) -> None:
    execute(ahead, "stop", LATER, "req-new")
    assert (ahead.power(), reports(ahead)[1:]) == (SHUTDOWN, [(LATER, SHUTDOWN)])
    life = ahead.next_life()
    execute(life, "stop", LATER, "req-new")
    assert reports(life)[2:] == [(LATER, SHUTDOWN)], "a repeated command is only reported again, also after a restart"
    assert ahead.driver.steps.count("power_off") == 1


def test_command_with_the_id_of_another_request_is_another_command(ahead: Host) -> None:
    execute(ahead, "stop", LATER + 5, "req-new")
    assert (ahead.power(), reports(ahead)[1:]) == (SHUTDOWN, [(LATER + 5, SHUTDOWN)])


def test_repeated_delete_with_a_reused_id_ends(ahead: Host) -> None:
    for _ in range(2):
        execute(ahead, "delete", LATER, "req-new")
    assert ahead.traces() == []
    assert reports(ahead)[1:] == [(LATER, None)] * 2


def test_late_command_stays_late(ahead: Host) -> None:
    execute(ahead, "stop", LATER, "req-late", is_open=False)
    assert (ahead.power(), len(reports(ahead))) == (RUNNING, 1)


def test_commands_lost_by_the_database_are_not_executed_later(ahead: Host) -> None:
    execute(ahead, "stop", LATER, "req-new")
    execute(ahead, "start", LATER + 6, "req-lost-too", is_open=False)
    assert (ahead.power(), len(reports(ahead))) == (SHUTDOWN, 2)
    execute(ahead, "start", LATER + 6, "req-next")
    assert ahead.power() == RUNNING


def test_build_with_a_reused_id_is_built_and_reported(ahead: Host) -> None:
    ahead.conductor.open_requests.add("req-rebuild")
    ahead.build(2, action_id=LATER, request_id="req-rebuild")
    ahead.settle()
    assert (ahead.domains(), ahead.conductor.outcomes[1:]) == ({UUID: 2}, [(2, "built")])
    execute(ahead, "stop", LATER + 1, "req-next")
    assert ahead.conductor.of("finish_action")[-1][0] == LATER + 1
