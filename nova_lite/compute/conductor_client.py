"""The conductor client of a compute host: batches the reports of builds and actions that end at the same time.

`HostConductorClient` defines the methods that do more than send one message. `connect` adds all others.
"""

from __future__ import annotations

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.objects import ActionReport, BuildResult
from nova_lite.rpcapi.conductor import ConductorRPC

LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE)


class HostConductorClient(ConductorRPC):
    """The methods of `ConductorRPC` that a compute host batches. To be made by `connect`.

    Reports that arrive while another one is sent share one message and one transaction of the conductor.
    """

    def __init__(self, client: ConductorRPC, host: str) -> None:
        self._client = client
        self._host = host
        self._builds: Batcher[tuple[RequestContext, BuildResult], None] = Batcher(self._finish_builds, LIMITS)
        self._actions: Batcher[tuple[RequestContext, ActionReport], None] = Batcher(self._finish_actions, LIMITS)

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        self._builds.submit((context, result))

    def _finish_builds(self, reports: list[tuple[RequestContext, BuildResult]]) -> list[Exception | None]:
        context, result = reports[0]
        if len(reports) == 1:
            self._client.finish_build(context, result)
            return [None]
        results = [result for _, result in reports]
        accepted = self._client.finish_builds(context, self._host, results)
        return [None if ok else _stale(result) for ok, result in zip(accepted, results, strict=True)]

    def finish_action(self, context: RequestContext, report: ActionReport) -> None:
        self._actions.submit((context, report))

    def _finish_actions(self, reports: list[tuple[RequestContext, ActionReport]]) -> list[None]:
        context, report = reports[0]
        if len(reports) == 1:
            self._client.finish_action(context, report)
        else:
            self._client.finish_actions(context, self._host, [report for _, report in reports])
        return [None] * len(reports)


def connect(client: ConductorRPC, host: str) -> HostConductorClient:
    """Return the client of the compute host ``host``. ``client`` sends the messages."""
    return rpc.wrap(HostConductorClient, client, host)


def _stale(result: BuildResult) -> Exception:
    return exceptions.StaleReport(instance_id=result.instance_uuid, generation=result.generation, host=result.host)
