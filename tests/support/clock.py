"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Returns ``time`` when it is called, like `time.monotonic`."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time
