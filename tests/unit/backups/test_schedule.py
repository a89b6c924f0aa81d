"""Times of backup policies: schedules, windows, and what must have been backed up."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from nova_lite.backups import schedule
from nova_lite.base import exceptions
from nova_lite.objects import BackupPolicy
from nova_lite.objects.backup import Every

MONDAY = datetime.datetime(2026, 11, 23)


def at(text: str, day: int = 0) -> datetime.datetime:
    hour, minute = text.split(":")
    return MONDAY + datetime.timedelta(days=day, hours=int(hour), minutes=int(minute))


def minutes(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


def policy(every: Every, **values: Any) -> BackupPolicy:
    window = {name: minutes(values.pop(name)) for name in ("not_before", "not_after") if name in values}
    return BackupPolicy(name="p", every=every, all_servers=True, keep_daily=1, **window, **values)


@pytest.mark.parametrize(
    ("made", "now", "latest", "following"),
    [
        (policy(Every.HOUR, minute=15), at("10:14"), at("09:15"), at("10:15")),
        (policy(Every.HOUR, minute=15), at("10:15"), at("10:15"), at("11:15")),
        (policy(Every.HOUR, minute=15), at("00:00"), at("23:15", -1), at("00:15")),
        (policy(Every.DAY, hour=2, minute=30), at("02:29"), at("02:30", -1), at("02:30")),
        (policy(Every.DAY, hour=2, minute=30), at("23:59"), at("02:30"), at("02:30", 1)),
        (policy(Every.WEEK, weekday=6, hour=4), at("12:00"), at("04:00", -1), at("04:00", 6)),
        (policy(Every.WEEK, weekday=0, hour=4), at("03:59"), at("04:00", -7), at("04:00")),
        (policy(Every.HOUR, not_before="22:00", not_after="02:00"), at("12:00"), at("02:00"), at("22:00")),
        (policy(Every.HOUR, not_before="22:00", not_after="02:00"), at("00:30"), at("00:00"), at("01:00")),
    ],
)
def test_times_of_a_schedule(
    made: BackupPolicy, now: datetime.datetime, latest: datetime.datetime, following: datetime.datetime
) -> None:
    schedule.check(made)
    assert (schedule.latest(made, now), schedule.following(made, now)) == (latest, following)


@pytest.mark.parametrize(
    ("made", "time", "deadline"),
    [
        (policy(Every.HOUR), at("10:00"), at("11:00")),
        (policy(Every.DAY, hour=2), at("02:00"), at("02:00", 1)),
        (policy(Every.DAY, hour=2, not_before="01:00", not_after="05:00"), at("02:00"), at("05:01")),
        (policy(Every.DAY, hour=23, not_before="22:00", not_after="05:00"), at("23:00"), at("05:01", 1)),
        (policy(Every.DAY, hour=2, not_before="01:00"), at("02:00"), at("00:00", 1)),
        (policy(Every.HOUR, not_after="10:30"), at("10:00"), at("10:31")),
        (policy(Every.WEEK, not_after="06:00"), at("00:00"), at("06:01")),
    ],
)
def test_window_ends_at_the_next_time_at_the_latest(
    made: BackupPolicy, time: datetime.datetime, deadline: datetime.datetime
) -> None:
    assert schedule.deadline(made, time) == deadline


def test_policy_requires_the_last_time_whose_window_has_passed() -> None:
    daily = policy(Every.DAY, hour=2, not_before="01:00", not_after="05:00", created_at=at("00:00", -9))
    assert schedule.required(daily, at("03:00")) == at("02:00", -1)
    assert schedule.required(daily, at("05:01")) == at("02:00")
    daily.updated_at = at("02:30")
    assert schedule.required(daily, at("06:00")) is None, "nothing was due since the policy was changed"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"every": Every.HOUR, "hour": 1}, "an hourly schedule has no hour"),
        ({"every": Every.DAY, "weekday": 1}, "only a weekly schedule"),
        ({"every": Every.DAY, "keep_daily": 0}, "keeps no backup"),
        ({"every": Every.DAY, "all_servers": False}, "no target"),
        ({"every": Every.DAY, "tags": ["a"]}, "leave out servers and tags"),
        ({"every": Every.DAY, "hour": 6, "not_after": 300}, "outside of the window"),
        ({"every": Every.HOUR, "minute": 50, "not_before": 130, "not_after": 160}, "outside of the window"),
    ],
)
def test_policy_without_an_effect_is_refused(values: dict[str, Any], words: str) -> None:
    made = BackupPolicy(**{"name": "p", "all_servers": True, "keep_daily": 1, **values})
    with pytest.raises(exceptions.InvalidInput, match=words):
        schedule.check(made)


def test_offset_is_the_servers_own_and_below_the_limit() -> None:
    limit = datetime.timedelta(minutes=10)
    offsets = [schedule.offset("p", str(number), limit) for number in range(200)]
    assert offsets == [schedule.offset("p", str(number), limit) for number in range(200)]
    assert all(datetime.timedelta() <= offset < limit for offset in offsets)
    minutes_used = {int(offset.total_seconds() // 60) for offset in offsets}
    assert minutes_used == set(range(10)), "they are spread over the whole time"
