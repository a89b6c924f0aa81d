"""Records of the identity service, and the audit log."""

from __future__ import annotations

from typing import Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    AuditEvent,
    AuditQuery,
    SealedIdentityRecords,
)


class IdentityRPC(Protocol):
    """Records of the identity service, and the audit log."""

    @rpc.report(rpc.API, replay_safe=True)
    def identity_read(self, context: RequestContext, known: int, public_key: str) -> SealedIdentityRecords:
        """Return the records of the identity service that changed after version ``known``, sealed to ``public_key``.

        No request can be authenticated without them, so the method has the priority of reports.
        """

    @rpc.change(rpc.API)
    def identity_change(self, context: RequestContext, known: int | None, sealed: str) -> int:
        """Store records of the identity service, and return the new version. ``sealed``: a list of `IdentityRecord`.

        Raises `IdentityChanged` if ``known`` is not the present version. None: the change depends on no others.
        """

    @rpc.report(rpc.API, replay_safe=True)
    def audit_record(self, context: RequestContext, events: list[AuditEvent]) -> None:
        """Store events of the audit log, each once. They are batched, and no request waits for this call."""

    @rpc.list_(rpc.API)
    def audit_list(self, context: RequestContext, query: AuditQuery) -> list[AuditEvent]:
        """Return a page of the audit log of all projects, the newest events first. Raises `MarkerNotFound`."""
