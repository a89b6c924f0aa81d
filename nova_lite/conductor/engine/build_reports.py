"""Reports of hosts about builds: their start and their result.

Every report is checked against the host and generation of the instance. A stale report changes nothing.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable

import msgspec

from nova_lite import operations, rpc
from nova_lite.base import clock, exceptions, metrics
from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.context import ActionContext, begun, requested_networks
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.scheduling import Scheduling
from nova_lite.db.core import actions, replay_cache
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import block_devices
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import VIF, BuildNetworks, BuildOutcome, BuildResult, GuestDevices
from nova_lite.operations import states
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE, regroup_delay=0.1)

#: Builds that are scheduled together, if more than one message is in the batch.
MAX_BATCH = 64


class BuildReports:
    """RPC methods of builds.

    ``conductor``: a client of this service itself, because another conductor may be free to reschedule a build.
    ``require_site``: raises `ServerAtOtherSite` unless a replicated server may be built here now.
    """

    def __init__(
        self,
        engine: ActionEngine,
        scheduling: Scheduling,
        conductor: ConductorRPC,
        require_site: Callable[[str], None],
        timing: ConductorTiming = TIMING.conductor,
    ) -> None:
        self.engine = engine
        self._require_site = require_site
        self.scheduling = scheduling
        self.db = engine.db
        self.conf = engine.conf
        self.network = engine.network
        self.conductor = conductor
        self._starts: Batcher[tuple[RequestContext, list[str]], None] = Batcher(self._schedule, timing.build_batches)
        self._reports: Batcher[BuildResult, bool] = Batcher(self._settle, LIMITS)

    # --- start

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Schedule these builds now, unless another conductor has leased them.

        Builds of requests that arrive meanwhile, from any API, are scheduled together.
        """
        self._starts.submit((context, instance_uuids))

    def _schedule(self, requests: list[tuple[RequestContext, list[str]]]) -> list[None]:
        """Schedule the builds of several messages, about `MAX_BATCH` at a time. Builds of one message stay together."""
        batch: list[tuple[RequestContext, list[str]]] = []
        for request in requests:
            if sum(len(uuids) for _, uuids in (*batch, request)) > MAX_BATCH and batch:
                self.scheduling.run(batch)
                batch = []
            batch.append(request)
        self.scheduling.run(batch)
        return [None] * len(requests)

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """Record that a host has started a build, and return the instance's interfaces.

        A repeated call returns the same.

        Raises `InstanceGone` or `StaleReport` if that build is over. Ports that another service has made for it
        meanwhile are then deleted. Raises `ServerAtOtherSite` if another site may run the server.
        """
        build = (instance_uuid, host, generation)
        if not self.network.remote:
            return self._started(instance_uuid, *self.db.write(self._start_build, *build))
        started_at = clock.monotonic()
        call = self.db.write(self._plan_networks, *build)
        call.started_at = started_at
        result = self.network.call(call)
        try:
            return self._started(instance_uuid, *self.db.write(self._start_build, *build, result))
        except exceptions.StaleReport:
            if not self.network.has_remote_ports:  # else the next attempt uses them, or its undo deletes them
                self._deallocate(call)
            raise
        except exceptions.NovaLiteException:
            self._deallocate(call)
            raise

    def _started(self, instance_uuid: str, vifs: list[VIF], is_replicated: bool) -> BuildNetworks:
        if is_replicated:
            self._require_site(instance_uuid)
        return BuildNetworks(vifs=vifs)

    def _deallocate(self, call: NetworkCall) -> None:
        """Delete the ports of a build that is over.

        If this fails, the delete of the instance does it. It waits for `Instance.network_call_until` first.
        """
        try:
            self.network.call(msgspec.structs.replace(call, method=NetworkMethod.DEALLOCATE, started_at=None))
        except exceptions.NovaLiteException as error:
            LOG.warning("Interfaces of %s are left at the network service: %s", call.instance_uuid, error.message)
            return
        self.db.write(self._taken_back, call.instance_uuid)

    def _taken_back(self, uow: UnitOfWork, instance_uuid: str) -> None:
        instance = instances.lock(uow, instance_uuid)
        if instance is not None:
            instance.network_call_until = None

    def _plan_networks(self, uow: UnitOfWork, instance_uuid: str, host: str, generation: int) -> NetworkCall:
        ctx = _building(uow, instance_uuid, host, generation)
        seconds = self.conf.network.call_timeout
        ctx.instance.network_call_until = uow.now + datetime.timedelta(seconds=seconds)
        actions.extend(uow, self.conf, ctx.action, seconds)
        return network_calls.plan(uow, self.network, ctx.instance, ctx.context, NetworkMethod.ALLOCATE)

    def _start_build(
        self, uow: UnitOfWork, instance_uuid: str, host: str, generation: int, result: object = None
    ) -> tuple[list[VIF], bool]:
        """Return the interfaces, and whether the server is replicated."""
        ctx = _building(uow, instance_uuid, host, generation)
        vifs = self.network.allocate(builtin_networks.Store(uow), instance_uuid, requested_networks(ctx), result)
        begun(ctx)
        actions.extend(uow, self.conf, ctx.action)
        return vifs, ctx.instance.site_role is not None

    @rpc.records_message
    def report_guest_devices(
        self, context: RequestContext, instance_uuid: str, host: str, generation: int, devices: GuestDevices
    ) -> None:
        """Record the places of devices before the guest starts. Raises `InstanceGone` or `StaleReport`."""

        def record(uow: UnitOfWork) -> None:
            replay_cache.record(uow, context)
            ctx = _building(uow, instance_uuid, host, generation)
            ctx.instance.guest_devices = msgspec.to_builtins(devices)

        self.db.write(record)

    # --- result

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Record the result of a build. It is scheduled again if another host may succeed.

        Results that arrive meanwhile, from any host, are recorded in one transaction.
        """
        metrics.BUILDS.labels(result.outcome.value).inc()
        if self._reports.submit(result):
            self._build_again(context, [result])

    def finish_builds(self, context: RequestContext, host: str, results: list[BuildResult]) -> list[bool]:
        """Record these results in one transaction. Returns False for each build that is over."""
        if any(result.host != host for result in results):
            raise exceptions.Forbidden(f"Host {host} reports builds of another host.")
        for result in results:
            metrics.BUILDS.labels(result.outcome.value).inc()
        settled = self._settle(results)
        rescheduled = [result for result, reply in zip(results, settled, strict=True) if reply is True]
        if rescheduled:
            self._build_again(context, rescheduled)
        return [not isinstance(reply, Exception) for reply in settled]

    def _build_again(self, context: RequestContext, results: list[BuildResult]) -> None:
        for result in results:
            LOG.info("Rescheduling %s: %s", result.instance_uuid, result.message)
        instance_uuids = [result.instance_uuid for result in results]
        try:
            self.conductor.build_instances(context, instance_uuids)
        except exceptions.MessagingUnavailable:
            LOG.info("The reconciler will reschedule %s", ", ".join(instance_uuids))

    def _settle(self, results: list[BuildResult]) -> list[bool | Exception]:
        """Record results. Returns for each whether to schedule the build again, or the error if the build is over."""

        def finish_build(uow: UnitOfWork, batch: list[BuildResult]) -> list[bool | Exception]:
            locked = _lock_all(uow, batch)
            return [self._finish_one(uow, result, locked.get(result.action_id)) for result in batch]

        # Every conductor locks instances in the same order, so that two transactions do not wait for each other.
        order = sorted(range(len(results)), key=lambda number: results[number].instance_uuid)
        settled = self.db.write_together(finish_build, [results[number] for number in order])
        replies = dict(zip(order, settled, strict=True))
        return [replies[number] for number in range(len(results))]

    def _finish_one(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> bool | Exception:
        try:
            return self._finish_build(uow, result, locked)
        except (exceptions.StaleReport, exceptions.InstanceGone) as error:
            return error

    def _finish_build(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> bool:
        """Record a result, and return whether to schedule the build again.

        ``locked``: its rows, if `_lock_all` found them.
        """
        if result.outcome == BuildOutcome.BUILT:
            self._built(uow, result, locked)
            return False
        try:
            ctx = _building(uow, result.instance_uuid, result.host, result.generation, locked)
        except (exceptions.InstanceGone, exceptions.StaleReport):
            return False
        ctx.instance.power_state = states.PowerState.NOSTATE
        if result.outcome == BuildOutcome.RESCHEDULED and ctx.definition.has_choice:
            if result.blames_host and ctx.instance.node is not None:
                hosts.build_failed(uow, result.host, ctx.instance.node)
            return self._rescheduled(ctx, result)
        self.engine.transitions.fail(ctx, result.message, result.details, reported=True)
        return False

    def _built(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> None:
        """Record a success. A repeated report changes nothing.

        A report after the build's deadline is accepted as long as its host was not fenced, so that the owner gets the
        server. Otherwise raises `InstanceGone` or `StaleReport`.
        """
        instance, action, failed_builds = _open(uow, result.instance_uuid, locked)
        if instance is not None and _is_current(instance, result):
            if action is not None and action.step == operations.COMPENSATE:
                built(self.engine, ActionContext(uow, instance, action), result)
                return
            if instance.launched_at and (action is None or action.step != operations.BUILD):
                return
        ctx = _still_building(uow, instance, action, result.instance_uuid, result.host, result.generation)
        built(self.engine, ctx, result, failed_builds)

    def _rescheduled(self, ctx: ActionContext, result: BuildResult) -> bool:
        """Try another host, because this one has fenced the generation and holds nothing. Networks are kept."""
        uow, instance, action = ctx.uow, ctx.instance, ctx.action
        tried = [*action.payload.get("tried", []), result.host]
        errors = [*action.payload.get("errors", []), result.message]
        if len(tried) >= self.conf.conductor.max_attempts:
            message = f"Exceeded maximum number of retries. Last error: {result.message}"
            self.engine.transitions.fail(ctx, message, result.details, reported=True)
            return False
        claims.release(uow, instance.uuid)
        claims.leave(instance)
        instance.updated_at = uow.now
        action.payload = {**action.payload, "tried": tried, "errors": errors}
        self.engine.transitions.retry_from(ctx, operations.SCHEDULE, result.message, result.details)
        return True


def built(engine: ActionEngine, ctx: ActionContext, result: BuildResult, failed_builds: int | None = None) -> None:
    """Record that the guest runs, and forget the request, which may have secrets.

    ``failed_builds``: the count of its node, if it was read.
    """
    uow, instance = ctx.uow, ctx.instance
    if failed_builds != 0 and instance.host is not None and instance.node is not None:
        hosts.build_succeeded(uow, instance.host, instance.node)
    instance.power_state = result.power_state
    instance.guest_devices = None if result.devices is None else msgspec.to_builtins(result.devices)
    instance.launched_at = uow.now
    instance.progress = 100
    instance.request, instance.disks_at = {}, None
    instance.root_device_name = result.root_device_name or instance.root_device_name
    block_devices.all_attached(uow, instance)
    ctx.action.step = operations.BUILD
    engine.transitions.done(ctx)


def _building(
    uow: UnitOfWork, instance_uuid: str, host: str, generation: int, locked: _Rows | None = None
) -> ActionContext:
    """Lock the instance and its open build. Raises `InstanceGone` or `StaleReport` if that build is over."""
    instance, action, _ = _open(uow, instance_uuid, locked)
    return _still_building(uow, instance, action, instance_uuid, host, generation)


#: An instance, the action of a host's report, and the count of failed builds on its node.
_Rows = tuple[Instance, InstanceAction, int | None]


def _lock_all(uow: UnitOfWork, results: list[BuildResult]) -> dict[int, _Rows]:
    """Lock the actions of these results and their instances by one statement, and return them by action id."""
    reported = {result.action_id: result.instance_uuid for result in results if result.action_id}
    found = actions.lock_all(uow, reported, hosts.FAILED_BUILDS) if reported else {}
    return {action_id: (row[0], row[1], row[2]) for action_id, row in found.items()}


def _open(
    uow: UnitOfWork, instance_uuid: str, locked: _Rows | None
) -> tuple[Instance | None, InstanceAction | None, int | None]:
    """Return the instance, its open action and failed builds: the ``locked`` ones, or else lock them now."""
    if locked is None or locked[0].uuid != instance_uuid:
        return instances.lock(uow, instance_uuid), actions.find_open(uow, instance_uuid), None
    instance, action, failed_builds = locked
    return instance, None if action.finish_time is not None else action, failed_builds


def _still_building(
    uow: UnitOfWork,
    instance: Instance | None,
    action: InstanceAction | None,
    instance_uuid: str,
    host: str,
    generation: int,
) -> ActionContext:
    if instance is None or instance.deleted or instance.task_state == states.DELETING:
        raise exceptions.InstanceGone(instance_id=instance_uuid)
    if action is None or action.step != operations.BUILD or (instance.host, instance.generation) != (host, generation):
        raise exceptions.StaleReport(instance_id=instance_uuid, generation=generation, host=host)
    return ActionContext(uow, instance, action)


def _is_current(instance: Instance, result: BuildResult) -> bool:
    """Check whether the instance is not deleted, and at the host and generation of the report."""
    wanted = not instance.deleted and instance.task_state != states.DELETING
    return wanted and (instance.host, instance.generation) == (result.host, result.generation)
