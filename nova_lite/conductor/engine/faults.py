"""Faults: the cause that a server in ERROR shows to its owner."""

from __future__ import annotations

import msgspec

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.objects import InstanceFault
from nova_lite.operations import states

#: Most characters of a fault's message that the column and clients hold.
FAULT_LENGTH = 255


def set_error(uow: UnitOfWork, instance: Instance, message: str, details: str = "") -> None:
    """Set vm state ERROR, with its fault."""
    instance.vm_state = states.ERROR
    instance.task_state = None
    instance.updated_at = uow.now
    short = shortened(message)
    if short != message:
        details = f"{message}\n{details}" if details else message
    instance.fault = msgspec.to_builtins(InstanceFault(code=500, message=short, details=details, created_at=uow.now))


def shortened(message: str) -> str:
    """Return at most `FAULT_LENGTH` characters of ``message``, cut after a whole clause or, failing that, a word."""
    if len(message) <= FAULT_LENGTH:
        return message
    room = message[: FAULT_LENGTH - 3]
    for end in (", ", " "):
        kept, found, _ = room.rpartition(end)
        if found and len(kept) > FAULT_LENGTH // 2:
            return kept + (", …" if end == ", " else " …")
    return room + "…"
