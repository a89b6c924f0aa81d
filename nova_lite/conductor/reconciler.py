"""The reconciler: drives whatever was accepted and is not finished, and ends what is past its deadline.

Every conductor runs one. A sweep takes due actions by conditional lease updates and drives each one's current step
again; all it does is harmless when done twice.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from concurrent import futures

import msgspec
from oslo_config import cfg

from nova_lite import exception, states
from nova_lite.compute.rpcapi import ComputeAPI, send_ticket
from nova_lite.conductor.db import actions, hosts, instances, services
from nova_lite.conductor.db.engine import Database, UnitOfWork, translate
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.tasks import accept, build, end
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionTicket, BuildRequest
from nova_lite.states import ActionKind

LOG = logging.getLogger(__name__)

#: Seconds that a host has to confirm a fence during compensation.
FENCE_TIMEOUT = 30.0

#: Drives that wait for other daemons at the same time; a scheduler that is away must not hold up deletes.
PARALLEL_DRIVES = 4


class _Due(msgspec.Struct):
    """One action to drive, as its rows were when it was taken."""

    action_id: int
    kind: str
    step: str
    instance_uuid: str
    host: str | None
    generation: int
    context: RequestContext
    build: BuildRequest | None = None
    ticket: ActionTicket | None = None


class Reconciler:
    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network_backend: NetworkBackend,
        builds: build.BuildTask,
        compute: ComputeAPI,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network_backend = network_backend
        self.builds = builds
        self.compute = compute
        self._last_sweep = self._hearing_since = time.monotonic()
        self._pool = futures.ThreadPoolExecutor(PARALLEL_DRIVES, thread_name_prefix="reconciler")

    def sweep(self) -> int:
        """One pass; returns how many actions were taken."""
        for host in self.db.write(self._expire_services):
            LOG.warning("Host %s has not reported for %d s: it counts as down", host, self.conf.service_down_time)
        owner = actions.new_owner()
        due = self.db.write(_take_due, self.conf, self.network_backend, owner)
        to_schedule = [item for item in due if item.step == actions.SCHEDULE]
        if to_schedule:
            uuids = [item.instance_uuid for item in to_schedule]
            self._drive(lambda: self.builds.run(to_schedule[0].context, uuids, owner))
        for item in due:
            if item.step != actions.SCHEDULE:
                self._drive(lambda item=item: self._redrive(item))  # type: ignore[misc]
        return len(due)

    def _expire_services(self, uow: UnitOfWork) -> list[str]:
        """Hosts that are silent, unless it is we who could not hear: for one lease after this conductor was started, or
        stood still, or was without broker or database, silence says nothing."""
        now = time.monotonic()
        limit = 2 * self.conf.report_interval + 1
        if now - self._last_sweep > limit or services.seconds_since_heard(uow) > limit:
            self._hearing_since = now
        self._last_sweep = now
        if now - self._hearing_since < self.conf.service_down_time:
            return []
        return services.expire(uow, self.conf)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _drive(self, func: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                func()
            except Exception as error:
                ours = translate(error)
                if isinstance(ours, exception.NovaLiteException):
                    LOG.warning("A redrive could not be done now: %s", ours.message)
                else:
                    LOG.exception("A redrive failed; it is repeated after its lease")

        self._pool.submit(guarded)

    def _redrive(self, item: _Due) -> None:
        LOG.info("Driving %s of %s again (step %s, host %s)", item.kind, item.instance_uuid, item.step, item.host)
        if item.step == actions.COMPENSATE:
            self._compensate(item)
        elif item.build is not None and item.host is not None:
            build.send_build(self.compute, item.context, item.host, item.build)
        elif item.ticket is not None:
            try:
                send_ticket(self.compute, item.context, item.ticket)
            except exception.MessagingUnavailable as error:
                LOG.warning("%s of %s could not be sent: %s", item.kind, item.instance_uuid, error.message)

    def _compensate(self, item: _Due) -> None:
        """A build past its deadline: have its host confirm that it will not, or find out that it did."""
        if item.host is None:
            return
        try:
            fenced = self.compute.fence_instance(
                item.context, item.host, item.instance_uuid, item.generation, timeout=FENCE_TIMEOUT
            )
        except exception.ServiceUnavailable:
            LOG.info("Host %s does not confirm the end of the build of %s yet", item.host, item.instance_uuid)
            return
        if fenced:
            self.db.write(_compensated, self.network_backend, item.action_id)
        else:
            LOG.warning("Host %s runs %s although its build is past its deadline", item.host, item.instance_uuid)
            self.db.write(_revived, self.conf, item.action_id)


def _take_due(uow: UnitOfWork, conf: cfg.ConfigOpts, network_backend: NetworkBackend, owner: str) -> list[_Due]:
    """Lease what is due, and settle in the same transaction what needs no other daemon."""
    due = []
    for action in actions.take_due(uow, conf, owner):
        instance = instances.lock(uow, action.instance_uuid)
        uow.session.refresh(action)
        if instance is None or action.finish_time is not None:
            continue
        if action.deadline <= uow.now:
            _past_deadline(uow, conf, network_backend, instance, action)
        elif _is_delete_without_host(uow, instance, action):
            accept.delete_without_host(uow, conf, instance, action)
        if action.finish_time is None:
            due.append(_due(uow, instance, action))
    return due


def _due(uow: UnitOfWork, instance: Instance, action: InstanceAction) -> _Due:
    context = RequestContext(
        user_id=action.user_id, project_id=action.project_id, request_id=action.request_id, overwrite=False
    )
    item = _Due(
        action_id=action.id,
        kind=action.action,
        step=action.step,
        instance_uuid=instance.uuid,
        host=action.host,
        generation=action.generation,
        context=context,
    )
    if action.step == actions.BUILD:
        item.build = build.build_request(uow, instance, action)
    elif action.step in (actions.PERFORM, actions.CLEANUP):
        item.ticket = accept.ticket(action, instance)
    return item


def _is_delete_without_host(uow: UnitOfWork, instance: Instance, action: InstanceAction) -> bool:
    return (
        action.action == ActionKind.DELETE
        and action.step == actions.PERFORM
        and instance.host is not None
        and not hosts.is_up(uow, instance.host)
    )


def _past_deadline(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    instance: Instance,
    action: InstanceAction,
) -> None:
    """End it with its cause. What a silent host may still hold is kept until the host has answered."""
    cause = _cause(uow, conf, action)
    LOG.warning("Giving up %s of %s: %s", action.action, instance.uuid, cause)
    if action.step == actions.SCHEDULE:
        end.failed(uow, network_backend, instance, action, cause)
    elif action.step in (actions.BUILD, actions.COMPENSATE):
        end.set_error(uow, instance, cause)
        actions.finish_events(uow, action, cause)
        end.postpone_cleanup(uow, conf, action, actions.COMPENSATE)
    elif action.action == ActionKind.DELETE:
        # It shows, and goes on: what the host holds is only given back once the host has removed it.
        end.set_error(uow, instance, cause)
        instance.task_state = states.DELETING
        action.deadline = uow.now + datetime.timedelta(seconds=conf.conductor.action_deadline)
    else:
        instance.task_state = None
        instance.updated_at = uow.now
        end.record_fault(uow, instance, cause)
        actions.finish(uow, action, cause)


def _cause(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction) -> str:
    what = f"The {action.action} was not finished within {conf.conductor.action_deadline} s"
    if action.host is not None and not hosts.is_up(uow, action.host):
        return f"{what}: its compute host does not answer."
    last_error = action.payload.get("last_error")
    return f"{what}: {last_error}" if last_error else f"{what}."


def _compensated(uow: UnitOfWork, network_backend: NetworkBackend, action_id: int) -> None:
    """The host has confirmed: nothing of the instance is there, nor will be."""
    found = _lock_compensation(uow, action_id)
    if found is None:
        return
    instance, action = found
    message = (instance.fault or {}).get("message", "The build was given up.")
    end.not_built(uow, network_backend, instance, action, message)


def _revived(uow: UnitOfWork, conf: cfg.ConfigOpts, action_id: int) -> None:
    """The build had succeeded after all: the instance is what its owner asked for."""
    found = _lock_compensation(uow, action_id)
    if found is None:
        return
    instance, action = found
    end.built(uow, conf, instance, action, states.PowerState.RUNNING)


def _lock_compensation(uow: UnitOfWork, action_id: int) -> tuple[Instance, InstanceAction] | None:
    action = uow.session.get(InstanceAction, action_id)
    instance = instances.lock(uow, action.instance_uuid) if action is not None else None
    if action is None or instance is None:
        return None
    uow.session.refresh(action)
    if action.finish_time is not None or action.step != actions.COMPENSATE or instance.deleted:
        return None
    return instance, action
