"""Operations on the network interfaces of a server."""

from __future__ import annotations

from nova_lite.operations import states
from nova_lite.operations.notifications import Notification
from nova_lite.operations.steps import DISCONNECT, PERFORM, TAKE_BACK
from nova_lite.operations.types import HostStep, NetworkStep, Operation


def _interface(kind: str, task: str, undo: str, attaches: bool) -> Operation:
    """Return an operation on one interface.

    A host that has begun and not reported the end has to undo it, because no other server may use the port before.
    """
    disconnect = (NetworkStep(DISCONNECT),)
    return Operation(
        kind,
        notification=Notification("interface_attach" if attaches else "interface_detach"),
        allowed=(states.ACTIVE, states.PAUSED, states.STOPPED),
        steps=(
            HostStep(
                PERFORM,
                kind,
                task=task,
                event=f"compute_{kind}",
                undo=(
                    HostStep(TAKE_BACK, undo, retry_forever=True),
                    *(disconnect if attaches else ()),
                ),
            ),
            *(() if attaches else disconnect),
        ),
    )


ATTACH_INTERFACE = _interface(
    "attach_interface", states.ATTACHING_INTERFACE, "rollback_attach_interface", attaches=True
)
DETACH_INTERFACE = _interface(
    "detach_interface", states.DETACHING_INTERFACE, "rollback_detach_interface", attaches=False
)
