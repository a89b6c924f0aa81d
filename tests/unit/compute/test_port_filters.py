"""When a host asks what it has to filter."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.compute import port_filters
from nova_lite.compute.port_filters import PortFilterSync
from nova_lite.objects import PortFilters, SecurityGroup
from tests.unit.compute.fakes import make_instance


class Driver:
    """It was told of nothing yet."""

    def __init__(self) -> None:
        self.plugged = ["a"]
        self.told: list[PortFilters] = []

    def filtered_instances(self) -> list[str]:
        return self.plugged

    def lacks_port_filters(self) -> bool:
        return bool(self.plugged) and not (self.told and set(self.plugged) <= self.told[-1].instances.keys())

    def set_port_filters(self, filters: PortFilters) -> None:
        self.told.append(filters)


def group(project: str, *members: str) -> SecurityGroup:
    return SecurityGroup(id=f"{project}-default", name="default", project_id=project, members=[*members])


class Conductor:
    """``projects``: by server; each has one group, whose members are those servers of it that are ``members``."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.error: Exception | None = None
        self.projects: dict[str, str] = {}
        self.members: list[str] = []
        #: The database's time, in seconds; None: it is one of before, which does not tell.
        self.time: int | None = 0

    def port_filters_get(self, context: Any, host: str, instance_uuids: list[str]) -> PortFilters:
        self.asked.append(instance_uuids)
        if self.error is not None:
            raise self.error
        return self.filters(instance_uuids)

    def filters(self, instance_uuids: list[str]) -> PortFilters:
        projects = {self.projects[each] for each in instance_uuids if each in self.projects}
        groups = [group(each, *(m for m in self.members if self.projects[m] == each)) for each in projects]
        return PortFilters(
            groups={each.id: each for each in groups},
            instances={
                each: [f"{self.projects[each]}-default"] if each in self.projects else [] for each in instance_uuids
            },
            floating={f"port-{each}": each for each in self.members},
            read_at=None if self.time is None else datetime.datetime(2026, 1, 1, 0, 0, self.time),
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(port_filters.time, "monotonic", lambda: now[0])
    return now


def keeper(driver: Any, conductor: Conductor) -> PortFilterSync:
    return PortFilterSync("h1", driver, conductor, 60.0)  # type: ignore[arg-type]


def steady(driver: Any, conductor: Conductor) -> PortFilterSync:
    """One that has its first interval, which is another one on each host, behind it."""
    sync = keeper(driver, conductor)
    sync._first = 60.0
    return sync


def test_it_asks_at_its_start_after_news_and_after_a_while(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    for _ in range(3):
        sync.tick()
    assert (conductor.asked, len(driver.told)) == ([["a"]], 1)
    sync.refresh_soon()
    sync.tick()
    assert len(conductor.asked) == 2
    clock[0] += 59
    sync.tick()
    assert len(conductor.asked) == 2
    clock[0] += 1
    sync.tick()
    sync.tick()
    assert len(conductor.asked) == 3


def test_a_new_interface_is_asked_for_at_once(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    sync.tick()
    driver.plugged = ["a", "b"]
    sync.tick()
    sync.tick()
    assert conductor.asked == [["a"], ["a", "b"]]


def plug(driver: Driver, sync: PortFilterSync, uuid: str, project: str) -> None:
    driver.plugged = [*driver.plugged, uuid]
    sync.interfaces_plugged(make_instance(uuid, project_id=project))


def test_for_a_new_guest_it_asks_of_its_project_and_keeps_the_others(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "p", "d": "q"}
    conductor.members = ["a"]
    sync.tick()
    conductor.members = ["a", "b"]
    plug(driver, sync, "b", "q")
    sync.tick()
    assert conductor.asked == [["a"], ["b"]]
    assert driver.told[-1].groups == {"p-default": group("p", "a"), "q-default": group("q", "b")}
    assert driver.told[-1].instances == {"a": ["p-default"], "b": ["q-default"]}
    assert driver.told[-1].floating == {"port-a": "a", "port-b": "b"}

    conductor.members = ["a", "b", "c", "d"]
    plug(driver, sync, "c", "p")
    plug(driver, sync, "d", "q")
    driver.plugged.remove("b")
    sync.tick()
    assert conductor.asked[2:] == [["a", "c", "d"]]
    assert driver.told[-1].groups == {"p-default": group("p", "a", "c"), "q-default": group("q", "b", "d")}
    assert driver.told[-1].instances == {"a": ["p-default"], "c": ["p-default"], "d": ["q-default"]}
    sync.tick()
    assert len(conductor.asked) == 3


def test_guests_without_a_group_are_asked_for_with_any_new_one(clock: list[float]) -> None:
    """One of its interfaces may be in a group of its own, of that project."""
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"b": "q"}
    sync.tick()
    plug(driver, sync, "b", "q")
    sync.tick()
    assert conductor.asked == [["a"], ["a", "b"]]


@pytest.mark.parametrize("why", ["news", "somebody else", "time", "failure"])
def test_beside_a_new_guest_it_asks_for_all_for_another_reason(why: str, clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "q"}
    sync.tick()
    plug(driver, sync, "b", "q")
    if why == "news":
        sync.refresh_soon()
    elif why == "somebody else":
        driver.plugged.append("c")
    elif why == "time":
        clock[0] += 60
    else:
        conductor.error = RuntimeError("x")
        with pytest.raises(RuntimeError):
            sync.tick()
        conductor.error = None
        clock[0] += port_filters.RETRY_PAUSE
    sync.tick()
    assert conductor.asked[-1] == driver.plugged


def test_without_guests_nothing_is_asked(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    driver.plugged = []
    keeper(driver, conductor).tick()
    keeper(object(), conductor).tick()
    assert conductor.asked == []


@pytest.mark.parametrize("error", [exceptions.MessagingUnavailable(what="x"), RuntimeError("x")])
def test_what_fails_is_tried_again_but_not_at_once(clock: list[float], error: Exception) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.error = error
    with pytest.raises(type(error)):
        sync.tick()
    sync.tick()
    assert len(conductor.asked) == 1
    conductor.error = None
    clock[0] += port_filters.RETRY_PAUSE
    sync.tick()
    assert len(conductor.asked) == 2
    assert len(driver.told) == 1


def test_a_conductor_of_before_is_asked_now_and_then(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.error = exceptions.ServiceTooOld("old")
    sync.tick()
    clock[0] += port_filters.TOO_OLD_PAUSE - 1
    sync.tick()
    assert len(conductor.asked) == 1
    clock[0] += 1
    conductor.error = None
    sync.tick()
    assert len(driver.told) == 1


# --- what comes with orders


@pytest.fixture
def told_once(clock: list[float]) -> tuple[Driver, Conductor, PortFilterSync]:
    """It has a guest of project p and one of q, and has asked."""
    driver, conductor = Driver(), Conductor()
    driver.plugged = ["a", "b"]
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "q", "d": "q", "e": "p"}
    conductor.members = ["a", "b"]
    sync.tick()
    conductor.asked.clear()
    driver.told.clear()
    conductor.time, conductor.members = 1, ["a", "b", "c"]
    return driver, conductor, sync


Told = tuple[Driver, Conductor, PortFilterSync]


def test_what_comes_with_an_order_is_not_asked_for(told_once: Told) -> None:
    driver, conductor, sync = told_once
    sync.commands_received(["c"], conductor.filters(["b", "c"]))
    sync.tick()
    assert driver.told[-1].groups == {"p-default": group("p", "a"), "q-default": group("q", "b", "c")}
    assert driver.told[-1].instances == {"a": ["p-default"], "b": ["q-default"], "c": ["q-default"]}
    assert driver.told[-1].read_at is None, "or it would differ each time"
    plug(driver, sync, "c", "q")
    sync.tick()
    sync.tick()
    assert (conductor.asked, len(driver.told)) == ([], 1)


def test_several_of_one_message(told_once: Told) -> None:
    driver, conductor, sync = told_once
    sync.commands_received(["c", "d"], conductor.filters(["b", "c", "d"]))
    plug(driver, sync, "d", "q")
    sync.tick()
    plug(driver, sync, "c", "q")
    sync.tick()
    assert (conductor.asked, driver.told[-1].instances.keys()) == ([], {"a", "b", "c", "d"})


def test_what_waits_for_its_interfaces_survives_other_answers(told_once: Told) -> None:
    driver, conductor, sync = told_once
    sync.commands_received(["c"], conductor.filters(["b", "c"]))
    sync.tick()
    conductor.time = 2
    plug(driver, sync, "e", "p")
    sync.tick()
    assert conductor.asked == [["a", "e"]]
    plug(driver, sync, "c", "q")
    sync.tick()
    assert len(conductor.asked) == 1 and driver.told[-1].instances.keys() == {"a", "b", "c", "e"}


@pytest.mark.parametrize("why", ["older", "same time", "no time", "never asked", "news", "ordered again", "time"])
def test_it_asks_all_the_same(told_once: Told, clock: list[float], why: str) -> None:
    """Where something may have changed since."""
    driver, conductor, sync = told_once
    if why == "never asked":
        sync = steady(driver, conductor)
        driver.plugged = []
        sync.tick()
        driver.plugged = ["b"]
    conductor.time = {"older": 0, "same time": 0, "no time": None}.get(why, 1)
    filters = conductor.filters(["b", "c"])
    if why == "older":
        sync._current.read_at = datetime.datetime(2026, 1, 1, 0, 0, 5)
    sync.commands_received(["c"], filters)
    if why == "news":
        sync.refresh_soon()
    if why == "ordered again":
        sync.commands_received(["c"], None)
    if why == "time":
        sync.tick()
        clock[0] += 60
    plug(driver, sync, "c", "q")
    sync.tick()
    assert len(conductor.asked) == 1 and "c" in conductor.asked[0]
    assert driver.told[-1].instances["c"] == ["q-default"]


def test_a_refusal_is_not_forgotten_with_what_was_told(told_once: Told) -> None:
    """A host that could not be told its filters asks for all."""
    driver, conductor, sync = told_once

    def fails(filters: PortFilters) -> None:
        raise exceptions.VirtDriverError(reason="x")

    driver.set_port_filters = fails  # type: ignore[method-assign]
    sync.commands_received(["c"], conductor.filters(["b", "c"]))
    with pytest.raises(exceptions.VirtDriverError):
        sync.tick()
    del driver.set_port_filters  # type: ignore[attr-defined]
    plug(driver, sync, "c", "q")
    sync._not_before = 0.0
    sync.tick()
    assert conductor.asked == [["a", "b", "c"]]


def test_a_driver_that_filters_nothing_keeps_nothing(clock: list[float]) -> None:
    conductor = Conductor()
    sync = keeper(object(), conductor)
    for _ in range(3):
        sync.commands_received(["c"], conductor.filters(["c"]))
        sync.tick()
    assert not sync._received


def test_hosts_that_were_started_together_do_not_ask_together(clock: list[float]) -> None:
    conductor = Conductor()
    hosts = [keeper(Driver(), conductor) for _ in range(100)]
    for each in hosts:
        each.tick()
    assert len(conductor.asked) == 100
    clock[0] += 30
    for each in hosts:
        each.tick()
    assert 110 < len(conductor.asked) < 190
