"""Run a daemon whose clock can jump: ``python -m tests.faults.daemon nova_lite.cmd.DAEMON …``.

The effects `AHEAD` and `BEHIND` set its wall clock (``time.time``, ``datetime.now``) an hour wrong for ``seconds``. The
monotonic clock does not jump, nor does the database's (SQLite asks the machine). The daemon records the traces of its
servers (`tests.model.daemons`).
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from nova_lite.base import failpoints
from tests.model import daemons

AHEAD, BEHIND = "clock ahead", "clock behind"
HOUR = 3600.0

_real_time, _real_time_ns = time.time, time.time_ns
_real_datetime = datetime.datetime
_wrong_by = _wrong_until = 0.0


def _error() -> float:
    return _wrong_by if time.monotonic() < _wrong_until else 0.0


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_datetime)


class _WrongDatetime(_real_datetime, metaclass=_AnyDatetime):
    """All it makes are plain datetimes."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        return _real_datetime(*arguments, **keywords)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _real_datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _real_datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


def jump(by: float) -> Callable[[dict[str, Any]], None]:
    def effect(rule: dict[str, Any]) -> None:
        global _wrong_by, _wrong_until
        _wrong_by, _wrong_until = by, time.monotonic() + float(rule["seconds"])
        time.time = lambda: _real_time() + _error()
        time.time_ns = lambda: _real_time_ns() + int(_error() * 1e9)
        datetime.datetime = _WrongDatetime  # type: ignore[misc]

    return effect


def main() -> int:
    module = sys.argv.pop(1)
    daemon = importlib.import_module(module)
    daemons.record(os.environ[failpoints.DAEMON])
    failpoints.extra_effects.update({AHEAD: jump(HOUR), BEHIND: jump(-HOUR)})
    status: int = daemon.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
