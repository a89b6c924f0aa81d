"""Choice of the backups that a policy keeps."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.backups import retention
from nova_lite.objects import BackupPolicy
from nova_lite.objects.backup import Every

START = datetime.datetime(2026, 11, 2)
HOUR = datetime.timedelta(hours=1)


def kept(times: list[datetime.datetime], **keep: Any) -> list[datetime.datetime]:
    policy = BackupPolicy(name="p", every=Every.HOUR, all_servers=True, **keep)
    gone = retention.superfluous(policy, times, lambda time: time)
    return [time for time in times if time not in gone]


def test_month_of_hourly_backups_leaves_hours_days_and_weeks() -> None:
    times = [START + HOUR * number for number in range(28 * 24)]
    left = kept(times, keep_hourly=3, keep_daily=2, keep_weekly=4)
    end = times[-1]
    days = [end, end - 24 * HOUR]
    weeks = [end - 7 * 24 * HOUR * number for number in range(4)]
    assert left == sorted({*(end - HOUR * number for number in range(3)), *days, *weeks})


def test_backups_pruned_one_by_one_are_those_of_the_whole_month() -> None:
    times = [START + HOUR * number for number in range(28 * 24)]
    left: list[datetime.datetime] = []
    for time in times:
        left = kept([*left, time], keep_hourly=6, keep_daily=7, keep_weekly=4)
    assert left == kept(times, keep_hourly=6, keep_daily=7, keep_weekly=4)


def test_newest_backup_is_kept_whatever_the_policy_says() -> None:
    times = [START, START + HOUR]
    assert kept(times) == [START + HOUR]
    assert kept([START]) == [START]


def test_hours_without_a_backup_do_not_count() -> None:
    times = [START, START + 100 * HOUR, START + 200 * HOUR]
    assert kept(times, keep_hourly=2) == times[1:]
