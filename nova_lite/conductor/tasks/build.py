"""Building: schedule, claim, and hand each instance to its host.

`BuildTask.run` may be nudged twice, late, or never: the lease on the create action decides who drives it, and the claim
is one transaction that re-checks everything. What cannot go on now (no scheduler, no broker) is left to the reconciler.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite import exception, states
from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor.db import actions, claims, instances, server_groups
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.tasks import end
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import BuildRequest, Destination, Flavor, Image, RequestedDestination, RequestSpec, Selection
from nova_lite.scheduler.rpcapi import SchedulerAPI

LOG = logging.getLogger(__name__)

#: How often in one go the scheduler is asked again because others were faster to claim.
CLAIM_ROUNDS = 5


class _Wanted(msgspec.Struct):
    """One leased create: its action, and what the scheduler has to know of the instance."""

    action_id: int
    instance_uuid: str
    group: tuple[str, ...]
    spec: RequestSpec


class BuildTask:
    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network_backend: NetworkBackend,
        scheduler: SchedulerAPI,
        compute: ComputeAPI,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network_backend = network_backend
        self.scheduler = scheduler
        self.compute = compute

    def run(self, context: RequestContext, instance_uuids: Iterable[str], owner: str | None = None) -> None:
        """Drive the builds of these instances; with ``owner`` their actions are already leased to that name."""
        token = owner or actions.new_owner()
        wanted = self.db.write(_lease, self.conf, token, list(instance_uuids), owner is not None)
        for _, group in itertools.groupby(sorted(wanted, key=lambda item: item.group), key=lambda item: item.group):
            self._place(context, list(group), token)

    def _place(self, context: RequestContext, wanted: list[_Wanted], token: str) -> None:
        for _ in range(CLAIM_ROUNDS):
            try:
                destinations = self._select(context, wanted)
            except exception.NoValidHost as error:
                details = str(error.kwargs.get("details", ""))
                self.db.write(_fail, self.network_backend, wanted, token, error.message, details)
                return
            except exception.NovaLiteException as error:
                self._retry_later(wanted, token, f"scheduling: {error.message}")
                return
            placed, lost = self.db.write(_claim_all, self.conf, wanted, destinations, token)
            self._send(context, placed, token)
            if not lost:
                return
            wanted = lost
        self._retry_later(wanted, token, "every chosen host was claimed by others first")

    def _select(self, context: RequestContext, wanted: list[_Wanted]) -> dict[str, Destination]:
        uuids = [item.instance_uuid for item in wanted]
        group = self.db.read(server_groups.of_instance, uuids[0]) if wanted[0].spec.instance_group else None
        spec = msgspec.structs.replace(wanted[0].spec, instance_uuids=uuids, instance_group=group)
        return {
            destination.instance_uuid: destination for destination in self.scheduler.select_destinations(context, spec)
        }

    def _send(self, context: RequestContext, requests: list[tuple[str, BuildRequest]], token: str) -> None:
        """What no queue takes need not wait for its lease: nobody has begun it."""
        unsent = [each.action_id for host, each in requests if not send_build(self.compute, context, host, each)]
        if unsent:
            self.db.write(actions.retry_later, self.conf, unsent, token, "its compute host could not be reached")

    def _retry_later(self, wanted: list[_Wanted], token: str, cause: str) -> None:
        LOG.info("%d build(s) will be tried again: %s", len(wanted), cause)
        self.db.write(actions.retry_later, self.conf, [item.action_id for item in wanted], token, cause)


def send_build(compute: ComputeAPI, context: RequestContext, host: str, request: BuildRequest) -> bool:
    """Cast a build to its host; whether a queue took it. If not, the reconciler sends it again."""
    try:
        compute.build_and_run_instance(context, host, request)
    except exception.MessagingUnavailable as error:
        LOG.warning("Build of %s could not be sent to %s: %s", request.instance.uuid, host, error.message)
        return False
    return True


def build_request(uow: UnitOfWork, instance: Instance, action: InstanceAction) -> BuildRequest:
    """What the host needs, from the rows as they are now; the same again for a redrive."""
    image = None if instance.image is None else msgspec.convert(instance.image, Image)
    boot_images = msgspec.convert(instance.boot_images or {}, dict[str, Image])
    return BuildRequest(
        instance=instances.to_object(instance),
        generation=instance.generation,
        action_id=action.id,
        request_id=action.request_id,
        image=image,
        images={image.id: image, **boot_images} if image else {},
        limits=action.payload.get("limits", {}),
        injected_files=instance.request.get("injected_files", {}),
        admin_password=instance.request.get("admin_password"),
    )


def _lease(uow: UnitOfWork, conf: cfg.ConfigOpts, token: str, instance_uuids: list[str], leased: bool) -> list[_Wanted]:
    if leased:
        query = sa.select(InstanceAction).where(
            InstanceAction.instance_uuid.in_(instance_uuids),
            InstanceAction.lease_owner == token,
            InstanceAction.step == actions.SCHEDULE,
            InstanceAction.finish_time.is_(None),
        )
        mine = list(uow.session.scalars(query))
    else:
        mine = actions.lease_builds(uow, conf, token, instance_uuids)
    by_uuid = {action.instance_uuid: action for action in mine}
    instances_query = sa.select(Instance).where(Instance.uuid.in_(by_uuid)).order_by(Instance.id)
    rows = uow.session.scalars(instances_query.options(orm.lazyload("*")))
    wanted = []
    for row in rows:
        action = by_uuid[row.uuid]
        actions.start_event(uow, action, "conductor_schedule_and_build_instances", None)
        wanted.append(_wanted(uow, row, action))
    return wanted


def _wanted(uow: UnitOfWork, instance: Instance, action: InstanceAction) -> _Wanted:
    tried = list(action.payload.get("tried", []))
    spec = request_spec(uow, instance, tried, action.payload.get("excluded", []))
    wanted = spec.requested_destination and spec.requested_destination.host
    group = (instance.reservation_id, spec.forced_host or "", wanted or "", *spec.ignore_hosts)
    return _Wanted(action.id, instance.uuid, group, spec)


def request_spec(uow: UnitOfWork, instance: Instance, tried: list[str], excluded: Iterable[str] = ()) -> RequestSpec:
    """What the scheduler has to know of an instance; ``tried`` are the hosts that could not build it, ``excluded``
    others that it is not to go to."""
    wanted = instance.request.get("requested_destination")
    return RequestSpec(
        instance_uuids=[instance.uuid],
        project_id=instance.project_id,
        user_id=instance.user_id,
        flavor=msgspec.convert(instance.flavor, Flavor),
        image=None if instance.image is None else msgspec.convert(instance.image, Image),
        availability_zone=instance.requested_availability_zone,
        forced_host=instance.request.get("forced_host"),
        forced_node=instance.request.get("forced_node"),
        requested_destination=None if wanted is None else msgspec.convert(wanted, RequestedDestination),
        ignore_hosts=[*excluded, *tried],
        attempt=len(tried) + 1,
        instance_group=server_groups.of_instance(uow, instance.uuid) if instance.scheduler_hints.get("group") else None,
        scheduler_hints=instance.scheduler_hints,
    )


def _locked(uow: UnitOfWork, item: _Wanted, token: str) -> tuple[Instance, InstanceAction] | None:
    """Instance and action, locked, if the build is still wanted and still ours."""
    instance = instances.lock(uow, item.instance_uuid)
    action = actions.still_leased(uow, item.action_id, token, actions.SCHEDULE)
    if instance is None or action is None or instance.deleted:
        return None
    waiting, _ = states.BUILD_TASKS[action.action]
    if instance.task_state != waiting:
        return None
    return instance, action


def _claim_all(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    wanted: list[_Wanted],
    destinations: dict[str, Destination],
    token: str,
) -> tuple[list[tuple[str, BuildRequest]], list[_Wanted]]:
    """Claim what can be claimed; returns the builds to send, and the instances whose hosts were all full by now."""
    placed: list[tuple[str, BuildRequest]] = []
    lost: list[_Wanted] = []
    # In the order of the hosts, so that two conductors do not lock the same rows the other way round.
    for item in sorted(wanted, key=lambda item: destinations[item.instance_uuid].selected.host):
        locked = _locked(uow, item, token)
        if locked is None:
            continue
        instance, action = locked
        destination = destinations[item.instance_uuid]
        for selection in (destination.selected, *destination.alternates):
            if _claim(uow, instance, item, selection):
                _hand_over(uow, conf, instance, action, selection.limits)
                placed.append((selection.host, build_request(uow, instance, action)))
                break
        else:
            lost.append(item)
    return placed, lost


def _claim(uow: UnitOfWork, instance: Instance, item: _Wanted, selection: Selection) -> bool:
    """A place that breaks the policy of the instance's group by now is lost like one that is full."""
    if item.spec.instance_group is not None and not server_groups.keeps_policy(uow, instance.uuid, selection.host):
        return False
    return claims.claim(uow, instance, selection)


def _hand_over(
    uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, action: InstanceAction, limits: dict[str, Any]
) -> None:
    action.step = actions.BUILD
    action.host = instance.host
    action.generation = instance.generation
    action.payload = {**action.payload, "limits": limits}
    action.attempts = 0
    actions.extend(uow, conf, action)
    actions.finish_events(uow, action)
    actions.start_event(uow, action, "compute__do_build_and_run_instance", instance.host)


def _fail(
    uow: UnitOfWork,
    network_backend: NetworkBackend,
    wanted: list[_Wanted],
    token: str,
    message: str,
    details: str,
) -> None:
    for item in wanted:
        locked = _locked(uow, item, token)
        if locked is None:
            continue
        instance, action = locked
        errors = action.payload.get("errors", [])
        earlier = f" (an earlier host failed: {errors[-1]})" if errors else ""
        end.failed(uow, network_backend, instance, action, message + earlier, details)
