"""Operations that move a server: evacuate, resize, cold migration, and live migration."""

from __future__ import annotations

import dataclasses
from typing import Any

from nova_lite.operations import states
from nova_lite.operations.steps import (
    ARRIVE,
    BUILD_STEP,
    CHECK,
    CLEAR,
    DROP,
    FIND,
    HAND_OVER,
    LEAVE,
    PERFORM,
    PREPARE,
    RELEASE,
    RELEASE_SOURCE,
    RETURN,
    ROLL_BACK,
    SCHEDULE,
    SCHEDULE_EVENT,
    SETTLE,
    by_host,
)
from nova_lite.operations.types import LOST_SOURCE, End, OnHost, Operation, Release, Schedule

EVACUATE = Operation(
    "evacuate",
    takes_over=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR, states.RESIZED),
    during=(
        *(states.POWERING_OFF, states.POWERING_ON, states.REBOOTING, states.REBOOTING_HARD),
        *(states.REBUILDING, states.REBUILD_SPAWNING),
        *(states.RESIZE_PREP, states.RESIZE_MIGRATING, states.RESIZE_REVERTING),
        *(states.ATTACHING_VOLUME, states.DETACHING_VOLUME, states.COPYING_VOLUME, states.SWAPPING_VOLUME),
    ),
    needs_host=False,
    failed=states.ERROR,
    steps=(
        Schedule(SCHEDULE, task=states.REBUILDING, event=SCHEDULE_EVENT, undo=(Release(RELEASE),)),
        dataclasses.replace(BUILD_STEP, begun=states.REBUILD_SPAWNING),
        by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)

#: At the destination nothing is left of the instance, nor will it ever come to be there at that generation.
_DROP = OnHost(
    DROP,
    "drop_resize",
    task=states.RESIZE_REVERTING,
    at=End.DESTINATION,
    fences=True,
    lasting=True,
    revives=True,
    since="1.4",
)

#: At the source the guest is let go on, as it was.
_RETURN = OnHost(
    RETURN,
    "finish_revert_resize",
    task=states.RESIZE_REVERTING,
    at=End.SOURCE,
    lasting=True,
    since="1.4",
)

_MOVE = (
    Schedule(
        SCHEDULE,
        task=states.RESIZE_PREP,
        event="conductor_migrate_server",
        moves=False,
        undo=(Release(RELEASE, end=End.DESTINATION),),
    ),
    OnHost(
        LEAVE,
        "resize_instance",
        task=states.RESIZE_MIGRATING,
        event="compute_resize_instance",
        at=End.SOURCE,
        undo=(_RETURN,),
        since="1.4",
    ),
    OnHost(
        ARRIVE,
        "finish_resize",
        task=states.RESIZE_FINISH,
        event="compute_finish_resize",
        at=End.DESTINATION,
        becomes=states.RESIZED,
        moves_to=End.DESTINATION,
        deadline="migration_deadline",
        undo=(_DROP,),
        commits=True,
        since="1.4",
    ),
)

#: Both ends are one host, which has the guest's former disks beside the new ones until its owner's word.
RESIZE_SAME_HOST = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=tuple(
        dataclasses.replace(step, method="set_aside_instance", since="1.6")
        if isinstance(step, OnHost) and step.name == LEAVE
        else step
        for step in _MOVE
    ),
)

RESIZE = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    variants=(("same_host", True, RESIZE_SAME_HOST),),
    action="resize",
    rule="os_compute_api:servers:resize",
    summary="Resize a server: give it another flavor, on another host",
)

MIGRATE = Operation(
    "migrate",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    action="migrate",
    rule="os_compute_api:os-migrate-server:migrate",
    admin=True,
    summary="Migrate a server, off, to another host",
)

CONFIRM_RESIZE = Operation(
    "confirmResize",
    allowed=(states.RESIZED,),
    steps=(
        OnHost(
            PERFORM,
            "confirm_resize",
            task=states.RESIZE_CONFIRMING,
            event="compute_confirm_resize",
            at=End.SOURCE,
            becomes=states.ACTIVE,
            fences=True,
            lasting=True,
            since="1.4",
        ),
        Release(RELEASE, end=End.SOURCE),
    ),
    method="confirm_resize",
    action="confirmResize",
    rule="os_compute_api:servers:confirm_resize",
    summary="Confirm a resize or a migration",
)

REVERT_RESIZE = Operation(
    "revertResize",
    allowed=(states.RESIZED,),
    steps=(
        dataclasses.replace(
            _DROP, method="revert_resize", event="compute_revert_resize", moves_to=End.SOURCE, revives=False
        ),
        Release(RELEASE, end=End.DESTINATION),
        dataclasses.replace(_RETURN, event="compute_finish_revert_resize", becomes=states.ACTIVE),
    ),
    method="revert_resize",
    action="revertResize",
    rule="os_compute_api:servers:revert_resize",
    summary="Revert a resize or a migration",
)


def _live(name: str, method: str, at: End, event: str | None = None, **fields: Any) -> OnHost:
    """A step of a live migration, or an undo, which has no event."""
    return OnHost(name, method, task=states.MIGRATING, event=event and f"compute_{event}", at=at, since="1.5", **fields)


#: The source will not tell any more: whether the guest has arrived.
_FIND = dataclasses.replace(
    _live(FIND, "find_live_migrated_instance", End.DESTINATION, lasting=True, revives=True),
    only_if=LOST_SOURCE,
    since="1.6",
)

#: The guest runs all the time. Where it is, only the source's hypervisor knows until it has said so: it is asked, when
#: its daemon did not answer, and what it has handed over goes on at the destination.
LIVE_MIGRATE = Operation(
    "live-migration",
    allowed=(states.ACTIVE, states.PAUSED),
    steps=(
        Schedule(
            SCHEDULE,
            task=states.MIGRATING,
            event="conductor_live_migrate_instance",
            moves=False,
            undo=(Release(RELEASE, end=End.DESTINATION),),
        ),
        _live(CHECK, "check_can_live_migrate_source", End.SOURCE, "check_can_live_migrate_source"),
        _live(
            PREPARE,
            "pre_live_migration",
            End.DESTINATION,
            "pre_live_migration",
            undo=(_live(DROP, "rollback_live_migration_at_destination", End.DESTINATION, fences=True, lasting=True),),
        ),
        _live(
            HAND_OVER,
            "live_migration",
            End.SOURCE,
            "live_migration",
            deadline="live_migration_deadline",
            undo=(
                _live(ROLL_BACK, "rollback_live_migration", End.SOURCE, lasting=True, revives=True),
                _FIND,
            ),
            commits=True,
            moves_to=End.DESTINATION,
        ),
        _live(
            SETTLE,
            "post_live_migration_at_destination",
            End.DESTINATION,
            "post_live_migration_at_destination",
            lasting=True,
        ),
        _live(CLEAR, "post_live_migration", End.SOURCE, "post_live_migration", fences=True, lasting=True),
        Release(RELEASE_SOURCE, end=End.SOURCE),
    ),
    method="os-migrateLive",
    action="os-migrateLive",
    rule="os_compute_api:os-migrate-server:migrate_live",
    admin=True,
    summary="Migrate a server, running, to another host",
)
