"""Batches concurrent action reports of one compute host.

Reports that arrive while another is sent form one message and one transaction of the conductor.
"""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import ActionReport, BuildResult

Build = tuple[RequestContext, BuildResult]
Action = tuple[RequestContext, ActionReport]


class ReportBatcher:
    """In place of a conductor's client, on ``host``."""

    def __init__(self, conductor: ConductorRPC, host: str) -> None:
        self._conductor = conductor
        self._host = host
        self._builds: Batcher[Build, Exception | None] = Batcher(self._finish_builds, writes=True)
        self._actions: Batcher[Action, Exception | None] = Batcher(self._finish_actions, writes=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conductor, name)

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        if (error := self._builds.ask((context, result))) is not None:
            raise error

    def _finish_builds(self, asked: list[Build]) -> list[Exception | None]:
        if len(asked) > 1:
            results = [result for _, result in asked]
            accepted = self._conductor.finish_builds(asked[0][0], self._host, results)
            return [None if done else _stale(result) for done, result in zip(accepted, results, strict=True)]
        return [_raised(lambda one=one: self._conductor.finish_build(*one)) for one in asked]

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        position: int = 0,
        **more: Any,
    ) -> None:
        report = ActionReport(
            action_id=action_id, power_state=power_state, error=error, details=details, sequence=position, **more
        )
        if (failure := self._actions.ask((context, report))) is not None:
            raise failure

    def _finish_actions(self, asked: list[Action]) -> list[Exception | None]:
        if len(asked) > 1:
            self._conductor.finish_actions(asked[0][0], self._host, [report for _, report in asked])
            return [None] * len(asked)
        return [_raised(lambda one=one: self._finish_action(*one)) for one in asked]

    def _finish_action(self, context: RequestContext, report: ActionReport) -> None:
        arguments = msgspec.structs.asdict(report)
        arguments["position"] = arguments.pop("sequence")
        self._conductor.finish_action(context, self._host, **arguments)


def _stale(result: BuildResult) -> Exception:
    return exceptions.StaleReport(instance_id=result.instance_uuid, generation=result.generation, host=result.host)


def _raised(call: Any) -> Exception | None:
    """What a call of one raises, for whoever made that one."""
    try:
        call()
    except Exception as error:
        return error
    return None


def batched(conductor: ConductorRPC, host: str) -> ConductorRPC:
    return typing.cast(ConductorRPC, ReportBatcher(conductor, host))
