"""Periods of usage audits, as in Nova: ``hour``, ``day``, ``month`` or ``year``, on request with an offset."""

from __future__ import annotations

import datetime
from typing import NamedTuple

_MONTHS = 12


class Period(NamedTuple):
    """A period that has ended, or the current one until now."""

    beginning: datetime.datetime
    ending: datetime.datetime


def last_period(option: str, now: datetime.datetime) -> Period:
    """Return the last complete period before ``now``. ``option``: such as ``month`` or ``day@18``."""
    ending = _start(option, now)
    return Period(_start(option, ending - datetime.timedelta(microseconds=1)), ending)


def current_period(option: str, now: datetime.datetime) -> Period:
    """Return the period of ``now``, as far as it has passed."""
    return Period(_start(option, now), now)


def _start(option: str, moment: datetime.datetime) -> datetime.datetime:
    """Return when the period of this moment began."""
    unit, _, text = option.partition("@")
    offset = int(text or 0)
    if unit == "hour":
        start = moment.replace(minute=offset, second=0, microsecond=0)
        return start if start <= moment else start - datetime.timedelta(hours=1)
    if unit == "day":
        start = moment.replace(hour=offset, minute=0, second=0, microsecond=0)
        return start if start <= moment else start - datetime.timedelta(days=1)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "month":
        start = midnight.replace(day=offset or 1)
        if start <= moment:
            return start
        year, month = divmod(start.year * _MONTHS + start.month - 2, _MONTHS)
        return start.replace(year=year, month=month + 1)
    start = midnight.replace(month=offset or 1, day=1)
    return start if start <= moment else start.replace(year=start.year - 1)
