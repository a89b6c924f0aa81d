"""Operations on the shares of a server, whose guest is off."""

from __future__ import annotations

from nova_lite.operations import states
from nova_lite.operations.notifications import Notification, Payload
from nova_lite.operations.steps import DETACH, PERFORM
from nova_lite.operations.types import HostStep, Operation

#: States in which Nova attaches and detaches shares.
_ALLOWED = (states.STOPPED, states.ERROR)

#: A failed attach leaves a share in error, once its host has confirmed that the guest does not have it.
ATTACH_SHARE = Operation(
    "attach_share",
    notification=Notification("share_attach", Payload.SHARE),
    allowed=_ALLOWED,
    method="create share",
    steps=(
        HostStep(
            PERFORM,
            "attach_share",
            task=states.ATTACHING_SHARE,
            event="compute_attach_share",
            undo=(HostStep(DETACH, "rollback_attach_share", retry_forever=True),),
        ),
    ),
)

#: A failed detach leaves the share attached.
DETACH_SHARE = Operation(
    "detach_share",
    notification=Notification("share_detach", Payload.SHARE),
    allowed=_ALLOWED,
    method="delete share",
    steps=(HostStep(PERFORM, "detach_share", task=states.DETACHING_SHARE, event="compute_detach_share"),),
)
