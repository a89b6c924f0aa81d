"""Detects jumps of the database's clock, so that nothing is destroyed early because of one."""

from __future__ import annotations

import datetime
import logging

from nova_lite.base import clock

LOG = logging.getLogger(__name__)

#: Seconds by which the database's clock may differ from what was expected. More is a jump.
TOLERANCE = 60.0


class ClockGuard:
    """The time by which the database's clock is ahead.

    A jump ahead makes everything look old at once. What then cannot be undone, such as the deletion of a soft-deleted
    server, is put off for as long as the jump was. So it comes at its right time if the new clock is wrong, and late if
    the old one was. A jump back ends that. At the start, this machine's clock is the reference.
    """

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._ahead = 0.0

    def is_ahead(self, now: datetime.datetime) -> bool:
        """Check whether work that follows from age alone has to wait. ``now``: the database's time, naive UTC."""
        read, uptime = now.replace(tzinfo=datetime.UTC).timestamp(), clock.uptime()
        if self._last is None:
            jump = read - clock.wall()
        else:
            elapsed = uptime - self._last[1]
            jump = read - self._last[0] - elapsed
            self._ahead = max(0.0, self._ahead - elapsed)
        self._last = read, uptime
        if abs(jump) > TOLERANCE:
            LOG.error(
                "The database's clock has jumped %s by %.0f s. No soft-deleted server is reclaimed and no resize is "
                "confirmed while it is ahead.",
                "ahead" if jump > 0 else "back",
                abs(jump),
            )
            self._ahead = max(0.0, self._ahead + jump)
        return self._ahead > 0
