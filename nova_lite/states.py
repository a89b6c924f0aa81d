"""States of an instance, with Nova's names, and which user action is allowed in which state."""

from __future__ import annotations

import enum

# vm_state: what the instance is, stable between tasks.
BUILDING = "building"
ACTIVE = "active"
STOPPED = "stopped"
ERROR = "error"
DELETED = "deleted"
PAUSED = "paused"
SUSPENDED = "suspended"
RESCUED = "rescued"
RESIZED = "resized"
SHELVED = "shelved"
SHELVED_OFFLOADED = "shelved_offloaded"
SOFT_DELETED = "soft-delete"

# task_state: what is being done to it; None when nothing is. Never set without an open action.
SCHEDULING = "scheduling"
NETWORKING = "networking"
SPAWNING = "spawning"
DELETING = "deleting"
POWERING_OFF = "powering-off"
POWERING_ON = "powering-on"
REBOOTING = "rebooting"
REBOOTING_HARD = "rebooting_hard"
REBUILDING = "rebuilding"
REBUILD_SPAWNING = "rebuild_spawning"


class PowerState(enum.IntEnum):
    """What the hypervisor says; numbers as in Nova's OS-EXT-STS:power_state."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


class ActionKind(enum.StrEnum):
    """Kinds of user actions, as `openstack server event list` shows them."""

    CREATE = "create"
    DELETE = "delete"
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    EVACUATE = "evacuate"


class Transition:
    """What accepting an action demands of the instance and sets on it.

    ``vm_states``: allowed ones, None for any. ``task_state``: set on accept. ``during_tasks``: task states in which
    the action is accepted anyway (empty: only when no task is running; None: any). ``result``: vm_state once the host
    has carried it out.
    """

    def __init__(
        self,
        method: str,
        vm_states: tuple[str, ...] | None,
        task_state: str,
        result: str,
        during_tasks: tuple[str, ...] | None = (),
    ) -> None:
        self.method = method
        self.vm_states = vm_states
        self.task_state = task_state
        self.result = result
        self.during_tasks = during_tasks


#: Which states allow which action (Nova's `check_instance_state` decorators, as a table).
TRANSITIONS: dict[str, Transition] = {
    ActionKind.DELETE: Transition("delete", None, DELETING, DELETED, during_tasks=None),
    ActionKind.START: Transition("start", (STOPPED,), POWERING_ON, ACTIVE),
    ActionKind.STOP: Transition("stop", (ACTIVE, ERROR), POWERING_OFF, STOPPED),
    ActionKind.REBOOT: Transition("reboot", (ACTIVE,), REBOOTING, ACTIVE),
    ActionKind.EVACUATE: Transition(
        "evacuate",
        (ACTIVE, STOPPED, ERROR),
        REBUILDING,
        STOPPED,
        during_tasks=(POWERING_OFF, POWERING_ON, REBOOTING, REBOOTING_HARD, REBUILDING, REBUILD_SPAWNING),
    ),
}

#: Actions that are scheduled and built: their task state while they wait for a host, and while the host builds.
BUILD_TASKS: dict[str, tuple[str, str]] = {
    ActionKind.CREATE: (SCHEDULING, SPAWNING),
    ActionKind.EVACUATE: (REBUILDING, REBUILD_SPAWNING),
}

#: A hard reboot also mends an instance that is stopped, paused, suspended or in error, and one stuck in a soft reboot.
HARD_REBOOT = Transition(
    "reboot",
    (ACTIVE, STOPPED, PAUSED, SUSPENDED, ERROR),
    REBOOTING_HARD,
    ACTIVE,
    during_tasks=(REBOOTING,),
)
