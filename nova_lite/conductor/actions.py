"""RPC methods about actions: accepting them, and what hosts report about their commands."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations, rpc
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.accept import DeleteRequest
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.network.attach import InterfaceAttacher
from nova_lite.db.core import replay_cache
from nova_lite.objects import ActionCommand, ActionReport, BatchedDelete


class ActionEndpoints:
    """Methods of the API (`accept_action`) and of compute hosts (the others)."""

    def __init__(self, engine: ActionEngine, attacher: InterfaceAttacher) -> None:
        self._db = engine.db
        self._accept = engine.acceptor.accept
        self._accept_deletes = engine.acceptor.accept_deletes
        self._attacher = attacher
        self._attaches_at_service = engine.network.has_remote_ports
        self._reports = engine.reports

    @rpc.records_message
    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        if self._attaches_at_service and action == operations.ATTACH_INTERFACE.kind:
            self._db.write(replay_cache.record, context)  # before a port is made
            return self._attacher.accept(context, instance_uuid, payload)
        return self._accept(context, instance_uuid, action, payload)

    @rpc.records_message
    def delete_instances_batch(
        self, context: RequestContext, deletes: list[BatchedDelete]
    ) -> list[ActionCommand | None]:
        requests = [
            DeleteRequest(RequestContext.from_rpc(item.context, context.message), item.instance_uuid)
            for item in deletes
        ]
        return [None if isinstance(result, Exception) else result for result in self._accept_deletes(requests)]

    @rpc.records_message
    def finish_action(self, context: RequestContext, report: ActionReport) -> None:
        self._reports.finish(context, report)

    @rpc.records_message
    def finish_actions(self, context: RequestContext, host: str, reports: list[ActionReport]) -> None:
        self._reports.finish_all(context, [msgspec.structs.replace(report, host=host) for report in reports])

    def is_command_open(
        self, context: RequestContext, host: str, action_id: int, sequence: int | None, request_id: str
    ) -> bool:
        return self._reports.is_current(host, action_id, sequence, request_id)

    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: int) -> bool:
        return self._reports.is_current(host, action_id, sequence)

    @rpc.records_message
    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        return self._reports.record_task(context, host, action_id, task_state)
