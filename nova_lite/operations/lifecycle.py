"""Operations on a server that stays on its host: create to delete, power, rebuild, rescue, and locks."""

from __future__ import annotations

import dataclasses

from nova_lite.operations import states
from nova_lite.operations.notifications import Notification, Payload, Source
from nova_lite.operations.steps import (
    BUILD_STEP,
    CLEANUP,
    DEALLOCATE,
    DISCARD_STEP,
    PERFORM,
    RELEASE,
    SCHEDULE,
    SCHEDULE_EVENT,
    TURN_OFF,
    by_driver,
    by_host,
)
from nova_lite.operations.types import ANY, HostRole, HostStep, NetworkStep, Operation, ReleaseStep, ScheduleStep

CREATE = Operation(
    "create",
    notification=Notification("create", Payload.CREATE),
    failed=states.ERROR,
    steps=(
        ScheduleStep(
            SCHEDULE, task=states.SCHEDULING, event=SCHEDULE_EVENT, undo=(NetworkStep(DEALLOCATE), ReleaseStep(RELEASE))
        ),
        BUILD_STEP,
    ),
)

#: The guest is off, and its disks stay until the reconciler deletes it or its owner restores it.
SOFT_DELETE = Operation(
    "delete",
    at_replica=True,
    notification=Notification("soft_delete"),
    allowed=(
        states.ACTIVE,
        states.STOPPED,
        states.PAUSED,
        states.SUSPENDED,
        states.RESCUED,
        states.SHELVED,
        states.ERROR,
        states.SOFT_DELETED,
    ),
    during=(
        states.POWERING_OFF,
        states.POWERING_ON,
        states.REBOOTING,
        states.REBOOTING_HARD,
        states.PAUSING,
        states.UNPAUSING,
        states.SUSPENDING,
        states.RESUMING,
        states.SOFT_DELETING,
    ),
    deduplicates=True,
    steps=(
        HostStep(
            PERFORM,
            "soft_delete_instance",
            task=states.SOFT_DELETING,
            event="compute_soft_delete_instance",
            becomes=states.SOFT_DELETED,
            retry_forever=True,
            offline_step=TURN_OFF,
        ),
    ),
)

DELETE = Operation(
    "delete",
    at_replica=True,
    notification=Notification("delete"),
    preempts=True,
    during=ANY,
    deduplicates=True,
    needs_host=False,
    steps=(
        HostStep(
            PERFORM,
            "terminate_instance",
            task=states.DELETING,
            event="compute_terminate_instance",
            at=HostRole.ALL,
            becomes=states.DELETED,
            fences=True,
            retry_forever=True,
            offline_step=CLEANUP,
            minimal=True,
        ),
        NetworkStep(DEALLOCATE),
        ReleaseStep(RELEASE),
        dataclasses.replace(DISCARD_STEP, only_if="image_id"),
    ),
    variants=(("soft", True, SOFT_DELETE),),
)

STOP = Operation(
    "stop",
    at_replica=True,
    notification=Notification("power_off"),
    allowed=(states.ACTIVE, states.ERROR),
    steps=(by_host("stop", states.POWERING_OFF, states.STOPPED),),
    action="os-stop",
    rule="os_compute_api:servers:stop",
    summary="Stop a server",
)

START = Operation(
    "start",
    notification=Notification("power_on"),
    allowed=(states.STOPPED,),
    steps=(by_host("start", states.POWERING_ON, states.ACTIVE),),
    action="os-start",
    rule="os_compute_api:servers:start",
    summary="Start a server",
)

#: A hard reboot also repairs an instance that is stopped, paused, suspended, in error, or stuck in a soft reboot.
HARD_REBOOT = Operation(
    "reboot",
    allowed=(states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED, states.ERROR),
    during=(states.REBOOTING,),
    steps=(by_host("reboot", states.REBOOTING_HARD, states.ACTIVE),),
)

REBOOT = Operation(
    "reboot",
    notification=Notification("reboot"),
    allowed=(states.ACTIVE,),
    steps=(by_host("reboot", states.REBOOTING, states.ACTIVE),),
    variants=(("reboot_type", "HARD", HARD_REBOOT),),
    action="reboot",
    rule="os_compute_api:servers:reboot",
    summary="Reboot a server",
)

#: The same host builds the server again at a new generation, which replaces the old one.
REBUILD = Operation(
    "rebuild",
    notification=Notification(
        "rebuild",
        Payload.REBUILD,
        first=Notification("rebuild_scheduled", Payload.REBUILD, phases=(), source=Source.CONDUCTOR),
    ),
    preempts=True,
    loses_tpm=True,
    without_points=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR),
    failed=states.ERROR,
    steps=(
        dataclasses.replace(
            BUILD_STEP, task=states.REBUILDING, begun=states.REBUILD_SPAWNING, event="compute_rebuild_instance"
        ),
        by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)

RESCUE = Operation(
    "rescue",
    notification=Notification("rescue", Payload.RESCUE),
    loses_tpm=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR),
    steps=(by_host("rescue", states.RESCUING, states.RESCUED),),
    action="rescue",
    rule="os_compute_api:os-rescue",
    summary="Boot a server from a rescue image, its own disk beside it",
)

UNRESCUE = Operation(
    "unrescue",
    notification=Notification("unrescue"),
    allowed=(states.RESCUED,),
    steps=(by_host("unrescue", states.UNRESCUING, states.ACTIVE),),
    action="unrescue",
    rule="os_compute_api:os-unrescue",
    summary="Boot a rescued server from its own disk again",
)

RESTORE = Operation(
    "restore",
    notification=Notification("restore"),
    allowed=(states.SOFT_DELETED,),
    steps=(by_host("restore", states.RESTORING, states.ACTIVE),),
    action="restore",
    rule="os_compute_api:os-deferred-delete:restore",
    summary="Restore a server that was deleted and not reclaimed yet",
)

CHANGE_PASSWORD = Operation(
    "changePassword",
    allowed=(states.ACTIVE,),
    steps=(
        HostStep(
            PERFORM,
            "set_admin_password",
            task=states.UPDATING_PASSWORD,
            event="compute_set_admin_password",
        ),
    ),
    action="changePassword",
    rule="os_compute_api:os-admin-password",
    summary="Change the password of a server's administrator",
)

CRASH_DUMP = Operation(
    "trigger_crash_dump",
    notification=Notification("trigger_crash_dump"),
    allowed=(states.ACTIVE, states.PAUSED, states.RESCUED, states.RESIZED, states.ERROR),
    steps=(
        HostStep(
            PERFORM,
            "trigger_crash_dump",
            event="compute_trigger_crash_dump",
            driver="crash_dumps.trigger",
        ),
    ),
    action="trigger_crash_dump",
    microversion=17,
    rule="os_compute_api:servers:trigger_crash_dump",
    summary="Have a server's system write a crash dump",
)

PAUSE = Operation(
    "pause",
    notification=Notification("pause"),
    allowed=(states.ACTIVE,),
    steps=(by_driver("pause", states.PAUSING, states.PAUSED),),
    action="pause",
    rule="os_compute_api:os-pause-server:pause",
    summary="Pause a server",
)

UNPAUSE = Operation(
    "unpause",
    notification=Notification("unpause"),
    allowed=(states.PAUSED,),
    steps=(by_driver("unpause", states.UNPAUSING, states.ACTIVE),),
    action="unpause",
    rule="os_compute_api:os-pause-server:unpause",
    summary="Let a paused server run on",
)

SUSPEND = Operation(
    "suspend",
    notification=Notification("suspend"),
    copies_memory=True,
    allowed=(states.ACTIVE,),
    steps=(by_driver("suspend", states.SUSPENDING, states.SUSPENDED),),
    action="suspend",
    rule="os_compute_api:os-suspend-server:suspend",
    summary="Suspend a server, its memory kept on disk",
)

RESUME = Operation(
    "resume",
    notification=Notification("resume"),
    allowed=(states.SUSPENDED,),
    steps=(by_driver("resume", states.RESUMING, states.ACTIVE),),
    action="resume",
    rule="os_compute_api:os-suspend-server:resume",
    summary="Resume a suspended server",
)

LOCK = Operation(
    "lock",
    at_replica=True,
    notification=Notification("lock", phases=(), source=Source.API),
    during=ANY,
    despite_lock=True,
    needs_host=False,
    supersedes=False,
)
UNLOCK = Operation(
    "unlock",
    at_replica=True,
    notification=Notification("unlock", phases=(), source=Source.API),
    during=ANY,
    despite_lock=True,
    needs_host=False,
    supersedes=False,
)
CRASH = Operation("crash", at_replica=True, reported=True)
WATCHDOG = Operation("watchdog", at_replica=True, reported=True)
DEVICE_LOST = Operation("device_lost", at_replica=True, reported=True)
RESET_STATE = Operation("reset_state", at_replica=True, during=ANY, despite_lock=True, needs_host=False)
