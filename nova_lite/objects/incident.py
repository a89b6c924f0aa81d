"""Incidents: reports of a hypervisor about a guest that has failed, with their texts for its owner."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable

import msgspec


class IncidentKind(enum.StrEnum):
    """Kinds of incidents. Each watchdog's kind ends with the action that the hypervisor has taken.

    PANIC: the guest's kernel has reported that it cannot continue. CRASH: its process has ended, or for an unknown
    reason.
    """

    PANIC = "panic"
    CRASH = "crash"
    WATCHDOG_RESET = "watchdog_reset"
    WATCHDOG_POWEROFF = "watchdog_poweroff"
    WATCHDOG_PAUSE = "watchdog_pause"
    WATCHDOG_NONE = "watchdog_none"


_FED = "The guest has not fed its watchdog"

TEXTS = {
    IncidentKind.PANIC: "The guest's kernel has panicked.",
    IncidentKind.CRASH: "The guest's process on its host has ended unexpectedly.",
    IncidentKind.WATCHDOG_RESET: f"{_FED}, so it was reset.",
    IncidentKind.WATCHDOG_POWEROFF: f"{_FED}, so it was switched off.",
    IncidentKind.WATCHDOG_PAUSE: f"{_FED}, so it was paused.",
    IncidentKind.WATCHDOG_NONE: f"{_FED}. Nothing was done, as configured.",
}

#: Kinds after which the guest is off. The best explanation comes first.
ENDING = (IncidentKind.PANIC, IncidentKind.WATCHDOG_POWEROFF, IncidentKind.CRASH)


class Incident(msgspec.Struct, kw_only=True, frozen=True):
    """An incident of a guest. ``id``: the same in each report of it. ``kind``: an `IncidentKind`, or a later one."""

    kind: str
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def text(self) -> str:
        return TEXTS.get(IncidentKind(self.kind), "") if self.kind in set(IncidentKind) else f"Incident: {self.kind}."


def cause_of_pause(incidents: Iterable[Incident]) -> Incident:
    """Return the incident of a watchdog that has paused its guest. Without a report of it, it is a new one."""
    reported = [item for item in incidents if item.kind == IncidentKind.WATCHDOG_PAUSE]
    return reported[0] if reported else Incident(kind=IncidentKind.WATCHDOG_PAUSE)


def cause_of_end(incidents: Iterable[Incident]) -> Incident | None:
    """Return the incident that explains why the guest is off, or None."""
    by_kind = {incident.kind: incident for incident in incidents}
    return next((by_kind[kind] for kind in ENDING if kind in by_kind), None)
