"""Clocks that tests set."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Returns ``time`` when it is called, like `time.monotonic`."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class ShiftedTime:
    """Stands for the module `time` in a module under test. Its monotonic clock is ``ahead`` by so many seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead
