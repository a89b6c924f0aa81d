"""What a daemon does that runs, and that the broker lets in no more: its account is gone, or may not what it did.

oslo.messaging 18 waits between its tries for a broker that is away, but not for one that refuses: its two threads that
read would ask, and be logged with a traceback, thousands of times a second (measured: 2 MB of log a second, a core, and
most of another in the broker).
"""

from __future__ import annotations

import functools
import time
from typing import Any

import oslo_messaging as messaging
from oslo_messaging._drivers import impl_rabbit

#: Between two tries. oslo.messaging logs each with a line that says why.
SECONDS = 5.0
_STEP = 0.25


@functools.cache
def be_patient() -> None:
    """For every connection of this process, from now on."""
    consume = impl_rabbit.Connection.consume

    def patient(connection: Any, timeout: float | None = None) -> Any:
        try:
            return consume(connection, timeout=timeout)
        except messaging.MessageDeliveryFailure:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline and not connection._consume_loop_stopped:
                time.sleep(_STEP)
            return None

    impl_rabbit.Connection.consume = patient
