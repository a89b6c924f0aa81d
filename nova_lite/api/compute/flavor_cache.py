"""Flavors rarely change and are asked for often: an API process answers from what it has just read."""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import Flavor

T = TypeVar("T")

Table = dict[Hashable, Any]


class FlavorCache:
    """In place of a conductor's client: `flavor_list` and `flavor_get` ask it once in ``seconds``, anything else each
    time. What changes flavors through this client is seen in the next answer; through another process, after
    ``seconds`` at most."""

    def __init__(self, conductor: ConductorRPC, seconds: float) -> None:
        self._conductor = conductor
        self._seconds = seconds
        self._table: Table = {}
        self._until = 0.0

    def flavor_list(self, context: RequestContext, *arguments: Any) -> list[Flavor]:
        return self._kept(context, arguments, lambda: self._conductor.flavor_list(context, *arguments))

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        return self._kept(context, flavor_id, lambda: self._conductor.flavor_get(context, flavor_id))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._conductor, name)
        if not name.startswith("flavor_") or name == "flavor_access_list":
            return method

        def change(*arguments: Any, **named: Any) -> Any:
            try:
                return method(*arguments, **named)
            finally:
                self._table = {}

        return change

    def _kept(self, context: RequestContext, question: Hashable, ask: Callable[[], T]) -> T:
        """A table that was given up meanwhile gets the answer, which nobody sees there."""
        now = time.monotonic()
        if now >= self._until:
            self._table, self._until = {}, now + self._seconds
        table, key = self._table, (context.project_id, context.is_admin, question)
        if key not in table:
            table[key] = ask()
        found: T = table[key]
        return found


def cached(conductor: ConductorRPC, seconds: float) -> ConductorRPC:
    """The client itself if nothing is to be kept."""
    return typing.cast(ConductorRPC, FlavorCache(conductor, seconds)) if seconds else conductor
