"""Every operation on a server, as data: what allows it, its steps in order, what each becomes, and what undoes it.

No I/O. The conductor's engine (`nova_lite.conductor.engine.engine`) drives the rows, the host's
(`nova_lite.compute.executor`) carries out its steps; only what is an operation's own is code, in the module
of its name beside each engine. Routes, rules, the table of states in the docs, and the fault matrix are made of these
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_lite.operations.images import (
    CREATE_BACKUP,
    CREATE_IMAGE,
    CREATE_IMAGE_OF_VOLUMES,
    SHELVE,
    SHELVE_OFFLOAD,
    SHELVE_VOLUME_BACKED,
    UNSHELVE,
    UNSHELVE_OFFLOADED,
)
from nova_lite.operations.interfaces import ATTACH_INTERFACE, DETACH_INTERFACE
from nova_lite.operations.lifecycle import (
    CHANGE_PASSWORD,
    CRASH_DUMP,
    CREATE,
    DELETE,
    HARD_REBOOT,
    LOCK,
    PAUSE,
    REBOOT,
    REBUILD,
    RESCUE,
    RESET_STATE,
    RESTORE,
    RESUME,
    SOFT_DELETE,
    START,
    STOP,
    SUSPEND,
    UNLOCK,
    UNPAUSE,
    UNRESCUE,
)
from nova_lite.operations.moves import (
    CONFIRM_RESIZE,
    EVACUATE,
    LIVE_MIGRATE,
    MIGRATE,
    RESIZE,
    RESIZE_SAME_HOST,
    REVERT_RESIZE,
)
from nova_lite.operations.steps import (
    ARRIVE,
    CHECK,
    CLEANUP,
    CLEAR,
    DEALLOCATE,
    DETACH,
    DISCARD,
    DISCONNECT,
    DROP,
    FIND,
    HAND_OVER,
    LEAVE,
    PERFORM,
    PREPARE,
    PUBLISH,
    RELEASE,
    RELEASE_SOURCE,
    RETURN,
    ROLL_BACK,
    ROTATE,
    SCHEDULE,
    SETTLE,
    TAKE_BACK,
    TURN_OFF,
)
from nova_lite.operations.types import (
    ANY,
    BUILD,
    COMPENSATE,
    LOST_SOURCE,
    MAKES_IMAGE,
    MOVE_ROLES,
    HostRole,
    HostStep,
    ImageStep,
    ImageVerb,
    NetworkStep,
    Operation,
    ReleaseStep,
    ScheduleStep,
    Step,
    first_wanted,
)
from nova_lite.operations.volumes import ATTACH_VOLUME, DETACH_VOLUME, SWAP_VOLUME

__all__ = [
    "ANY",
    "ARRIVE",
    "ATTACH_INTERFACE",
    "ATTACH_VOLUME",
    "BUILD",
    "CHANGE_PASSWORD",
    "CHECK",
    "CLEANUP",
    "CLEAR",
    "COMPENSATE",
    "CONFIRM_RESIZE",
    "CRASH_DUMP",
    "CREATE",
    "CREATE_BACKUP",
    "CREATE_IMAGE",
    "CREATE_IMAGE_OF_VOLUMES",
    "DEALLOCATE",
    "DELETE",
    "DETACH",
    "DETACH_INTERFACE",
    "DETACH_VOLUME",
    "DISCARD",
    "DISCONNECT",
    "DROP",
    "EVACUATE",
    "FIND",
    "HAND_OVER",
    "HARD_REBOOT",
    "LEAVE",
    "LIVE_MIGRATE",
    "LOCK",
    "LOST_SOURCE",
    "MAKES_IMAGE",
    "MIGRATE",
    "MOVE_ROLES",
    "OPERATIONS",
    "PAUSE",
    "PERFORM",
    "PREPARE",
    "PUBLISH",
    "REBOOT",
    "REBUILD",
    "RELEASE",
    "RELEASE_SOURCE",
    "RESCUE",
    "RESET_STATE",
    "RESIZE",
    "RESIZE_SAME_HOST",
    "RESTORE",
    "RESUME",
    "RETURN",
    "REVERT_RESIZE",
    "ROLL_BACK",
    "ROTATE",
    "SCHEDULE",
    "SETTLE",
    "SHELVE",
    "SHELVE_OFFLOAD",
    "SHELVE_VOLUME_BACKED",
    "SOFT_DELETE",
    "START",
    "STOP",
    "SUSPEND",
    "SWAP_VOLUME",
    "TAKE_BACK",
    "TURN_OFF",
    "UNLOCK",
    "UNPAUSE",
    "UNRESCUE",
    "UNSHELVE",
    "UNSHELVE_OFFLOADED",
    "HostRole",
    "HostStep",
    "ImageStep",
    "ImageVerb",
    "NetworkStep",
    "Operation",
    "ReleaseStep",
    "ScheduleStep",
    "Step",
    "command_methods",
    "command_of",
    "compute_version",
    "first_wanted",
    "get",
]

#: Every row, by its kind.
OPERATIONS: dict[str, Operation] = {
    row.kind: row
    for row in (
        *(CREATE, DELETE, STOP, START, REBOOT, EVACUATE, REBUILD, PAUSE, UNPAUSE, SUSPEND, RESUME),
        *(RESIZE, MIGRATE, CONFIRM_RESIZE, REVERT_RESIZE, LIVE_MIGRATE),
        *(CREATE_IMAGE, CREATE_BACKUP, SHELVE, SHELVE_OFFLOAD, UNSHELVE),
        *(ATTACH_INTERFACE, DETACH_INTERFACE, ATTACH_VOLUME, DETACH_VOLUME, SWAP_VOLUME),
        *(RESCUE, UNRESCUE, RESTORE, CHANGE_PASSWORD, CRASH_DUMP, LOCK, UNLOCK, RESET_STATE),
    )
}


def get(kind: str, payload: Mapping[str, Any]) -> Operation:
    """The row of an action; raises `KeyError` for a kind that there is not."""
    row = OPERATIONS[kind]
    return next((variant for key, value, variant in row.variants if payload.get(key) == value), row)


def command_methods() -> dict[str, HostStep]:
    """The RPC methods that carry out a step at a host, with such a step; builds and their undo apart, which are asked
    for in other words."""
    rows = [each for row in OPERATIONS.values() for each in (row, *(variant for _, _, variant in row.variants))]
    steps = [step for row in rows for step in row.all_steps() if isinstance(step, HostStep)]
    return {step.method: step for step in steps if step.name not in (BUILD, COMPENSATE)}


def command_of(kind: str, payload: Mapping[str, Any]) -> str:
    """The RPC method of the last step at a host: what an action is that does not say at which step it is."""
    return [step.method for step in get(kind, payload).steps if isinstance(step, HostStep) and step.name != BUILD][-1]


def compute_version(calls: str) -> str:
    """The compute service's version: that of its newest order, or of its newest ``calls``."""
    orders = (step.since for step in command_methods().values())
    return max((calls, *orders), key=lambda text: [*map(int, text.split("."))])
