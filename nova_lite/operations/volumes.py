"""Operations on the volumes of a server."""

from __future__ import annotations

from nova_lite.operations import states
from nova_lite.operations.notifications import Notification, Payload
from nova_lite.operations.steps import DETACH, PERFORM, REPORT, REPORT_ERROR, TAKE_BACK, WITH_GUEST
from nova_lite.operations.types import HostStep, Operation, SnapshotStep

#: Attaching has a task state, so that no operation that rebuilds the guest comes between. After a failure the volume is
#: free only when the host has confirmed that the guest does not have it.
ATTACH_VOLUME = Operation(
    "attach_volume",
    notification=Notification("volume_attach", Payload.VOLUME),
    allowed=WITH_GUEST,
    needs_host=False,
    variants=(("offloaded", True, Operation("attach_volume", allowed=(states.SHELVED_OFFLOADED,), needs_host=False)),),
    steps=(
        HostStep(
            PERFORM,
            "attach_volume",
            task=states.ATTACHING_VOLUME,
            event="compute_attach_volume",
            self_compensating=True,
            undo=(HostStep(DETACH, "rollback_attach_volume", task=states.DETACHING_VOLUME, retry_forever=True),),
        ),
    ),
)

#: A failed detach leaves the volume attached.
DETACH_VOLUME = Operation(
    "detach_volume",
    notification=Notification("volume_detach", Payload.VOLUME),
    allowed=WITH_GUEST,
    needs_host=False,
    variants=(("offloaded", True, Operation("detach_volume", allowed=(states.SHELVED_OFFLOADED,), needs_host=False)),),
    steps=(HostStep(PERFORM, "detach_volume", task=states.DETACHING_VOLUME, event="compute_detach_volume"),),
)

#: The server has both volumes until its host has reported which one the guest has. While the host copies, the guest has
#: the old one. From the second task state on both volumes have the same content.
SWAP_VOLUME = Operation(
    "swap_volume",
    notification=Notification("volume_swap", Payload.VOLUME_SWAP),
    allowed=(states.ACTIVE, states.PAUSED),
    steps=(
        HostStep(
            PERFORM,
            "swap_volume",
            task=states.COPYING_VOLUME,
            tasks=(states.SWAPPING_VOLUME,),
            event="compute_swap_volume",
            deadline="snapshot_deadline",
            undo=(
                HostStep(
                    TAKE_BACK,
                    "rollback_swap_volume",
                    task=states.COPYING_VOLUME,
                    retry_forever=True,
                    may_complete_late=True,
                ),
            ),
        ),
    ),
    rule="os_compute_api:os-volumes-attachments:swap",
    admin=True,
)


def _on_file(method: str, task: str, deadline: str | None, well: str, badly: str) -> Operation:
    """Return an operation on the file of a volume that Cinder requests, and whose result it waits for.

    ``well``, ``badly``: the status of the snapshot for Cinder afterwards. The undo asks the host whether it was done
    after all: Cinder must record the file that the guest uses.
    """
    rollback = HostStep(TAKE_BACK, f"rollback_{method}", task=task, retry_forever=True, may_complete_late=True)
    step = HostStep(
        PERFORM,
        method,
        task=task,
        event=f"compute_{method}",
        deadline=deadline,
        self_compensating=True,
        undo=(rollback, SnapshotStep(REPORT_ERROR, status=badly)),
    )
    return Operation(
        method,
        allowed=(states.ACTIVE, states.PAUSED, states.STOPPED),
        steps=(step, SnapshotStep(REPORT, status=well)),
    )


#: The guest gets a new file of Cinder's on top of the present one, which is the snapshot from then on.
VOLUME_SNAPSHOT_CREATE = _on_file(
    "volume_snapshot_create",
    states.SNAPSHOTTING_VOLUME,
    None,
    "creating",
    "error",
)

#: Two files of the volume become one, while the guest uses them.
VOLUME_SNAPSHOT_DELETE = _on_file(
    "volume_snapshot_delete",
    states.MERGING_VOLUME,
    "snapshot_deadline",
    "deleting",
    "error_deleting",
)
