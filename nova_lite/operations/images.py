"""Operations that make an image of a server: snapshots, backups, shelve, and unshelve.

`nova_lite.operations.types` explains the fields.
"""

from __future__ import annotations

import dataclasses

from nova_lite.operations import states
from nova_lite.operations.notifications import Notification, Payload
from nova_lite.operations.steps import (
    BUILD_STEP,
    DISCARD_STEP,
    PERFORM,
    PUBLISH,
    PUBLISH_STEP,
    RELEASE,
    ROTATE,
    SCHEDULE,
    WITH_DISK,
    by_host,
    snapshot_step,
)
from nova_lite.operations.types import HostStep, ImageStep, ImageVerb, Operation, ReleaseStep, ScheduleStep

#: The host takes snapshots of all volumes at the same moment. The image has no data, only the snapshots' names.
CREATE_IMAGE_OF_VOLUMES = Operation(
    "createImage",
    allowed=WITH_DISK,
    steps=(
        HostStep(
            PERFORM,
            "snapshot_volumes",
            task=states.IMAGE_SNAPSHOT_PENDING,
            tasks=(states.IMAGE_SNAPSHOT,),
            event="compute_snapshot_instance",
            deadline="snapshot_deadline",
            undo=(DISCARD_STEP,),
        ),
        ImageStep(PUBLISH, verb=ImageVerb.ACTIVATE, commits=True),
    ),
)

CREATE_IMAGE = Operation(
    "createImage",
    copies_root=True,
    at_replica=True,
    notification=Notification("snapshot", Payload.SNAPSHOT),
    allowed=WITH_DISK,
    variants=(("volume_backed", True, CREATE_IMAGE_OF_VOLUMES),),
    steps=(
        snapshot_step(
            "snapshot_instance",
            states.IMAGE_SNAPSHOT_PENDING,
            states.IMAGE_SNAPSHOT,
            states.IMAGE_PENDING_UPLOAD,
            states.IMAGE_UPLOADING,
        ),
        PUBLISH_STEP,
    ),
)

#: The host uploads a stream of the root disk, whole or an increment. The conductor moves it to the repository later.
CREATE_BACKUP_OF_DISK = Operation(
    "createBackup",
    copies_root=True,
    at_replica=True,
    notification=Notification("snapshot", Payload.SNAPSHOT),
    allowed=WITH_DISK,
    steps=(
        dataclasses.replace(
            snapshot_step("backup_disk", states.IMAGE_BACKUP, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING),
        ),
        PUBLISH_STEP,
    ),
)

CREATE_BACKUP = Operation(
    "createBackup",
    copies_root=True,
    at_replica=True,
    notification=Notification("snapshot", Payload.SNAPSHOT),
    allowed=WITH_DISK,
    variants=(("of_disk", True, CREATE_BACKUP_OF_DISK),),
    steps=(
        snapshot_step("backup_instance", states.IMAGE_BACKUP, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING),
        PUBLISH_STEP,
        ImageStep(ROTATE, verb=ImageVerb.ROTATE),
    ),
)

#: Its data is on volumes, so no image is made, and it leaves its host at once.
SHELVE_VOLUME_BACKED = Operation(
    "shelve",
    loses_tpm=True,
    allowed=WITH_DISK,
    steps=(
        HostStep(
            PERFORM,
            "shelve_volume_backed_instance",
            task=states.SHELVING_OFFLOADING,
            event="compute_shelve_offload_instance",
            becomes=states.SHELVED_OFFLOADED,
            fences=True,
        ),
        ReleaseStep(RELEASE),
    ),
)

SHELVE = Operation(
    "shelve",
    copies_root=True,
    notification=Notification("shelve"),
    loses_tpm=True,
    without_points=True,
    allowed=WITH_DISK,
    variants=(("volume_backed", True, SHELVE_VOLUME_BACKED),),
    steps=(
        snapshot_step(
            "shelve_instance",
            states.SHELVING,
            states.SHELVING_IMAGE_PENDING_UPLOAD,
            states.SHELVING_IMAGE_UPLOADING,
        ),
        dataclasses.replace(PUBLISH_STEP, becomes=states.SHELVED),
    ),
)

#: The host removes the server, which keeps its addresses and quota. The conductor may have begun or finished this
#: automatically after a shelve, so a later request is not refused.
SHELVE_OFFLOAD = Operation(
    "shelveOffload",
    notification=Notification("shelve_offload"),
    allowed=(states.SHELVED, states.SHELVED_OFFLOADED),
    deduplicates=True,
    needs_host=False,
    steps=(
        by_host("shelve_offload", states.SHELVING_OFFLOADING, states.SHELVED_OFFLOADED, fences=True),
        ReleaseStep(RELEASE),
    ),
)

#: Discards the image that the shelve has made, if any.
_DISCARD_SHELVED = dataclasses.replace(DISCARD_STEP, only_if="image_id")

UNSHELVE_OFFLOADED = Operation(
    "unshelve",
    allowed=(states.SHELVED_OFFLOADED,),
    needs_host=False,
    steps=(
        ScheduleStep(
            SCHEDULE, task=states.UNSHELVING, event="conductor_unshelve_instance", undo=(ReleaseStep(RELEASE),)
        ),
        dataclasses.replace(BUILD_STEP, event="compute_unshelve_instance"),
        _DISCARD_SHELVED,
    ),
)

UNSHELVE = Operation(
    "unshelve",
    notification=Notification("unshelve"),
    allowed=(states.SHELVED, states.SHELVED_OFFLOADED),
    needs_host=False,
    steps=(by_host("unshelve", states.UNSHELVING, states.ACTIVE), _DISCARD_SHELVED),
    variants=(("offloaded", True, UNSHELVE_OFFLOADED),),
)
