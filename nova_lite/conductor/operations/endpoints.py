"""RPC methods of operations without steps: lock, unlock, reset state."""

from __future__ import annotations

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.engine import ActionEngine


class InstanceEndpoints:
    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine

    @rpc.records_message
    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None:
        self.engine.accept_action(context, instance_uuid, "lock", {"reason": reason})

    @rpc.records_message
    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        self.engine.accept_action(context, instance_uuid, "unlock", {"may_override": may_override})

    @rpc.records_message
    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        self.engine.accept_action(context, instance_uuid, "reset_state", {"vm_state": vm_state})
