"""Drain of an API that is about to stop: load balancers send new connections to others first.

HAProxy says in each check which servers it has besides (``http-check send-state``). A balancer that has others gets 404
for its next check, and sends no new connections here (``http-check disable-on-404``). Any other balancer is served as
before: its connections wait for the next process.
"""

from __future__ import annotations

import logging
import re
import time

from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.daemon.http_parser import Refusal

LOG = logging.getLogger(__name__)

#: Header of a check, such as ``UP 2/3; name=compute/ha1; weight=1/3``: the weights of this server and of all used ones.
STATE = "HTTP_X_HAPROXY_SERVER_STATE"
#: Path of the check.
PATH = "/"
STOPS = Refusal(404, "This API is about to stop. Send new connections to others.")

_WEIGHTS = re.compile(r"(?P<state>[A-Z]+)\b.*\bweight=(?P<own>\d{1,9})/(?P<all>\d{1,9})\b")


def has_others(state: str) -> bool:
    """Check whether a balancer that sent this state uses other servers."""
    found = _WEIGHTS.match(state)
    if found is None:
        return False
    # A server that drains, or is down, is not among the used ones.
    own = int(found["own"]) if found["state"] == "UP" else 0
    return int(found["all"]) > own


class Drain:
    """Drain of one server. The server's loop calls `refuses`, and a daemon that stops calls `run`."""

    def __init__(self, timing: ApiTiming = TIMING.api) -> None:
        self._timing = timing
        #: Time of the last check by each balancer that has other servers.
        self._checked: dict[str, float] = {}
        self._is_draining = False

    def refuses(self, balancer: str, state: str) -> bool:
        """Note a check. Return whether the balancer is to send new connections elsewhere."""
        if has_others(state) and not self._is_draining:
            self._checked[balancer] = time.monotonic()
            return False
        self._checked.pop(balancer, None)
        return self._is_draining and has_others(state)

    def run(self) -> None:
        """Wait until each balancer that has other servers knows that this one stops."""
        self._is_draining = True
        now = time.monotonic()
        waiting = {balancer for balancer, at in list(self._checked.items()) if now - at < self._timing.check_age}
        if not waiting:
            return
        LOG.info("Load balancers are asked to send new connections elsewhere: %s", ", ".join(sorted(waiting)))
        while waiting & set(self._checked) and time.monotonic() < now + self._timing.drain:
            time.sleep(0.02)
        # Connections that a balancer makes until it has read the response are served as well.
        time.sleep(self._timing.drain_end)
