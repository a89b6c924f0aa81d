"""Reports to systemd that a daemon works, for as long as its main loop and its serving loops turn.

systemd restarts a daemon that does not report for ``WatchdogSec``: a process that was stopped, or whose main loop
hangs. The main loop does not report while one of the serving loops stands still. Each worker of an API reports to its
parent instead, which replaces the worker (`nova_lite.api.http.prefork`).

Readers of the message broker are not watched here. They may wait for an absent broker for as long as it is away. Each
daemon calls itself through the broker instead (`nova_lite.rpc.self_check`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

#: Pipe to the parent of this process, if it reports to a parent and not to systemd.
_parent: int | None = None


def notify_systemd(state: str, descriptor: int | None = None) -> None:
    """Report the state to systemd (Type=notify), if systemd has started this process.

    ``descriptor``: a file descriptor that systemd receives.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(address)
        if descriptor is None:
            notify.sendall(state.encode())
        else:
            socket.send_fds(notify, [state.encode()], [descriptor])


def report_to_parent(pipe: int) -> None:
    """Report to the parent process from now on, by a byte in ``pipe``, and not to systemd. Call it after a fork."""
    global _parent
    os.set_blocking(pipe, False)
    os.environ.pop("NOTIFY_SOCKET", None)
    _parent = pipe


def report_alive() -> None:
    """Report that this process works."""
    if _parent is None:
        notify_systemd("WATCHDOG=1")
    else:
        # A full pipe, or a parent that is gone: the parent knows that, or needs to know nothing.
        # eventlet's os.write would wait for either without end, so that a worker would outlive its parent.
        with contextlib.suppress(OSError):
            os.writev(_parent, [b"."])


class Watchdog:
    """The serving loops of a daemon. A loop that has not turned for ``limit`` seconds stands still."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._turns: dict[str, float] = {}
        self._still: set[str] = set()

    def watch(self, name: str) -> Callable[[], None]:
        """Watch a serving loop, and return the function that its thread calls in each turn."""

        def turn() -> None:
            if name in self._turns:
                self._turns[name] = time.monotonic()

        self._turns[name] = time.monotonic()
        return turn

    def clear(self) -> None:
        """Watch no loop any more."""
        self._turns = {}

    def feed(self) -> bool:
        """Report that this process works, unless a loop stands still. Call it in each turn of the main loop."""
        now = time.monotonic()
        still = {name for name, turned in list(self._turns.items()) if now - turned >= self._limit}
        for name in still - self._still:
            LOG.critical("%s has stood still for %.0f s: this daemon counts as dead", name, now - self._turns[name])
        self._still = still
        if still:
            return False
        report_alive()
        return True
