"""Writes notifications to the outbox, in the transaction of the change that they are about."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nova_lite.base import metrics
from nova_lite.conductor.notifications import legacy, payloads, resources, states
from nova_lite.conductor.notifications.events import INFO, Event, events_of
from nova_lite.conductor.notifications.payloads import NOBODY, Caller
from nova_lite.conductor.notifications.periods import Period, current_period
from nova_lite.db.core import outbox, state_changes
from nova_lite.db.core.action_changes import ActionChange
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.resource_events import ResourceEvent
from nova_lite.db.core.rows import to_object
from nova_lite.db.servers import instances, keypairs, usage_audits
from nova_lite.objects import Instance, KeyPair
from nova_lite.operations import Payload

LOG = logging.getLogger(__name__)

#: Servers that one transaction of a usage audit reads and notifies others of.
AUDIT_BATCH = 100


class Recipient(Protocol):
    """A channel that notifications are written for. ``versioned``: the format that it takes."""

    name: str
    versioned: bool


class Recorder:
    """Records the events of a transaction for each of the recipients."""

    def __init__(self, host: str, recipients: Sequence[Recipient]) -> None:
        """Record for these recipients. ``host``: of this conductor; it stands for the host of an action without one."""
        self.host = host
        self.versioned = [recipient.name for recipient in recipients if recipient.versioned]
        self.unversioned = [recipient.name for recipient in recipients if not recipient.versioned]

    def record(self, uow: UnitOfWork) -> bool:
        """Write the notifications of a transaction whose changes are flushed. Returns whether there are any."""
        rows = list(self._resource_rows(uow))
        events = [event for change in uow.published(ActionChange) for event in events_of(change)]
        before = state_changes.noted(uow) if uow.conf.notifications.notify_on_state_change else {}
        uuids = {event.change.action.instance_uuid for event in events} | before.keys()
        if not uuids:
            if rows:
                outbox.add(uow, rows)
            return bool(rows)
        found = {instance.uuid: instance for instance in instances.without_user_data(uow, sorted(uuids))}
        for event in events:
            instance = found.get(event.change.action.instance_uuid)
            if instance is None:
                continue
            keypair = _keypair(uow, event, instance)
            try:
                rows += list(self._rows(event, instance, keypair))
            except Exception:
                # The operation matters more than its notification.
                metrics.NOTIFICATIONS_DROPPED.labels("all", "broken").inc()
                LOG.exception("No notification %s about instance %s", event.event_type, instance.uuid)
        for instance_uuid in sorted(before.keys() & found.keys()):
            change = states.StateChange(found[instance_uuid], before[instance_uuid])
            if not states.is_changed(change, uow.conf.notifications.notify_on_state_change):
                continue
            try:
                rows += list(self._update_rows(uow, change))
            except Exception:
                metrics.NOTIFICATIONS_DROPPED.labels("all", "broken").inc()
                LOG.exception("No notification instance.update about instance %s", instance_uuid)
        if rows:
            outbox.add(uow, rows)
        return bool(rows)

    def record_audit(self, uow: UnitOfWork, period: Period) -> int:
        """Write ``instance.exists`` for the next servers of a period, and return their number."""
        uuids = usage_audits.next_servers(uow, period.beginning, period.ending, AUDIT_BATCH)
        rows: list[dict[str, Any]] = []
        for instance in instances.without_user_data(uow, uuids) if uuids else ():
            host, event_type = instance.host or self.host, "instance.exists"
            if self.versioned:
                payload = payloads.exists_payload(instance, period)
                rows += _for_each(self.versioned, event_type, f"nova-compute:{host}", INFO, payloads.NOBODY, payload)
            if self.unversioned:
                payload = legacy.exists_payload(instance, period)
                older = f"compute.{event_type}"
                rows += _for_each(self.unversioned, older, f"compute.{host}", INFO, payloads.NOBODY, payload)
        if rows:
            outbox.add(uow, rows)
        return len(uuids)

    def _update_rows(self, uow: UnitOfWork, change: states.StateChange) -> Iterator[dict[str, Any]]:
        instance, event_type = change.instance, "instance.update"
        period = current_period(uow.conf.notifications.instance_usage_audit_period, uow.now)
        causes = [item.action for item in uow.published(ActionChange) if item.action.instance_uuid == instance.uuid]
        caller = NOBODY if not causes else Caller(causes[-1].request_id, causes[-1].user_id, causes[-1].project_id)
        source = "conductor" if instance.host is None else "compute"
        host = instance.host or self.host
        if self.versioned:
            payload = payloads.update_payload(change, caller, period)
            yield from _for_each(self.versioned, event_type, f"nova-{source}:{host}", INFO, caller, payload)
        if self.unversioned:
            payload = legacy.update_payload(change, period)
            yield from _for_each(self.unversioned, f"compute.{event_type}", f"{source}.{host}", INFO, caller, payload)

    def _resource_rows(self, uow: UnitOfWork) -> Iterator[dict[str, Any]]:
        """Yield the notifications about other resources than servers, which have the versioned format only."""
        if not self.versioned:
            return
        for event in uow.published(ResourceEvent):
            publisher, payload = resources.publisher_id(event, self.host), resources.payload_of(event)
            caller = (event.request_id, event.user_id, event.project_id)
            yield from _for_each(self.versioned, event.event_type, publisher, INFO, caller, payload)

    def _rows(self, event: Event, instance: Instance, keypair: KeyPair | None) -> Iterator[dict[str, Any]]:
        host = event.change.host or self.host
        if self.versioned:
            payload = payloads.payload_of(event, instance, keypair)
            publisher = f"{event.source()}:{host}"
            yield from _addressed(event, self.versioned, event.event_type, publisher, payload)
        older = legacy.event_type(event)
        if self.unversioned and older is not None:
            publisher = legacy.publisher_id(event, host)
            yield from _addressed(event, self.unversioned, older, publisher, legacy.payload_of(event, instance))


def _addressed(
    event: Event, channels: list[str], event_type: str, publisher_id: str, payload: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    action = event.change.action
    caller = (action.request_id, action.user_id, action.project_id)
    yield from _for_each(channels, event_type, publisher_id, event.priority, caller, payload)


def _for_each(
    channels: list[str],
    event_type: str,
    publisher_id: str,
    priority: str,
    caller: tuple[str | None, str | None, str | None],
    payload: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield a notification for each of the channels. All of them have the same id."""
    fields = {
        "message_id": str(uuid.uuid4()),
        "event_type": event_type,
        "publisher_id": publisher_id,
        "priority": priority,
        "context": dict(zip(("request_id", "user_id", "project_id"), caller, strict=True)),
        "payload": payload,
    }
    for channel in channels:
        yield {**fields, "channel": channel}


def _keypair(uow: UnitOfWork, event: Event, instance: Instance) -> KeyPair | None:
    name = instance.key_name
    if event.notification.payload is not Payload.CREATE or name is None:
        return None
    row = uow.once(("keypair", instance.user_id, name), lambda: keypairs.find(uow, instance.user_id, name))
    return None if row is None else to_object(KeyPair, row)
