"""Events: which change of an action other systems are notified of, and by which name."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite import operations
from nova_lite.db.core.action_changes import ActionChange, Change
from nova_lite.operations import Notification, Operation, Phase, ScheduleStep, Source

INFO = "INFO"
ERROR = "ERROR"


class Event(NamedTuple):
    """An event of one action. ``phase`` None: its type has none."""

    notification: Notification
    phase: Phase | None
    change: ActionChange

    @property
    def event_type(self) -> str:
        return self.notification.event_type(self.phase)

    @property
    def priority(self) -> str:
        return ERROR if self.phase is Phase.ERROR else INFO

    @property
    def exception(self) -> str:
        """Name of the error's class, as far as a consumer may distinguish it."""
        return "NoValidHost" if isinstance(self.change.step, ScheduleStep) else "OperationFailed"

    def source(self) -> Source:
        """Return the service that the publisher's id names. Without a host that can only be the conductor."""
        named = self.notification.source
        return Source.CONDUCTOR if named is Source.COMPUTE and self.change.host is None else named


def events_of(change: ActionChange) -> list[Event]:
    """Return the events of a change, in their order."""
    definition = operations.get(change.action.action, change.action.payload)
    return [Event(notification, phase, change) for notification, phase in _events(definition, change)]


def _events(definition: Operation, change: ActionChange) -> list[tuple[Notification, Phase | None]]:
    of_step = None if change.step is None else change.step.notification
    whole = operations.notification_of(definition)
    match change.change:
        case Change.STEP_BEGUN:
            return _phase(of_step, Phase.START)
        case Change.STEP_DONE:
            return _phase(of_step, Phase.END)
        case Change.OPENED:
            first = None if whole is None else whole.first
            return ([] if first is None else [(first, None)]) + _phase(whole, Phase.START)
        case Change.DONE if whole is not None and not whole.phases:
            return [(whole, None)]
        case Change.DONE:
            return _phase(whole, Phase.END)
        case Change.FAILED:
            return _phase(whole, Phase.ERROR) + _phase(definition.rollback, Phase.START)
        case Change.UNDONE:
            return _phase(definition.rollback, Phase.END)


def _phase(notification: Notification | None, phase: Phase) -> list[tuple[Notification, Phase | None]]:
    return [(notification, phase)] if notification is not None and phase in notification.phases else []
