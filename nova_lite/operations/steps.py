"""Names of steps as the action log stores them, and the steps that several operations share."""

from __future__ import annotations

from typing import Any

from nova_lite.operations import states
from nova_lite.operations.types import BUILD, COMPENSATE, HostStep, ImageStep, ImageVerb

#: Choose a host, and claim room on it.
SCHEDULE = "schedule"
#: Do the main work of the operation.
PERFORM = "perform"
CLEANUP = "cleanup"
PUBLISH = "publish"
DISCARD = "discard"
ROTATE = "rotate"
TURN_OFF = "turn-off"
DEALLOCATE = "deallocate"
DISCONNECT = "disconnect"
RELEASE = "release"
# Resize and cold migration
#: The source turns the guest off, and keeps its disks.
LEAVE = "leave"
#: The destination creates the guest from the disks of the source.
ARRIVE = "arrive"
#: The destination removes the guest and its disks (revert, or undo).
DROP = "drop"
#: The source restores the guest (revert, or undo).
RETURN = "return"

# Live migration
#: The source checks whether it can migrate the guest.
CHECK = "check"
#: The destination makes disks and interfaces ready.
PREPARE = "prepare"
#: The source migrates the running guest.
HAND_OVER = "hand_over"
#: The source keeps the guest, and ends a migration that runs (undo).
ROLL_BACK = "roll_back"
#: The destination is queried for a guest that the source cannot report any more (undo).
FIND = "find"
#: The destination records the guest as its own.
SETTLE = "settle"
#: The source removes disks and interfaces of the guest.
CLEAR = "clear"
RELEASE_SOURCE = "release_source"

# Others
#: The host reverts the guest to a snapshot point.
REVERT = "revert"
DETACH = "detach"
TAKE_BACK = "take_back"
#: Report to Cinder how the host's work on a volume's file has ended: well, or not (undo).
REPORT = "report"
REPORT_ERROR = "report_error"
FENCE_STEP = HostStep(COMPENSATE, "fence_instance", retry_forever=True, may_complete_late=True)

BUILD_STEP = HostStep(
    BUILD,
    "build_and_run_instance",
    begun=states.SPAWNING,
    event="compute__do_build_and_run_instance",
    becomes=states.ACTIVE,
    undo=(FENCE_STEP,),
    commits=True,
    self_compensating=True,
)

SCHEDULE_EVENT = "conductor_schedule_and_build_instances"
PUBLISH_STEP = ImageStep(PUBLISH, verb=ImageVerb.PUBLISH, commits=True)
DISCARD_STEP = ImageStep(DISCARD, verb=ImageVerb.DISCARD)


def by_host(kind: str, task: str, becomes: str, **fields: Any) -> HostStep:
    """Return the step of an operation that its host carries out alone, by the method ``<kind>_instance``."""
    method = f"{kind}_instance"
    return HostStep(PERFORM, method, task=task, event=f"compute_{method}", becomes=becomes, **fields)


def by_driver(kind: str, task: str, becomes: str, **fields: Any) -> HostStep:
    """Return the step of an operation that the driver's ``standby.<kind>`` carries out alone."""
    return by_host(kind, task, becomes, driver=f"standby.{kind}", **fields)


def snapshot_step(method: str, task: str, *tasks: str) -> HostStep:
    """Return the step in which the host makes an image file of the server's disk and uploads it."""
    event = f"compute_{method}"
    deadline = "snapshot_deadline"
    return HostStep(PERFORM, method, task=task, tasks=tasks, event=event, deadline=deadline, undo=(DISCARD_STEP,))


WITH_DISK = (states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED)

#: States in which volumes can be attached and detached. On a server without a host that is done when it is accepted.
WITH_GUEST = (states.ACTIVE, states.PAUSED, states.STOPPED, states.SHELVED, states.SHELVED_OFFLOADED)
