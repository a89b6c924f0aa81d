"""Choice of the backups that a policy keeps."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from nova_lite.objects.backup import BackupPolicy

T = TypeVar("T")


def _hour(time: datetime.datetime) -> Hashable:
    return time.replace(minute=0, second=0, microsecond=0)


def _day(time: datetime.datetime) -> Hashable:
    return time.date()


def _week(time: datetime.datetime) -> Hashable:
    return time.isocalendar()[:2]


def superfluous(policy: BackupPolicy, backups: Iterable[T], time_of: Callable[[T], datetime.datetime]) -> list[T]:
    """Return the complete backups of one server that the policy does not keep.

    It keeps the newest backup of each of the last hours, days and weeks that have one, as many as it names. It always
    keeps the newest backup of all.
    """
    newest_first = sorted(backups, key=time_of, reverse=True)
    kept = {id(backup) for backup in newest_first[:1]}
    for number, bucket_of in ((policy.keep_hourly, _hour), (policy.keep_daily, _day), (policy.keep_weekly, _week)):
        buckets: set[Hashable] = set()
        for backup in newest_first:
            bucket = bucket_of(time_of(backup))
            if bucket not in buckets and len(buckets) < number:
                buckets.add(bucket)
                kept.add(id(backup))
    return [backup for backup in newest_first if id(backup) not in kept]
