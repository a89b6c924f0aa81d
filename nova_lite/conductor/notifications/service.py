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
from nova_lite.conductor.notifications.periods import Period, last_period
from nova_lite.conductor.notifications.recorder import AUDIT_BATCH, Recorder
from nova_lite.conf import notifications as options
from nova_lite.db.core import outbox, state_changes
from nova_lite.db.core.action_changes import ActionChange
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.resource_events import ResourceEvent

LOG = logging.getLogger(__name__)


class Notifications:
    """All notifications of a conductor. Without a channel they are off: nothing is recorded, and no thread runs."""

    def __init__(
        self, db: Database, conf: cfg.ConfigOpts, timing: ConductorTiming, channels: Iterable[Channel] | None = None
    ) -> None:
        """Use these channels, or the ones of the options."""
        self.db = db
        self.conf = conf
        self._timing = timing
        self.channels = list(channels_of(conf, timing) if channels is None else channels)
        self._recorder = Recorder(conf.host, self.channels)
        self._couriers = [Courier(db, conf, channel, timing) for channel in self.channels]
        if self.channels:
            watches = bool(conf.notifications.notify_on_state_change)
            db.subscribe(self.record, ActionChange, ResourceEvent, always=watches)
            if watches:
                state_changes.watch(db)
        self._audited: Period | None = None

    def start(self) -> None:
        for courier in self._couriers:
            courier.start()

    def record(self, uow: UnitOfWork) -> None:
        """Write the transaction's notifications. They are delivered after its commit."""
        if self._recorder.record(uow):
            uow.after_commit(self._wake)

    def audit_usage(self) -> None:
        """Send ``instance.exists`` for the servers of the last period. A later call continues where this one stops.

        It stops while half of the notifications that may wait do, so that none of them is dropped.
        """
        if not self.channels or not self.conf.notifications.instance_usage_audit:
            return
        now = self.db.read(lambda uow: uow.now)
        period = last_period(self.conf.notifications.instance_usage_audit_period, now)
        while period != self._audited:
            if max(self.db.read(outbox.count).values(), default=0) > self.conf.notifications.max_waiting // 2:
                return
            if self.db.write(self._audit_usage, period) < AUDIT_BATCH:
                self._audited = period

    def _audit_usage(self, uow: UnitOfWork, period: Period) -> int:
        uow.after_commit(self._wake)
        return self._recorder.record_audit(uow, period)

    def drop_old(self) -> None:
        """Drop notifications that have waited too long, those of channels that exist no more, too."""
        dropped = self.db.write(outbox.drop_old, self._timing.notification_age)
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
