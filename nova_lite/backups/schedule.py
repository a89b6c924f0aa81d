"""Times of a backup policy's schedule and window. All times are naive UTC."""

from __future__ import annotations

import datetime
import hashlib

from nova_lite.base import exceptions
from nova_lite.objects.backup import BackupPolicy, Every

PERIODS = {
    Every.HOUR: datetime.timedelta(hours=1),
    Every.DAY: datetime.timedelta(days=1),
    Every.WEEK: datetime.timedelta(weeks=1),
}
#: Number of periods after which a schedule and its window repeat.
_CYCLE = {Every.HOUR: 24, Every.DAY: 1, Every.WEEK: 1}
_MINUTE = datetime.timedelta(minutes=1)
_DAY = datetime.timedelta(days=1)
_MINUTES = 24 * 60


def check(policy: BackupPolicy) -> None:
    """Raise `InvalidInput` for a policy that makes no backup, or keeps none."""
    if policy.every is Every.HOUR and policy.hour:
        raise exceptions.InvalidInput(reason="an hourly schedule has no hour, only a minute")
    if policy.every is not Every.WEEK and policy.weekday:
        raise exceptions.InvalidInput(reason="only a weekly schedule (every: week) has a weekday")
    if not policy.keep_hourly + policy.keep_daily + policy.keep_weekly:
        raise exceptions.InvalidInput(reason="the retention keeps no backup: set hourly, daily or weekly to 1 or more")
    if policy.all_servers and (policy.servers or policy.tags):
        raise exceptions.InvalidInput(reason="the target all includes every server: leave out servers and tags")
    if not (policy.all_servers or policy.servers or policy.tags):
        raise exceptions.InvalidInput(reason="the policy has no target: name servers or tags, or set all to true")
    if _newest(policy, datetime.datetime(2001, 1, 8)) is None:
        raise exceptions.InvalidInput(
            reason="the time of the schedule is outside of the window, so no backup begins: choose a time within it"
        )


def latest(policy: BackupPolicy, now: datetime.datetime) -> datetime.datetime:
    """Return the last time of the schedule, at or before ``now``. The policy has passed `check`."""
    found = _newest(policy, now)
    assert found is not None
    return found


def following(policy: BackupPolicy, now: datetime.datetime) -> datetime.datetime:
    """Return the first time of the schedule after ``now``."""
    period = PERIODS[policy.every]
    time = _floor(policy, now) + period
    while not _in_window(policy, time):
        time += period
    return time


def deadline(policy: BackupPolicy, time: datetime.datetime) -> datetime.datetime:
    """Return when the window of a time of the schedule ends: at the latest, at the next time."""
    following_time = following(policy, time)
    if policy.not_before is None and policy.not_after is None:
        return following_time
    last = policy.not_after if policy.not_after is not None else _MINUTES - 1
    end = time.replace(hour=last // 60, minute=last % 60, second=0, microsecond=0) + _MINUTE
    return min(following_time, end if end > time else end + _DAY)


def required(policy: BackupPolicy, now: datetime.datetime) -> datetime.datetime | None:
    """Return the last time of the schedule whose window has passed since the policy was made or changed; None if there
    is none yet."""
    time = latest(policy, now)
    while deadline(policy, time) > now:
        time = latest(policy, time - datetime.timedelta(microseconds=1))
    since = policy.updated_at or policy.created_at
    return time if since is None or time >= since else None


def offset(policy_id: str, instance_uuid: str, limit: datetime.timedelta) -> datetime.timedelta:
    """Return how long after the time of the schedule a server's backup begins: below ``limit``, always the same."""
    number = int.from_bytes(hashlib.sha256(f"{policy_id} {instance_uuid}".encode()).digest()[:8])
    return limit * (number / 2**64)


def _newest(policy: BackupPolicy, now: datetime.datetime) -> datetime.datetime | None:
    time = _floor(policy, now)
    for _ in range(_CYCLE[policy.every]):
        if _in_window(policy, time):
            return time
        time -= PERIODS[policy.every]
    return None


def _floor(policy: BackupPolicy, now: datetime.datetime) -> datetime.datetime:
    """Return the last time of the schedule without regard to the window."""
    time = now.replace(minute=policy.minute, second=0, microsecond=0)
    if policy.every is not Every.HOUR:
        time = time.replace(hour=policy.hour)
    if policy.every is Every.WEEK:
        time += _DAY * (policy.weekday - time.weekday())
    return time if time <= now else time - PERIODS[policy.every]


def _in_window(policy: BackupPolicy, time: datetime.datetime) -> bool:
    first, last = policy.not_before or 0, policy.not_after if policy.not_after is not None else _MINUTES - 1
    minute = time.hour * 60 + time.minute
    return first <= minute <= last if first <= last else minute >= first or minute <= last
