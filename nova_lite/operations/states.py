"""States of an instance, with Nova's names."""

from __future__ import annotations

import enum

# vm_state: the state of the instance between tasks.
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

# task_state: the running task, or None. It is never set without an open action.
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
SNAPSHOTTING_VOLUME = "snapshotting_volume"
MERGING_VOLUME = "merging_volume"
ATTACHING_INTERFACE = "attaching_interface"
DETACHING_INTERFACE = "detaching_interface"
ATTACHING_SHARE = "attaching_share"
DETACHING_SHARE = "detaching_share"
CREATING_POINT = "creating_point"
DELETING_POINT = "deleting_point"
REVERTING_TO_POINT = "reverting_to_point"
CLONING = "cloning"

#: Task states in which a server gets or loses a volume, an interface or a share: the next such request waits.
CHANGING_DEVICES = (
    ATTACHING_VOLUME, DETACHING_VOLUME, ATTACHING_INTERFACE, DETACHING_INTERFACE, ATTACHING_SHARE, DETACHING_SHARE,
)  # fmt: skip


class PowerState(enum.IntEnum):
    """The guest's state as the hypervisor reports it, with the numbers of Nova's OS-EXT-STS:power_state."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


#: Power states of a guest that is on.
GUEST_ON = (PowerState.RUNNING, PowerState.PAUSED)

#: Power states of a guest that is off, and has no memory of its own.
GUEST_OFF = (PowerState.SHUTDOWN, PowerState.CRASHED)

#: Power states of the guest that match a vm state while no task runs. The guest of a suspended server is off, its
#: memory on disk. A rescued server stays rescued, whether its rescue system runs or not.
EXPECTED_POWER_STATES: dict[str, tuple[PowerState, ...]] = {
    ACTIVE: (PowerState.RUNNING,),
    STOPPED: (PowerState.SHUTDOWN, PowerState.CRASHED),
    PAUSED: (PowerState.PAUSED,),
    SUSPENDED: (PowerState.SUSPENDED, PowerState.SHUTDOWN),
    SHELVED: (PowerState.SHUTDOWN, PowerState.CRASHED),
    SHELVED_OFFLOADED: (PowerState.NOSTATE,),
    RESCUED: (PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.CRASHED),
}

#: States in which the host must have a domain of the instance; without one the server is in error. A shelved server has
#: its image elsewhere, a resized one its disks at the other host, and a soft-deleted one is not used any more.
HAS_DOMAIN = (ACTIVE, STOPPED, PAUSED, SUSPENDED, RESCUED)

#: The vm state that follows from a guest's power state when the row disagrees. Paused is not among them, because
#: hypervisors pause guests on their own at times.
VM_STATE_OF = {PowerState.RUNNING: ACTIVE, PowerState.SHUTDOWN: STOPPED}
