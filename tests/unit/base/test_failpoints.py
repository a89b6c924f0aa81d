"""Failpoints: rules, effects, and the clock of a daemon under test."""

from __future__ import annotations

import datetime
import errno
import threading
import time
from typing import Any

import msgspec
import pytest

from nova_lite.base import failpoints
from tests.faults import daemon
from tests.support.failpoints import Rules, rules

__all__ = ["rules"]


def arm(rules: Rules, effect: str, **more: Any) -> None:
    rules.arm("fence/before", effect, **more)


def test_failpoint_rule_fires_once_and_only_at_its_point(rules: Rules) -> None:
    arm(rules, failpoints.ERROR)
    assert failpoints.reach("fence", "after") is None
    assert failpoints.reach("fence", "before") == failpoints.ERROR
    assert failpoints.reach("fence", "before") is None
    assert rules.has_fired()


def test_failpoint_hold_ends_when_it_is_released(rules: Rules) -> None:
    arm(rules, failpoints.HOLD)
    thread = threading.Thread(target=failpoints.reach, args=("fence", "before"), daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    rules.release()
    thread.join(5)
    assert not thread.is_alive()


def test_failpoint_hold_ends_after_its_seconds(rules: Rules) -> None:
    arm(rules, failpoints.HOLD, seconds=0.05)
    started = time.monotonic()
    failpoints.reach("fence", "before")
    assert 0.05 <= time.monotonic() - started < 5


def test_failpoint_full_disk_ends_after_its_seconds(rules: Rules) -> None:
    failpoints.check_disk()
    arm(rules, failpoints.FULL, seconds=10.0)
    failpoints.reach("fence", "before")
    with pytest.raises(OSError) as caught:
        failpoints.check_disk()
    assert caught.value.errno == errno.ENOSPC
    rules.time.ahead = 10.0
    failpoints.check_disk()


def test_failpoint_effect_of_a_test_is_called_with_its_rule(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setitem(failpoints.extra_effects, "more", seen.append)
    arm(rules, "more")
    failpoints.reach("fence", "before")
    assert [rule["id"] for rule in seen] == ["1"]


def test_clock_jump_ends_after_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = time.monotonic
    for module, name in ((time, "time"), (time, "time_ns"), (datetime, "datetime")):
        monkeypatch.setattr(module, name, getattr(module, name))
    before, now = time.time(), datetime.datetime.now()
    daemon.jump(-daemon.HOUR)({"seconds": 10.0})
    assert time.time() - before == pytest.approx(-daemon.HOUR, abs=5)
    assert time.time_ns() / 1e9 - before == pytest.approx(-daemon.HOUR, abs=5)
    assert (datetime.datetime.now() - now).total_seconds() == pytest.approx(-daemon.HOUR, abs=5)
    assert isinstance(now, datetime.datetime)
    for made in (datetime.datetime(2026, 1, 2, 3), datetime.datetime.fromisoformat("2026-01-02T03:00:00")):
        assert msgspec.to_builtins(made) == "2026-01-02T03:00:00"
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 10.0)
    assert time.time() - before == pytest.approx(0, abs=5)
