"""Ways to a conductor for requests of leases: connections of their own, beside that of all other messages.

A network that loses a third of its packets lets a TCP connection stand still for ten seconds and more, because TCP
waits twice as long after each loss. Several connections seldom stand still at the same time. They are used while a
renewal is overdue, and else once in a while, so that they are there when they are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from nova_lite.compute.self_fencing import SelfFencing
from nova_lite.rpcapi.conductor import ConductorRPC

#: Number of ways beside the usual one.
FURTHER_WAYS = 2


class LeaseWay:
    """A further way. Call `tick` every second.

    ``again_seconds``: between two requests while a renewal is overdue. ``use_seconds``: between two uses otherwise.
    """

    def __init__(
        self,
        self_fencing: SelfFencing,
        conductor: ConductorRPC,
        again_seconds: float = 3.0,
        use_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._self_fencing = self_fencing
        self._conductor = conductor
        self._again_seconds = again_seconds
        self._use_seconds = use_seconds
        self._clock = clock
        self._used_at = float("-inf")

    def tick(self) -> None:
        """Request a lease if that is due. Raises what `SelfFencing.renew` raises."""
        wait = self._again_seconds if self._self_fencing.is_late() else self._use_seconds
        if self._clock() - self._used_at < wait:
            return
        self._used_at = self._clock()
        self._self_fencing.renew(self._conductor)
