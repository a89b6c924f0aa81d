"""Reports of hosts about builds: that one begins, and how it ended.

Every report is checked against (host, generation) of the instance; one that is not current any more changes nothing.
"""

from __future__ import annotations

import datetime
import logging
import time

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions, metrics
from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.context import ActionContext, begun, requested_networks
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.scheduling import Scheduling
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.db import actions, block_devices, claims, hosts, instances, networks
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import VIF, BuildNetworks, BuildOutcome, BuildResult
from nova_lite.operations import states

LOG = logging.getLogger(__name__)

LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE, regroup_delay=0.1)


class BuildReports:
    """``conductor`` is the client side of this very service: rescheduling is a message to whoever is free."""

    def __init__(self, engine: ActionEngine, scheduling: Scheduling, conductor: ConductorRPC) -> None:
        self.engine = engine
        self.scheduling = scheduling
        self.db = engine.db
        self.conf = engine.conf
        self.network = engine.network
        self.conductor = conductor
        self._reports: Batcher[BuildResult, bool] = Batcher(self._settle, LIMITS)

    # --- it begins

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Nudge: drive these builds now, as far as nobody else does."""
        self.scheduling.run(context, instance_uuids)

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """A host begins, which was not told the instance's addresses: it gets them. Repeated, it answers the same.

        Raises `InstanceGone` or `StaleReport` when that build is over; what another service has made for it meanwhile
        is then taken back.
        """
        asked = (instance_uuid, host, generation)
        if not self.network.remote:
            return BuildNetworks(vifs=self.db.write(self._start_build, *asked))
        begun = time.monotonic()
        call = self.db.write(self._plan_networks, *asked)
        call.started_at = begun
        answer = self.network.call(call)
        try:
            return BuildNetworks(vifs=self.db.write(self._start_build, *asked, answer))
        except exceptions.StaleReport:
            if not self.network.has_remote_ports:  # else they are the next attempt's, or given back with its failure
                self._take_back(call)
            raise
        except exceptions.NovaLiteException:
            self._take_back(call)
            raise

    def _take_back(self, call: NetworkCall) -> None:
        """If this fails, or this daemon dies first, whoever deletes the instance does it: no call counts as over
        before its time (`Instance.network_call_until`)."""
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
        self, uow: UnitOfWork, instance_uuid: str, host: str, generation: int, answer: object = None
    ) -> list[VIF]:
        ctx = _building(uow, instance_uuid, host, generation)
        vifs = self.network.allocate(networks.Store(uow), instance_uuid, requested_networks(ctx), answer)
        begun(ctx)
        actions.extend(uow, self.conf, ctx.action)
        return vifs

    # --- it has ended

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Settle a build; what another host may do better is scheduled again. Those that come meanwhile, of whatever
        hosts, are settled by one transaction."""
        metrics.BUILDS.labels(result.outcome.value).inc()
        if self._reports.submit(result):
            self._build_again(context, [result])

    def finish_builds(self, context: RequestContext, host: str, results: list[BuildResult]) -> list[bool]:
        if any(result.host != host for result in results):
            raise exceptions.Forbidden(f"Host {host} speaks of builds of another one.")
        for result in results:
            metrics.BUILDS.labels(result.outcome.value).inc()
        settled = self._settle(results)
        again = [result for result, each in zip(results, settled, strict=True) if each is True]
        if again:
            self._build_again(context, again)
        return [not isinstance(each, Exception) for each in settled]

    def _build_again(self, context: RequestContext, results: list[BuildResult]) -> None:
        for result in results:
            LOG.info("Rescheduling %s: %s", result.instance_uuid, result.message)
        instance_uuids = [result.instance_uuid for result in results]
        try:
            self.conductor.build_instances(context, instance_uuids)
        except exceptions.MessagingUnavailable:
            LOG.info("The reconciler will reschedule %s", ", ".join(instance_uuids))

    def _settle(self, results: list[BuildResult]) -> list[bool | Exception]:
        """Of each whether it is to be scheduled again; of one whose build is over, which changes nothing, why."""

        def finish_build(uow: UnitOfWork, some: list[BuildResult]) -> list[bool | Exception]:
            locked = _lock_all(uow, some)
            return [self._finish_one(uow, result, locked.get(result.action_id)) for result in some]

        # In one order everywhere, as the transaction locks several.
        order = sorted(range(len(results)), key=lambda number: results[number].instance_uuid)
        settled = self.db.write_together(finish_build, [results[number] for number in order])
        answers = dict(zip(order, settled, strict=True))
        return [answers[number] for number in range(len(results))]

    def _finish_one(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> bool | Exception:
        try:
            return self._finish_build(uow, result, locked)
        except (exceptions.StaleReport, exceptions.InstanceGone) as error:
            return error

    def _finish_build(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> bool:
        """True when the instance is to be scheduled again. ``locked``: what `_lock_all` has found of it."""
        if result.outcome == BuildOutcome.BUILT:
            self._built(uow, result, locked)
            return False
        try:
            ctx = _building(uow, result.instance_uuid, result.host, result.generation, locked)
        except (exceptions.InstanceGone, exceptions.StaleReport):
            return False
        ctx.instance.power_state = states.PowerState.NOSTATE
        if result.outcome == BuildOutcome.RESCHEDULED and ctx.definition.has_choice:
            if ctx.instance.node is not None:
                hosts.build_failed(uow, result.host, ctx.instance.node)
            return self._rescheduled(ctx, result)
        self.engine.transitions.fail(ctx, result.message, result.details, reported=True)
        return False

    def _built(self, uow: UnitOfWork, result: BuildResult, locked: _Rows | None) -> None:
        """A report that comes twice changes nothing. One that comes after the build's deadline is believed as long as
        its host was not fenced: the owner gets what was asked for. Else raises `InstanceGone` or `StaleReport`."""
        instance, action, failed_builds = _open(uow, result.instance_uuid, locked)
        if instance is not None and _is_current(instance, result):
            if action is not None and action.step == operations.COMPENSATE:
                built(self.engine, ActionContext(uow, instance, action), result.power_state, result.root_device_name)
                return
            if instance.launched_at and (action is None or action.step != operations.BUILD):
                return
        ctx = _still_building(uow, instance, action, result.instance_uuid, result.host, result.generation)
        built(self.engine, ctx, result.power_state, result.root_device_name, failed_builds)

    def _rescheduled(self, ctx: ActionContext, result: BuildResult) -> bool:
        """The host has fenced this generation and holds nothing: another one may be tried. Networks are kept."""
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


def built(
    engine: ActionEngine,
    ctx: ActionContext,
    power_state: int,
    root_device_name: str | None,
    failed_builds: int | None = None,
) -> None:
    """The guest runs. What only the build needed is forgotten, some of it is secret. ``failed_builds``: of its node, if
    that was read."""
    uow, instance = ctx.uow, ctx.instance
    if failed_builds != 0 and instance.host is not None and instance.node is not None:
        hosts.build_succeeded(uow, instance.host, instance.node)
    instance.power_state = power_state
    instance.launched_at = uow.now
    instance.progress = 100
    instance.request = {}
    instance.root_device_name = root_device_name or instance.root_device_name
    block_devices.all_attached(uow, instance)
    ctx.action.step = operations.BUILD
    engine.transitions.done(ctx)


def _building(
    uow: UnitOfWork, instance_uuid: str, host: str, generation: int, locked: _Rows | None = None
) -> ActionContext:
    """The instance and its open build, locked; raises `InstanceGone` or `StaleReport` when that build is over."""
    instance, action, _ = _open(uow, instance_uuid, locked)
    return _still_building(uow, instance, action, instance_uuid, host, generation)


#: An instance, the action that a host has reported about, and how many builds have failed on its node.
_Rows = tuple[Instance, InstanceAction, int | None]


def _lock_all(uow: UnitOfWork, results: list[BuildResult]) -> dict[int, _Rows]:
    """Of each action that a host tells of, where it and its instance are there; locked, by one statement."""
    asked = {result.action_id: result.instance_uuid for result in results if result.action_id}
    found = actions.lock_all(uow, asked, hosts.FAILED_BUILDS) if asked else {}
    return {action_id: (row[0], row[1], row[2]) for action_id, row in found.items()}


def _open(
    uow: UnitOfWork, instance_uuid: str, locked: _Rows | None
) -> tuple[Instance | None, InstanceAction | None, int | None]:
    """The instance, its open action and failed builds: as they are ``locked``, if those are its own, or locked now."""
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
    """Whether the instance is still wanted, and is what the host reports about."""
    wanted = not instance.deleted and instance.task_state != states.DELETING
    return wanted and (instance.host, instance.generation) == (result.host, result.generation)
