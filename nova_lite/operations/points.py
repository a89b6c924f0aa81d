"""Operations on the snapshot points of a server. See `nova_lite.objects.SnapshotPoint`."""

from __future__ import annotations

from nova_lite.operations import states
from nova_lite.operations.steps import PERFORM, REVERT, TAKE_BACK, by_host
from nova_lite.operations.types import HostStep, Operation

_ALLOWED = (states.ACTIVE, states.PAUSED, states.STOPPED)
_ALWAYS = (*_ALLOWED, states.SUSPENDED, states.ERROR)


def _step(name: str, method: str, task: str, becomes: str | None = None, undo: tuple[HostStep, ...] = ()) -> HostStep:
    event = f"compute_{method}"
    return HostStep(name, method, task=task, event=event, becomes=becomes, deadline="snapshot_deadline", undo=undo)


#: The host removes whatever it has of a point that was not made whole. A guest whose memory was saved runs again.
_TAKE_BACK = HostStep(TAKE_BACK, "rollback_create_point", retry_forever=True)

CREATE_POINT = Operation(
    "create_point",
    allowed=_ALLOWED,
    steps=(_step(PERFORM, "create_point", states.CREATING_POINT, undo=(_TAKE_BACK,)),),
)

#: A point whose deletion has failed is in error.
DELETE_POINT = Operation(
    "delete_point", allowed=_ALWAYS, steps=(_step(PERFORM, "delete_point", states.DELETING_POINT),)
)


def _revert(becomes: str, *more: HostStep, variants: tuple[tuple[str, bool, Operation], ...] = ()) -> Operation:
    step = _step(REVERT, "revert_to_point", states.REVERTING_TO_POINT, becomes)
    return Operation("revert_to_point", allowed=_ALWAYS, failed=states.ERROR, steps=(step, *more), variants=variants)


#: A guest with the memory of the point continues as it was. Otherwise it boots if the server was active. After a
#: failure the disk may have the content of neither, so the server is in error, and can be reverted again.
REVERT_TO_POINT = _revert(
    states.STOPPED,
    by_host("start", states.POWERING_ON, states.ACTIVE, only_if="start", deadline="action_deadline"),
    variants=(("memory", True, _revert(states.ACTIVE)),),
)
