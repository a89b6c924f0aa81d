"""Puts the notifications of a conductor together: channels from the options, recorder, and couriers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base import metrics
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.notifications import webhook
from nova_lite.conductor.notifications.bus import ENVELOPES, BusChannel
from nova_lite.conductor.notifications.courier import Channel, Courier
from nova_lite.conductor.notifications.recorder import Recorder
from nova_lite.conf import notifications as options
from nova_lite.db import outbox
from nova_lite.db.engine import Database, UnitOfWork

LOG = logging.getLogger(__name__)


class Notifications:
    """All notifications of a conductor. Without a channel they are off: nothing is recorded, and no thread runs."""

    def __init__(
        self, db: Database, conf: cfg.ConfigOpts, timing: ConductorTiming, channels: Iterable[Channel] | None = None
    ) -> None:
        """Use these channels, or the ones of the options."""
        self.db = db
        self.conf = conf
        self.channels = list(channels_of(conf, timing) if channels is None else channels)
        self._recorder = Recorder(conf.host, self.channels)
        self._couriers = [Courier(db, conf, channel, timing) for channel in self.channels]
        db.notes_changes = bool(self.channels)

    def start(self) -> None:
        for courier in self._couriers:
            courier.start()

    def record(self, uow: UnitOfWork) -> None:
        """Write the transaction's notifications. They are delivered after its commit."""
        if (uow.action_changes or uow.resource_events) and self._recorder.record(uow):
            uow.after_commit.append(self._wake)

    def drop_old(self) -> None:
        """Drop notifications that have waited too long, those of channels that exist no more, too."""
        dropped = self.db.write(outbox.drop_old, self.conf.notifications.max_age)
        if dropped:
            metrics.NOTIFICATIONS_DROPPED.labels("all", "age").inc(dropped)
            LOG.warning("%d notifications are dropped: they could not be delivered in time", dropped)

    def samples(self) -> Iterator[tuple[str, metrics.Sample]]:
        """Yield the metrics of waiting notifications."""
        if not self.channels:
            return
        waiting = self.db.read(outbox.count)
        for channel in self.channels:
            yield metrics.sample(metrics.NOTIFICATIONS_WAITING, waiting.get(channel.name, 0), channel.label)

    def close(self) -> None:
        for courier in self._couriers:
            courier.close()

    def _wake(self) -> None:
        for courier in self._couriers:
            courier.wake()


def channels_of(conf: cfg.ConfigOpts, timing: ConductorTiming) -> Iterator[Channel]:
    """Yield the channels that the options name."""
    envelope = next((ENVELOPES[name] for name in _drivers(conf) if name in ENVELOPES), None)
    own = conf.notifications
    if envelope is not None and own.notification_format != options.UNVERSIONED:
        yield BusChannel(conf, own.versioned_notifications_topics, versioned=True, envelope=envelope)
    if envelope is not None and own.notification_format != options.VERSIONED:
        yield BusChannel(conf, conf.oslo_messaging_notifications.topics, versioned=False, envelope=envelope)
    if own.webhooks:
        secret, context = webhook.read_secret(own.webhook_secret_file), webhook.tls_context(own.webhook_cafile)
        for url in dict.fromkeys(own.webhooks):
            yield webhook.WebhookChannel(url, secret, context, timing.webhook_timeout)


def _drivers(conf: cfg.ConfigOpts) -> list[str]:
    """Return the drivers of oslo.messaging's notifier, whose options exist once one is made."""
    messaging.Notifier(messaging.get_notification_transport(conf), publisher_id="", driver="noop")
    drivers: list[str] = conf.oslo_messaging_notifications.driver
    return drivers
