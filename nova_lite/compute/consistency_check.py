"""Whether all that a host has is as the conductor has it: a question that travels with a heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet


class ConsistencyCheck:
    """``digest``: `nova_lite.objects.digest_of_domains` of what the host has. ``touched``: grows by the instances that
    have a job meanwhile, until ``watch`` is closed: of those it may not be true any more. `answer` is None until there
    is one."""

    def __init__(self, digest: str, touched: AbstractSet[str], watch: contextlib.ExitStack) -> None:
        self.digest = digest
        self.answer: bool | None = None
        self._touched = touched
        self._watch = watch
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self.answer is None and not self._touched and not self._closed

    def close(self) -> None:
        """Nobody wants to know it any more."""
        self._closed = True
        self._watch.close()
