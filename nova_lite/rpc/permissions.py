"""Who may ask what: roles of daemons, and rows that say which of them may call a method.

A row stands beside the contract that it is about (``allowed`` of `nova_lite.rpc.service`). What a message says of its
sender is not asked: that is whoever's key signed it (`nova_lite.rpc.signing`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_lite.rpc.keys import ROLES, Peer


@dataclasses.dataclass(frozen=True)
class Allowed:
    """``own``: the argument, or the attribute of one (``report.host``), in which a sender may name itself alone."""

    roles: frozenset[str]
    own: str | None = None

    def refusal(self, sender: Peer, arguments: Mapping[str, Any]) -> str | None:
        """Why ``sender`` may not ask this, or None. ``arguments`` are plain."""
        if sender.role not in self.roles:
            return f"role {sender.role} may not call it"
        if self.own is not None:
            value: Any = arguments
            for name in self.own.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if value != sender.host:
                return f"it may speak of itself alone, and speaks of {value!r}"
        return None


def allow(*roles: str, own: str | None = None, methods: str) -> dict[str, Allowed]:
    """A row for each of ``methods``, which are separated by blanks."""
    assert set(roles) <= set(ROLES)
    return dict.fromkeys(methods.split(), Allowed(frozenset(roles), own))
