"""Formats that several views share. All times are UTC."""

from __future__ import annotations

import datetime


def iso_seconds(time: datetime.datetime | None) -> str | None:
    """Return a time as ``2026-11-21T08:20:32Z``."""
    return f"{time.replace(tzinfo=None).isoformat(timespec='seconds')}Z" if time is not None else None


def iso_micros(time: datetime.datetime | None) -> str | None:
    """Return a time as ``2026-11-21T08:20:33.425308``."""
    return time.replace(tzinfo=None).isoformat(timespec="microseconds") if time is not None else None
