"""Access rules: which roles of daemons may call a method, and in whose name.

The sender is the daemon whose key signed the message (`nova_lite.rpc.signing`). Nothing that the message says about its
sender counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_lite.base.context import DaemonIdentity


@dataclasses.dataclass(frozen=True)
class AccessRule:
    """Roles that may call a method.

    ``own``: an argument, or an attribute of one (``report.host``), that must be the sender's own host.
    """

    roles: frozenset[str]
    own: str | None = None

    def refusal(self, sender: DaemonIdentity, arguments: Mapping[str, Any]) -> str | None:
        """Return why ``sender`` may not make this call, or None. ``arguments`` are plain values."""
        if sender.role not in self.roles:
            return f"role {sender.role} may not call it"
        if self.own is not None:
            value: Any = arguments
            for name in self.own.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if value != sender.host:
                return f"it may speak of itself alone, and speaks of {value!r}"
        return None
