"""Changes of actions that other systems are notified of, collected while a transaction runs.

`nova_lite.conductor.notifications` writes the notifications at the end of the transaction.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nova_lite.db.core.models import InstanceAction
    from nova_lite.operations import Step


class Change(enum.Enum):
    """Change of an action, or of one of its steps.

    FAILED: its undo begins. UNDONE: it is closed after that.
    """

    OPENED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()
    UNDONE = enum.auto()
    STEP_BEGUN = enum.auto()
    STEP_DONE = enum.auto()


class ActionChange(NamedTuple):
    """A change of an action. ``host``: the action's host at that time. ``cause``: why it failed, at ``step``."""

    action: InstanceAction
    change: Change
    host: str | None
    step: Step | None = None
    cause: str = ""
