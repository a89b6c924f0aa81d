"""The step `Schedule`: ask the scheduler, claim, and hand each instance to its host.

`Scheduling.run` may be nudged twice, late, or never: the lease on the action decides who drives it, and the claim is
one transaction that re-checks everything. What cannot go on now (no scheduler, no broker) is left to the reconciler.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable

import msgspec

from nova_lite import exception, operations
from nova_lite.conductor.db import actions, claims, instances, server_groups
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations.engine import Act, Engine
from nova_lite.context import RequestContext
from nova_lite.objects import BuildRequest, Destination, Flavor, Image, RequestedDestination, RequestSpec, Selection
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)

#: How often in one go the scheduler is asked again because others were faster to claim.
CLAIM_ROUNDS = 5


class _Wanted(msgspec.Struct):
    """One leased action, and what the scheduler has to know of its instance."""

    action_id: int
    instance_uuid: str
    group: tuple[str, ...]
    spec: RequestSpec


class Scheduling:
    def __init__(self, engine: Engine, scheduler: SchedulerRPC) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf
        self.scheduler = scheduler

    def run(self, context: RequestContext, instance_uuids: Iterable[str], owner: str | None = None) -> None:
        """Drive the builds of these instances; with ``owner`` their actions are already leased to that name."""
        token = owner or actions.new_owner()
        wanted = self.db.write(self._lease, token, list(instance_uuids), owner is not None)
        for _, group in itertools.groupby(sorted(wanted, key=lambda item: item.group), key=lambda item: item.group):
            self._place(context, list(group), token)

    def _place(self, context: RequestContext, wanted: list[_Wanted], token: str) -> None:
        for _ in range(CLAIM_ROUNDS):
            try:
                destinations = self._select(context, wanted)
            except exception.NoValidHost as error:
                self.db.write(self._not_placed, wanted, token, error.message, str(error.kwargs.get("details", "")))
                return
            except exception.NovaLiteException as error:
                self._retry_later(wanted, token, f"scheduling: {error.message}")
                return
            placed, lost = self.db.write(self._claim, wanted, destinations, token)
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
        """Send the builds. One that no queue takes is retried before its lease lapses: nobody has begun it."""
        unsent = [each.action_id for host, each in requests if not self.send(context, host, each)]
        if unsent:
            self.db.write(actions.retry_later, self.conf, unsent, token, "its compute host could not be reached")

    def send(self, context: RequestContext, host: str, request: BuildRequest) -> bool:
        """Cast a build to its host; whether a queue took it. If not, the reconciler sends it again."""
        try:
            self.engine.compute.build_and_run_instance(context, host, request)
        except exception.MessagingUnavailable as error:
            LOG.warning("Build of %s could not be sent to %s: %s", request.instance.uuid, host, error.message)
            return False
        return True

    def _retry_later(self, wanted: list[_Wanted], token: str, cause: str) -> None:
        LOG.info("%d build(s) will be tried again: %s", len(wanted), cause)
        self.db.write(actions.retry_later, self.conf, [item.action_id for item in wanted], token, cause)

    # --- plan

    def _lease(self, uow: UnitOfWork, token: str, instance_uuids: list[str], leased: bool) -> list[_Wanted]:
        if leased:
            mine = actions.leased(uow, token, instance_uuids, operations.SCHEDULE)
        else:
            mine = actions.lease(uow, self.conf, token, instance_uuids, operations.SCHEDULE)
        by_uuid = {action.instance_uuid: action for action in mine}
        wanted = []
        for row in instances.bare_rows(uow, by_uuid):
            action = by_uuid[row.uuid]
            event = operations.get(action.action, action.payload).step(operations.SCHEDULE).event
            actions.start_event(uow, action, str(event), self.conf.host)
            spec = request_spec(uow, row, list(action.payload.get("tried", [])), action.payload.get("excluded", []))
            destination = spec.requested_destination and spec.requested_destination.host
            group = (row.reservation_id, spec.forced_host or "", destination or "", *spec.ignore_hosts)
            wanted.append(_Wanted(action.id, row.uuid, group, spec))
        return wanted

    # --- record

    def _locked(self, uow: UnitOfWork, item: _Wanted, token: str) -> Act | None:
        """The action and its instance, locked, if it is still leased to us."""
        instance = instances.lock(uow, item.instance_uuid)
        action = actions.still_leased(uow, item.action_id, token, operations.SCHEDULE)
        if instance is None or action is None or instance.deleted:
            return None
        act = Act(uow, instance, action)
        return act if instance.task_state == act.step.task else None

    def _claim(
        self, uow: UnitOfWork, wanted: list[_Wanted], destinations: dict[str, Destination], token: str
    ) -> tuple[list[tuple[str, BuildRequest]], list[_Wanted]]:
        """Claim what can be claimed; the builds to send, and the instances whose hosts were all full by now."""
        placed: list[tuple[str, BuildRequest]] = []
        lost: list[_Wanted] = []
        # In the order of the hosts, so that two conductors do not lock the same rows the other way round.
        for item in sorted(wanted, key=lambda item: destinations[item.instance_uuid].selected.host):
            act = self._locked(uow, item, token)
            if act is None:
                continue
            destination = destinations[item.instance_uuid]
            for selection in (destination.selected, *destination.alternates):
                if _claimed(act, item, selection):
                    act.action.payload = {**act.action.payload, "limits": selection.limits}
                    actions.extend(uow, self.conf, act.action)
                    with uow.session.no_autoflush:  # one update of the action says it all
                        self.engine.advance(act, driven=True)
                    placed.append((selection.host, build_request(act)))
                    break
            else:
                lost.append(item)
        return placed, lost

    def _not_placed(self, uow: UnitOfWork, wanted: list[_Wanted], token: str, message: str, details: str) -> None:
        for item in wanted:
            act = self._locked(uow, item, token)
            if act is not None:
                errors = act.action.payload.get("errors", [])
                earlier = f" (an earlier host failed: {errors[-1]})" if errors else ""
                self.engine.fail(act, message + earlier, details, answered=False)


def _claimed(act: Act, item: _Wanted, selection: Selection) -> bool:
    """Claim one instance's place; a host that breaks the policy of its server group counts as full."""
    uow, instance = act.uow, act.instance
    if item.spec.instance_group is not None and not server_groups.keeps_policy(uow, instance.uuid, selection.host):
        return False
    return claims.claim(uow, instance, selection)


def build_request(act: Act) -> BuildRequest:
    """The order to build, made from the rows as they are now; a redrive makes the same."""
    instance, action = act.instance, act.action
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
