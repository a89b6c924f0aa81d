"""Who asks, and on behalf of which project; crosses the bus with every message."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from oslo_context import context

if TYPE_CHECKING:
    from nova_lite.rpc.keys import Peer


class RequestContext(context.RequestContext):
    """oslo.context's request context; ``request_id`` is ``req-<uuid>`` and makes a retried call idempotent.

    ``sender``: the daemon whose key has signed the message that this came with, None where that is not known. It never
    travels.
    """

    sender: Peer | None = None

    @classmethod
    def from_rpc(cls, values: dict[str, Any]) -> RequestContext:
        return cls.from_dict(values)

    def elevated(self) -> RequestContext:
        """The same asker with sight of all projects: for what a rule lets services do that are no admins."""
        other = copy.copy(self)
        other.is_admin = True
        return other

    def to_rpc(self) -> dict[str, Any]:
        """Plain values for the bus, without the token: no daemon behind the API needs it."""
        values = self.to_dict()
        values.pop("auth_token", None)
        return values


def get_admin_context(request_id: str | None = None) -> RequestContext:
    """A context for the control plane's own work: all projects, no user."""
    return RequestContext(is_admin=True, roles=["admin"], request_id=request_id, overwrite=False)
