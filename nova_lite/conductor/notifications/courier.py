"""Delivers the notifications of one channel from the outbox, in order, by a thread of its own.

So a slow or dead consumer delays neither operations nor other channels. A notification is deleted after its delivery.
If the conductor dies between the two, another one delivers it again, with the same message id.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Protocol

from oslo_config import cfg

from nova_lite.base import metrics
from nova_lite.base.timing import ConductorTiming
from nova_lite.db.core import outbox
from nova_lite.db.core.engine import Database, translate
from nova_lite.db.core.outbox import Waiting

LOG = logging.getLogger(__name__)

#: Largest number of notifications that one lease covers.
BATCH = 50


class RefusedError(Exception):
    """The consumer will never accept this notification."""


class Channel(Protocol):
    """A way to a consumer.

    - ``name``: its name in the outbox; it stays the same over restarts
    - ``label``: its name in metrics and logs
    - ``versioned``: the format that it takes
    - ``max_attempts``: attempts to deliver one notification; None: until it is too old
    """

    name: str
    label: str
    versioned: bool
    max_attempts: int | None

    def send(self, notification: Waiting) -> None:
        """Deliver a notification. Raises `RefusedError` if it is hopeless, and any other error to try again."""

    def close(self) -> None:
        """Close connections."""


class Courier:
    """The thread of one channel.

    A batch is leased for twice ``[conductor] lease_seconds``, and ends after a quarter of the lease. So the last
    delivery of a slow consumer has time to end. ``[notifications] max_waiting``: notifications that may wait; the
    oldest beyond are dropped.
    """

    def __init__(self, db: Database, conf: cfg.ConfigOpts, channel: Channel, timing: ConductorTiming) -> None:
        self.db = db
        self.channel = channel
        self.max_waiting = conf.notifications.max_waiting
        self.lease_seconds = 2 * conf.conductor.lease_seconds
        self.timing = timing
        self._wakeup = threading.Event()
        self._closing = threading.Event()
        self._trimmed_at = 0.0
        self._is_failing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"notify-{self.channel.label}", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look for new notifications now."""
        self._wakeup.set()

    def close(self) -> None:
        """Stop after the current delivery, without waiting long for it."""
        self._closing.set()
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(1.0)
        self.channel.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wakeup.clear()
            try:
                pause = self.deliver()
            except Exception as error:
                known = " ".join(str(translate(error)).split())
                LOG.warning("Notifications for %s have to wait: %s", self.channel.label, known)
                pause = self.timing.notification_poll
            self._wakeup.wait(pause)

    def deliver(self) -> float:
        """Deliver what is due, at most one batch. Returns the seconds until the next look."""
        self._trim()
        poll = self.timing.notification_poll
        wait = self.db.read(outbox.seconds_until_due, self.channel.name)
        if wait is None or wait > 0:
            return poll if wait is None else min(wait, poll)
        owner = str(uuid.uuid4())
        try:
            batch = self.db.write(outbox.lease_notifications, self.channel.name, owner, BATCH, self.lease_seconds)
        except outbox.LeaseTakenError:
            return poll
        finished, failed = self._send(batch)
        retry_after = 0.0 if failed is None else self._backoff(failed.attempts)
        failed_id = None if failed is None else failed.id
        self.db.write(outbox.settle_notifications, owner, finished, failed_id, retry_after)
        return min(retry_after, poll)

    def _send(self, batch: list[Waiting]) -> tuple[list[int], Waiting | None]:
        """Deliver a batch up to the first failure. Returns the ids that are done with, and what has failed."""
        finished: list[int] = []
        end = time.monotonic() + self.lease_seconds / 4
        for notification in batch:
            if self._closing.is_set() or time.monotonic() > end:
                break
            try:
                self.channel.send(notification)
            except RefusedError as error:
                self._drop(notification, "refused", error)
            except Exception as error:
                metrics.NOTIFICATIONS_FAILED.labels(self.channel.label).inc()
                if self.channel.max_attempts is None or notification.attempts + 1 < self.channel.max_attempts:
                    self._log_failure(error)
                    return finished, notification
                self._drop(notification, "attempts", error)
            else:
                self._is_failing = False
                metrics.NOTIFICATIONS_SENT.labels(self.channel.label).inc()
            finished.append(notification.id)
        return finished, None

    def _backoff(self, attempts: int) -> float:
        steps = self.timing.notification_backoff
        return steps[min(attempts, len(steps) - 1)]

    def _log_failure(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        if not self._is_failing:
            LOG.warning("Notifications for %s cannot be delivered and wait: %s", self.channel.label, _one_line(error))
        self._is_failing = True

    def _drop(self, notification: Waiting, reason: str, error: Exception) -> None:
        metrics.NOTIFICATIONS_DROPPED.labels(self.channel.label, reason).inc()
        LOG.warning(
            "Notification %s (%s) is dropped for %s: %s",
            notification.event_type,
            notification.message_id,
            self.channel.label,
            _one_line(error),
        )

    def _trim(self) -> None:
        if time.monotonic() < self._trimmed_at + self.timing.notification_trim_interval and self._trimmed_at:
            return
        self._trimmed_at = time.monotonic()
        dropped = self.db.write(outbox.drop_excess, self.channel.name, self.max_waiting)
        if dropped:
            metrics.NOTIFICATIONS_DROPPED.labels(self.channel.label, "number").inc(dropped)
            LOG.warning("The oldest %d notifications for %s are dropped: too many wait", dropped, self.channel.label)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
