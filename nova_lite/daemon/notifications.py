"""Notifications for other systems, by oslo.messaging's notifier. Off unless ``[oslo_messaging_notifications] driver``
is set.

`Notifications.emit` never blocks. A thread sends the notifications. When too many wait, new ones are dropped, with a
line in the log.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base.context import RequestContext

LOG = logging.getLogger(__name__)

#: Largest number of notifications that wait to be sent. More are dropped.
BACKLOG = 1000


class Notifications:
    """Sends notifications of one publisher, such as ``nova-scheduler.HOST``."""

    def __init__(self, conf: cfg.ConfigOpts, publisher: str) -> None:
        self._notifier = messaging.Notifier(messaging.get_notification_transport(conf), publisher_id=publisher, retry=0)
        self._queue: queue.Queue[tuple[RequestContext, str, dict[str, Any]] | None] = queue.Queue(BACKLOG)
        self._thread: threading.Thread | None = None
        if set(conf.oslo_messaging_notifications.driver) - {"", "noop"}:
            self._thread = threading.Thread(target=self._send_all, name="notifications", daemon=True)
            self._thread.start()

    def emit(self, context: RequestContext, event_type: str, payload: dict[str, Any]) -> None:
        """Hand a notification to the thread, if notifications are on."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait((context, event_type, payload))
        except queue.Full:
            LOG.warning("Notification %s is dropped: %d wait to be sent", event_type, BACKLOG)

    def close(self) -> None:
        """Send the waiting notifications, for at most two seconds."""
        if self._thread is None:
            return
        try:
            self._queue.put(None, timeout=1.0)
            self._thread.join(1.0)
        except queue.Full:
            LOG.warning("%d notifications were not sent", self._queue.qsize())

    def _send_all(self) -> None:
        while (item := self._queue.get()) is not None:
            context, event_type, payload = item
            try:
                self._notifier.info(context.to_rpc(), event_type, payload)
            except Exception as error:
                LOG.warning("Notification %s could not be sent: %s", event_type, error)
