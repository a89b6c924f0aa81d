"""Changes of a server's states, for ``instance.update``."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.conf.notifications import VM_AND_TASK_STATE
from nova_lite.db.core.state_changes import States
from nova_lite.objects import Instance


class StateChange(NamedTuple):
    """A server whose states a transaction has changed, as it is now."""

    instance: Instance
    before: States


def is_changed(change: StateChange, which: str) -> bool:
    """Check whether the option ``notify_on_state_change``, which is ``which``, asks for this change."""
    now = States(change.instance.vm_state, change.instance.task_state)
    if now.vm_state != change.before.vm_state:
        return True
    return which == VM_AND_TASK_STATE and now.task_state != change.before.task_state


def fields(change: StateChange) -> dict[str, str | None]:
    """Return the states as Nova names them. A server that is new was in its present states."""
    now, before = change.instance, change.before
    return {
        "old_state": before.vm_state or now.vm_state,
        "state": now.vm_state,
        "old_task_state": now.task_state if before.vm_state is None else before.task_state,
        "new_task_state": now.task_state,
    }
