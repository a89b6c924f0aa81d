"""The message bus as a channel: oslo.messaging's format of notifications, so that its listeners receive them."""

from __future__ import annotations

from collections.abc import Sequence

import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.db.core.outbox import Waiting

#: Drivers of ``[oslo_messaging_notifications]`` that send to the bus, and the version of their envelope.
ENVELOPES = {"messagingv2": 2.0, "messaging": 1.0}


class BusChannel:
    """Sends notifications of one format to the topics of their priority: ``TOPIC.info`` and ``TOPIC.error``.

    oslo.messaging's notifier gives each message a new id and hides errors. So this class calls its transport, as the
    notifier's own drivers do.
    """

    max_attempts: int | None = None

    def __init__(self, conf: cfg.ConfigOpts, topics: Sequence[str], versioned: bool, envelope: float) -> None:
        self.name = self.label = "versioned" if versioned else "unversioned"
        self.versioned = versioned
        self.topics = topics
        self.exchange = conf.notifications.exchange
        self.envelope = envelope
        self._transport = messaging.get_notification_transport(conf)

    def send(self, notification: Waiting) -> None:
        message = {
            "message_id": notification.message_id,
            "publisher_id": notification.publisher_id,
            "event_type": notification.event_type,
            "priority": notification.priority,
            "payload": notification.payload,
            "timestamp": str(notification.created_at),
        }
        for topic in self.topics:
            target = messaging.Target(topic=f"{topic}.{notification.priority.lower()}", exchange=self.exchange)
            self._transport._send_notification(
                target, dict(notification.context), dict(message), version=self.envelope, retry=0
            )

    def close(self) -> None:
        self._transport.cleanup()
