"""Freezing the disk of a server for a clone. The clone is a new server, which is created afterwards."""

from __future__ import annotations

from nova_lite.operations import states
from nova_lite.operations.steps import PERFORM, TAKE_BACK
from nova_lite.operations.types import HostStep, Operation

#: The server's disk lies on a frozen layer then. The host puts a disk that was frozen only in part in order again.
CLONE = Operation(
    "clone",
    allowed=(states.ACTIVE, states.PAUSED, states.STOPPED),
    loses_tpm=True,
    without_points=True,
    steps=(
        HostStep(
            PERFORM,
            "clone_instance",
            task=states.CLONING,
            event="compute_clone_instance",
            deadline="snapshot_deadline",
            undo=(HostStep(TAKE_BACK, "rollback_clone_instance", retry_forever=True),),
        ),
    ),
)
