"""The caller of a request, and the project it acts for. Every message carries it."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any, NamedTuple

from oslo_context import context

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
#: Item of a message's context: the span that sent it, as W3C's Trace Context writes it.
TRACEPARENT = "traceparent"
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_host_name(text: str) -> bool:
    """Check whether a daemon's host can have this name."""
    return _HOST.fullmatch(text) is not None


def is_traceparent(value: object) -> bool:
    return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None


class DaemonIdentity(NamedTuple):
    """A daemon: the owner of a key."""

    role: str
    host: str

    def __str__(self) -> str:
        return f"{self.role} on {self.host}"


@dataclasses.dataclass(eq=False)
class ReceivedMessage:
    """A verified message that its handler records in the transaction of its changes (`nova_lite.db.core.replay_cache`).

    ``was_stored``: a transaction has stored it, and may have been rolled back. ``is_recorded``: it was committed.
    """

    id: str
    was_stored: bool = False
    is_recorded: bool = False


class RequestContext(context.RequestContext):
    """oslo.context's request context; ``request_id`` is ``req-<uuid>`` and makes a retried call idempotent.

    ``sender``: the daemon whose key has signed the message of this context, or None if that is not known. ``message``:
    that message, if the handler has to record it. Messages do not carry these two fields. ``revision``: the change that
    is requested is only for this revision of the resource (`nova_lite.db.core.if_match`); None: for any.
    ``traceparent``: the span that this context is of, if traces are on (`nova_lite.base.tracing`).
    """

    sender: DaemonIdentity | None = None
    message: ReceivedMessage | None = None
    revision: int | None = None
    traceparent: str | None = None

    @classmethod
    def from_rpc(cls, values: dict[str, Any], message: ReceivedMessage | None = None) -> RequestContext:
        """Return a context of plain values. ``message``: in which they came."""
        context = cls.from_dict(values)
        context.message = message
        revision = values.get("revision")
        context.revision = revision if isinstance(revision, int) else None
        traceparent = values.get(TRACEPARENT)
        context.traceparent = traceparent if is_traceparent(traceparent) else None
        return context

    def elevated(self) -> RequestContext:
        """Return a copy that sees all projects, for a service that a policy rule allows more than its role."""
        other = copy.copy(self)
        other.is_admin = True
        return other

    def to_rpc(self) -> dict[str, Any]:
        """Return plain values for a message, without the token, which no daemon behind the API needs."""
        values = self.to_dict()
        values.pop("auth_token", None)
        if self.revision is not None:
            values["revision"] = self.revision
        if self.traceparent is not None:
            values[TRACEPARENT] = self.traceparent
        return values


def get_admin_context(request_id: str | None = None) -> RequestContext:
    """Return a context for the control plane's own work: it sees all projects and has no user."""
    return RequestContext(is_admin=True, roles=["admin"], request_id=request_id, overwrite=False)
