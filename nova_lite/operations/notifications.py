"""Notifications about operations: their names and payloads, which are those of Nova's versioned notifications.

An event's type is ``instance.NAME.PHASE``. `Operation.notification` names the events of a whole operation, and
`Step.notification` those of a step. `nova_lite.conductor.notifications` makes the messages.
"""

from __future__ import annotations

import dataclasses
import enum


class Phase(enum.StrEnum):
    """Part of an operation or step. ERROR takes the place of END."""

    START = "start"
    END = "end"
    ERROR = "error"


class Source(enum.StrEnum):
    """Service that Nova names as the publisher of an event."""

    API = "nova-api"
    COMPUTE = "nova-compute"
    CONDUCTOR = "nova-conductor"


class Payload(enum.StrEnum):
    """Class of a payload, by Nova's name. Each class but the first adds fields to it."""

    ACTION = "InstanceActionPayload"
    CREATE = "InstanceCreatePayload"
    REBUILD = "InstanceActionRebuildPayload"
    RESCUE = "InstanceActionRescuePayload"
    RESIZE_PREP = "InstanceActionResizePrepPayload"
    SNAPSHOT = "InstanceActionSnapshotPayload"
    VOLUME = "InstanceActionVolumePayload"
    SHARE = "InstanceActionSharePayload"
    VOLUME_SWAP = "InstanceActionVolumeSwapPayload"


@dataclasses.dataclass(frozen=True)
class Notification:
    """Events of an operation or step.

    - ``phases``: each has an event. Without any there is one event, whose type has no phase, at the end.
    - ``first``: an event of another name and without a phase, right before the start
    """

    name: str
    payload: Payload = Payload.ACTION
    _: dataclasses.KW_ONLY
    phases: tuple[Phase, ...] = tuple(Phase)
    source: Source = Source.COMPUTE
    first: Notification | None = None

    def event_type(self, phase: Phase | None = None) -> str:
        return f"instance.{self.name}" if phase is None else f"instance.{self.name}.{phase}"


#: Phases of a step. Its failure is that of the operation.
OF_STEP = (Phase.START, Phase.END)

#: Operations without notifications, and why.
SILENT = {
    "changePassword": "Nova has no notification about passwords",
    "crash": "Nova has no notification about crashes",
    "watchdog": "Nova has no notification about watchdogs",
    "device_lost": "Nova has no notification about lost devices",
    "reset_state": "Nova only has instance.update for it",
    **dict.fromkeys(("create_point", "delete_point", "revert_to_point"), "Nova has no snapshot points"),
    "clone": "Nova has no clones",
    "volume_snapshot_create": "Nova has no notification about the files of volumes",
    "volume_snapshot_delete": "Nova has no notification about the files of volumes",
}
