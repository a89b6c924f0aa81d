"""Operations that move a server: evacuate, resize, cold migration, and live migration."""

from __future__ import annotations

import dataclasses
from typing import Any

from nova_lite.operations import states
from nova_lite.operations.notifications import OF_STEP, Notification, Payload, Phase, Source
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
from nova_lite.operations.types import LOST_SOURCE, HostRole, HostStep, Operation, ReleaseStep, ScheduleStep

EVACUATE = Operation(
    "evacuate",
    notification=Notification("rebuild", Payload.REBUILD, first=Notification("evacuate", phases=(), source=Source.API)),
    preempts=True,
    loses_tpm=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR, states.RESIZED),
    during=(
        states.POWERING_OFF, states.POWERING_ON, states.REBOOTING, states.REBOOTING_HARD, states.REBUILDING,
        states.REBUILD_SPAWNING, states.RESIZE_PREP, states.RESIZE_MIGRATING, states.RESIZE_REVERTING,
        states.ATTACHING_VOLUME, states.DETACHING_VOLUME, states.COPYING_VOLUME, states.SWAPPING_VOLUME,
        states.SNAPSHOTTING_VOLUME, states.MERGING_VOLUME, states.ATTACHING_SHARE, states.DETACHING_SHARE,
        states.CREATING_POINT, states.DELETING_POINT, states.CLONING,
    ),
    needs_host=False,
    failed=states.ERROR,
    steps=(
        ScheduleStep(SCHEDULE, task=states.REBUILDING, event=SCHEDULE_EVENT, undo=(ReleaseStep(RELEASE),)),
        dataclasses.replace(BUILD_STEP, begun=states.REBUILD_SPAWNING),
        by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)  # fmt: skip

#: Removes the instance from the destination and makes sure that it never appears there at that generation.
_DROP = HostStep(
    DROP,
    "drop_resize",
    task=states.RESIZE_REVERTING,
    at=HostRole.DESTINATION,
    fences=True,
    retry_forever=True,
    may_complete_late=True,
)

#: Restores the guest at the source.
_RETURN = HostStep(
    RETURN,
    "finish_revert_resize",
    task=states.RESIZE_REVERTING,
    at=HostRole.SOURCE,
    retry_forever=True,
)

_MOVE = (
    ScheduleStep(
        SCHEDULE,
        task=states.RESIZE_PREP,
        event="conductor_migrate_server",
        moves=False,
        undo=(ReleaseStep(RELEASE, at=HostRole.DESTINATION),),
        notification=Notification("resize_prep", Payload.RESIZE_PREP, phases=OF_STEP),
    ),
    HostStep(
        LEAVE,
        "resize_instance",
        task=states.RESIZE_MIGRATING,
        event="compute_resize_instance",
        at=HostRole.SOURCE,
        undo=(_RETURN,),
        notification=Notification("resize", phases=OF_STEP),
    ),
    HostStep(
        ARRIVE,
        "finish_resize",
        task=states.RESIZE_FINISH,
        event="compute_finish_resize",
        at=HostRole.DESTINATION,
        becomes=states.RESIZED,
        moves_to=HostRole.DESTINATION,
        deadline="migration_deadline",
        undo=(_DROP,),
        commits=True,
        notification=Notification("resize_finish", phases=OF_STEP),
    ),
)

#: A move has no events of its own but those of its steps, and of a failure.
_MOVE_FAILS = Notification("resize", phases=(Phase.ERROR,))

#: Source and destination are one host. It has the old disks beside the new ones until the owner confirms or reverts.
RESIZE_SAME_HOST = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=tuple(
        dataclasses.replace(step, method="resize_instance_same_host")
        if isinstance(step, HostStep) and step.name == LEAVE
        else step
        for step in _MOVE
    ),
)


def _plug(task: str, event: str, becomes: str, **fields: Any) -> Operation:
    """Return an operation by which a guest gets the vCPUs and memory of another flavor where it is.

    The guest may refuse that. Then it returns to its old size, or the step counts as done after all.
    """
    back = HostStep(
        ROLL_BACK,
        "rollback_resize_in_place",
        task=states.RESIZE_REVERTING,
        retry_forever=True,
        may_complete_late=True,
    )
    step = HostStep(PERFORM, "resize_in_place", task=task, event=event, becomes=becomes, undo=(back,))
    return Operation(steps=(step,), **fields)


#: A running guest gets more vCPUs and memory, or less, up to the maximum of its flavors.
RESIZE_IN_PLACE = _plug(
    states.RESIZE_MIGRATING,
    "compute_resize_instance",
    states.RESIZED,
    kind="resize",
    allowed=(states.ACTIVE,),
    notification=Notification("resize"),
)

#: Confirms a resize in place: only the claim changes.
CONFIRM_IN_PLACE = Operation("confirmResize", allowed=(states.RESIZED,))

REVERT_IN_PLACE = _plug(
    states.RESIZE_REVERTING,
    "compute_revert_resize",
    states.ACTIVE,
    kind="revertResize",
    allowed=(states.RESIZED,),
)

RESIZE = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    notification=_MOVE_FAILS,
    variants=(("same_host", True, RESIZE_SAME_HOST), ("in_place", True, RESIZE_IN_PLACE)),
    action="resize",
    rule="os_compute_api:servers:resize",
    summary="Resize a server: give it another flavor, on another host",
)

MIGRATE = Operation(
    "migrate",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    notification=_MOVE_FAILS,
    action="migrate",
    rule="os_compute_api:os-migrate-server:migrate",
    admin=True,
    summary="Migrate a server to another host while it is off",
)

CONFIRM_RESIZE = Operation(
    "confirmResize",
    notification=Notification("resize_confirm"),
    allowed=(states.RESIZED,),
    steps=(
        HostStep(
            PERFORM,
            "confirm_resize",
            task=states.RESIZE_CONFIRMING,
            event="compute_confirm_resize",
            at=HostRole.SOURCE,
            becomes=states.ACTIVE,
            fences=True,
            retry_forever=True,
        ),
        ReleaseStep(RELEASE, at=HostRole.SOURCE),
    ),
    variants=(("in_place", True, CONFIRM_IN_PLACE),),
    action="confirmResize",
    rule="os_compute_api:servers:confirm_resize",
    summary="Confirm a resize or a migration",
)

REVERT_RESIZE = Operation(
    "revertResize",
    notification=Notification("resize_revert"),
    allowed=(states.RESIZED,),
    steps=(
        dataclasses.replace(
            _DROP,
            method="revert_resize",
            event="compute_revert_resize",
            moves_to=HostRole.SOURCE,
            may_complete_late=False,
        ),
        ReleaseStep(RELEASE, at=HostRole.DESTINATION),
        dataclasses.replace(_RETURN, event="compute_finish_revert_resize", becomes=states.ACTIVE),
    ),
    variants=(("in_place", True, REVERT_IN_PLACE),),
    action="revertResize",
    rule="os_compute_api:servers:revert_resize",
    summary="Revert a resize or a migration",
)


def _live(name: str, method: str, at: HostRole, event: str | None = None, **fields: Any) -> HostStep:
    """Return a step of a live migration, or an undo, which has no event."""
    return HostStep(name, method, task=states.MIGRATING, event=event and f"compute_{event}", at=at, **fields)


#: Asks the destination whether the guest has arrived, because the source cannot report it any more.
_FIND = dataclasses.replace(
    _live(FIND, "find_live_migrated_instance", HostRole.DESTINATION, retry_forever=True, may_complete_late=True),
    only_if=LOST_SOURCE,
)

#: The guest runs all the time. Until the source has reported, only its hypervisor knows where the guest is. If no
#: report comes, an undo asks the source; a guest that was handed over continues at the destination.
LIVE_MIGRATE = Operation(
    "live-migration",
    rollback=Notification("live_migration_rollback", phases=OF_STEP),
    copies_memory=True,
    without_points=True,
    allowed=(states.ACTIVE, states.PAUSED),
    steps=(
        ScheduleStep(
            SCHEDULE,
            task=states.MIGRATING,
            event="conductor_live_migrate_instance",
            moves=False,
            undo=(ReleaseStep(RELEASE, at=HostRole.DESTINATION),),
        ),
        _live(CHECK, "check_can_live_migrate_source", HostRole.SOURCE, "check_can_live_migrate_source"),
        _live(
            PREPARE,
            "pre_live_migration",
            HostRole.DESTINATION,
            "pre_live_migration",
            notification=Notification("live_migration_pre", phases=OF_STEP),
            undo=(
                _live(
                    DROP,
                    "rollback_live_migration_at_destination",
                    HostRole.DESTINATION,
                    fences=True,
                    retry_forever=True,
                    notification=Notification("live_migration_rollback_dest", phases=OF_STEP),
                ),
            ),
        ),
        _live(
            HAND_OVER,
            "live_migration",
            HostRole.SOURCE,
            "live_migration",
            deadline="live_migration_deadline",
            undo=(
                _live(
                    ROLL_BACK, "rollback_live_migration", HostRole.SOURCE, retry_forever=True, may_complete_late=True
                ),
                _FIND,
            ),
            commits=True,
            moves_to=HostRole.DESTINATION,
        ),
        _live(
            SETTLE,
            "post_live_migration_at_destination",
            HostRole.DESTINATION,
            "post_live_migration_at_destination",
            retry_forever=True,
            notification=Notification("live_migration_post_dest", phases=OF_STEP),
        ),
        _live(
            CLEAR,
            "post_live_migration",
            HostRole.SOURCE,
            "post_live_migration",
            fences=True,
            retry_forever=True,
            notification=Notification("live_migration_post", phases=OF_STEP),
        ),
        ReleaseStep(RELEASE_SOURCE, at=HostRole.SOURCE),
    ),
    method="os-migrateLive",
    action="os-migrateLive",
    rule="os_compute_api:os-migrate-server:migrate_live",
    admin=True,
    summary="Migrate a server to another host while it runs",
)
