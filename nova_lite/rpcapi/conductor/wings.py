"""Methods of wings: parts of the cloud that ``[DEFAULT] wings`` loads, and a cloud without them does not.

A wing is named in the message, and has methods of its own. Its conductor's half converts their arguments.
"""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext


class WingsRPC(Protocol):
    """Methods of wings. ``name``: of the method. ``arguments``: plain values, by the names of its arguments."""

    @rpc.read(rpc.API)
    def wing_read(self, context: RequestContext, wing: str, name: str, arguments: dict[str, Any]) -> Any:
        """Return what a method of a wing reads for a user. Like the next ones, raises `NotServed` without the wing."""

    @rpc.change(rpc.API)
    def wing_change(self, context: RequestContext, wing: str, name: str, arguments: dict[str, Any]) -> Any:
        """Carry out a user's change."""

    @rpc.report(rpc.COMPUTE, own="host")
    def wing_report(
        self, context: RequestContext, host: str, wing: str, report: Any, timeout: rpc.Timeout = None
    ) -> Any:
        """Record what the wing of a host reports, and return what it has to do. ``timeout``: seconds."""
