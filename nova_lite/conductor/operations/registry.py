"""The classes of operations that need more than their row, by kind."""

from __future__ import annotations

from nova_lite.conductor.operations.delete import Delete
from nova_lite.conductor.operations.evacuate import Evacuate
from nova_lite.conductor.operations.lock import Lock, Unlock
from nova_lite.conductor.operations.own import Own
from nova_lite.conductor.operations.reset_state import ResetState

_OWN: dict[str, Own] = {
    "delete": Delete(),
    "evacuate": Evacuate(),
    "lock": Lock(),
    "unlock": Unlock(),
    "reset_state": ResetState(),
}
_NOTHING = Own()


def own(kind: str) -> Own:
    return _OWN.get(kind, _NOTHING)
