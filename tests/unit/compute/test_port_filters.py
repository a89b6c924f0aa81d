"""When a host asks what it has to filter."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite import exception
from nova_lite.compute import port_filters
from nova_lite.compute.port_filters import PortFilterKeeper
from nova_lite.objects import PortFilters


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


class Conductor:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.error: Exception | None = None

    def port_filters_get(self, context: Any, host: str, instance_uuids: list[str]) -> PortFilters:
        self.asked.append(instance_uuids)
        if self.error is not None:
            raise self.error
        return PortFilters(instances={each: [] for each in instance_uuids})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(port_filters.time, "monotonic", lambda: now[0])
    return now


def keeper(driver: Any, conductor: Conductor) -> PortFilterKeeper:
    return PortFilterKeeper("h1", driver, conductor, 60.0)  # type: ignore[arg-type]


def test_it_asks_at_its_start_after_news_and_after_a_while(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    kept = keeper(driver, conductor)
    for _ in range(3):
        kept.tick()
    assert (conductor.asked, len(driver.told)) == ([["a"]], 1)
    kept.refresh_soon()
    kept.tick()
    assert len(conductor.asked) == 2
    clock[0] += 59
    kept.tick()
    assert len(conductor.asked) == 2
    clock[0] += 1
    kept.tick()
    kept.tick()
    assert len(conductor.asked) == 3


def test_a_new_interface_is_asked_for_at_once(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    kept = keeper(driver, conductor)
    kept.tick()
    driver.plugged = ["a", "b"]
    kept.tick()
    kept.tick()
    assert conductor.asked == [["a"], ["a", "b"]]


def test_without_guests_nothing_is_asked(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    driver.plugged = []
    keeper(driver, conductor).tick()
    keeper(object(), conductor).tick()
    assert conductor.asked == []


@pytest.mark.parametrize("error", [exception.MessagingUnavailable(what="x"), RuntimeError("x")])
def test_what_fails_is_tried_again_but_not_at_once(clock: list[float], error: Exception) -> None:
    driver, conductor = Driver(), Conductor()
    kept = keeper(driver, conductor)
    conductor.error = error
    with pytest.raises(type(error)):
        kept.tick()
    kept.tick()
    assert len(conductor.asked) == 1
    conductor.error = None
    clock[0] += port_filters.RETRY_PAUSE
    kept.tick()
    assert len(conductor.asked) == 2
    assert len(driver.told) == 1


def test_a_conductor_of_before_is_asked_now_and_then(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    kept = keeper(driver, conductor)
    conductor.error = exception.ServiceTooOld("old")
    kept.tick()
    clock[0] += port_filters.TOO_OLD_PAUSE - 1
    kept.tick()
    assert len(conductor.asked) == 1
    clock[0] += 1
    conductor.error = None
    kept.tick()
    assert len(driver.told) == 1
