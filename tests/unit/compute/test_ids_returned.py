"""A database that lost its last commits gives ids again that this host has seen: its orders are obeyed all the same."""

from __future__ import annotations

import pytest

from nova_lite.objects import ActionCommand
from nova_lite.operations.states import PowerState
from tests.unit.compute.fakes import LATER, UUID, Host, ticket

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN


def order(host: Host, action: str, action_id: int, request_id: str, is_open: bool = True) -> ActionCommand:
    if is_open:
        host.conductor.open_requests.add(request_id)
    made = ticket(action, action_id, request_id=request_id)
    host.act(made)
    host.settle()
    return made


def reports(host: Host) -> list[tuple[int, int | None]]:
    return [(action_id, power) for action_id, power, _ in host.conductor.of("finish_action")]


@pytest.fixture
def ahead(host: Host) -> Host:
    """It has seen the actions up to LATER + 5, of which the database knows none."""
    host.built()
    order(host, "start", LATER + 5, "req-lost", is_open=False)
    assert reports(host) == [(LATER + 5, RUNNING)]
    return host


def test_an_order_with_an_id_that_came_back_is_obeyed(ahead: Host) -> None:
    order(ahead, "stop", LATER, "req-new")
    assert (ahead.power(), reports(ahead)[1:]) == (SHUTDOWN, [(LATER, SHUTDOWN)])
    life = ahead.next_life()
    order(life, "stop", LATER, "req-new")
    assert reports(life)[2:] == [(LATER, SHUTDOWN)], "once more: only reported again, also by a later life"
    assert ahead.driver.steps.count("power_off") == 1


def test_the_very_id_of_another_request_is_another_order(ahead: Host) -> None:
    order(ahead, "stop", LATER + 5, "req-new")
    assert (ahead.power(), reports(ahead)[1:]) == (SHUTDOWN, [(LATER + 5, SHUTDOWN)])


def test_a_delete_that_is_repeated_ends(ahead: Host) -> None:
    for _ in range(2):
        order(ahead, "delete", LATER, "req-new")
    assert ahead.traces() == []
    assert reports(ahead)[1:] == [(LATER, None)] * 2


def test_what_is_late_stays_late(ahead: Host) -> None:
    order(ahead, "stop", LATER, "req-late", is_open=False)
    assert (ahead.power(), len(reports(ahead))) == (RUNNING, 1)


def test_orders_of_the_lost_time_are_not_obeyed_afterwards(ahead: Host) -> None:
    order(ahead, "stop", LATER, "req-new")
    order(ahead, "start", LATER + 6, "req-lost-too", is_open=False)
    assert (ahead.power(), len(reports(ahead))) == (SHUTDOWN, 2)
    order(ahead, "start", LATER + 6, "req-next")
    assert ahead.power() == RUNNING


def test_a_build_with_an_id_that_came_back_is_built_and_reported(ahead: Host) -> None:
    ahead.conductor.open_requests.add("req-rebuild")
    ahead.build(2, action_id=LATER, request_id="req-rebuild")
    ahead.settle()
    assert (ahead.domains(), ahead.conductor.outcomes[1:]) == ({UUID: 2}, [(2, "built")])
    order(ahead, "stop", LATER + 1, "req-next")
    assert ahead.conductor.of("finish_action")[-1][0] == LATER + 1
