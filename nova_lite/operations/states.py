"""States of an instance, with Nova's names."""

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
PAUSING = "pausing"
UNPAUSING = "unpausing"
SUSPENDING = "suspending"
RESUMING = "resuming"
REBUILDING = "rebuilding"
REBUILD_SPAWNING = "rebuild_spawning"
MIGRATING = "migrating"
RESIZE_PREP = "resize_prep"
RESIZE_MIGRATING = "resize_migrating"
RESIZE_FINISH = "resize_finish"
RESIZE_REVERTING = "resize_reverting"
RESIZE_CONFIRMING = "resize_confirming"
IMAGE_SNAPSHOT_PENDING = "image_snapshot_pending"
IMAGE_SNAPSHOT = "image_snapshot"
IMAGE_BACKUP = "image_backup"
IMAGE_PENDING_UPLOAD = "image_pending_upload"
IMAGE_UPLOADING = "image_uploading"
SHELVING = "shelving"
SHELVING_IMAGE_PENDING_UPLOAD = "shelving_image_pending_upload"
SHELVING_IMAGE_UPLOADING = "shelving_image_uploading"
SHELVING_OFFLOADING = "shelving_offloading"
UNSHELVING = "unshelving"
RESCUING = "rescuing"
UNRESCUING = "unrescuing"
UPDATING_PASSWORD = "updating_password"  # noqa: S105 a state
SOFT_DELETING = "soft-deleting"
RESTORING = "restoring"
ATTACHING_VOLUME = "attaching_volume"
DETACHING_VOLUME = "detaching_volume"
COPYING_VOLUME = "copying_volume"
SWAPPING_VOLUME = "swapping_volume"
ATTACHING_INTERFACE = "attaching_interface"
DETACHING_INTERFACE = "detaching_interface"


class PowerState(enum.IntEnum):
    """What the hypervisor says; numbers as in Nova's OS-EXT-STS:power_state."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


#: What the guest of an instance is that no task is changing. A suspended one is off, its memory on disk. A
#: rescued one stays so, whether its rescue system runs or not.
GUEST_IS: dict[str, tuple[PowerState, ...]] = {
    ACTIVE: (PowerState.RUNNING,),
    STOPPED: (PowerState.SHUTDOWN, PowerState.CRASHED),
    PAUSED: (PowerState.PAUSED,),
    SUSPENDED: (PowerState.SUSPENDED, PowerState.SHUTDOWN),
    SHELVED: (PowerState.SHUTDOWN, PowerState.CRASHED),
    SHELVED_OFFLOADED: (PowerState.NOSTATE,),
    RESCUED: (PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.CRASHED),
}

#: What an instance is that is in error if its host has no domain of it. What is shelved has its image elsewhere, what
#: is resized its disks at the other end, and what is soft-deleted is nobody's.
HAS_DOMAIN = (ACTIVE, STOPPED, PAUSED, SUSPENDED, RESCUED)

#: What an instance is whose guest is found so, when its row says otherwise. Hypervisors pause guests by themselves at
#: times, so that says nothing.
FOLLOWS = {PowerState.RUNNING: ACTIVE, PowerState.SHUTDOWN: STOPPED}
