"""The step `Schedule`: ask the scheduler, claim, and hand each instance to its host.

`Scheduling.run` may be nudged twice, late, or never: the lease on the action decides who drives it, and the claim is
one transaction that re-checks everything. What cannot go on now (no scheduler, no broker) is left to the reconciler.
"""

from __future__ import annotations

import datetime
import itertools
import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite import exception, operations
from nova_lite.conductor.db import actions, claims, instances, networks, server_groups
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.operations.act import CONNECTED, Act, begun, build_request, requested_networks, ticket
from nova_lite.conductor.operations.engine import Engine
from nova_lite.conductor.operations.registry import own
from nova_lite.context import RequestContext
from nova_lite.objects import (
    ActionTicket,
    BuildRequest,
    Destination,
    Flavor,
    Image,
    RequestedDestination,
    RequestSpec,
    Selection,
)
from nova_lite.operations import End, Schedule
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)

#: In place of servers that a hint may not name; no host has it.
NOWHERE = "00000000-0000-0000-0000-000000000000"

Order = BuildRequest | ActionTicket

#: How often in one go the scheduler is asked again because others were faster to claim.
CLAIM_ROUNDS = 5


class _Wanted(msgspec.Struct):
    """One leased action, and what the scheduler has to know of its instance. ``since``: when this attempt began.
    ``is_new``: it was never on a host."""

    action_id: int
    instance_uuid: str
    since: datetime.datetime
    is_new: bool
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

    def _send(self, context: RequestContext, requests: list[tuple[str, Order]], token: str) -> None:
        """Send the orders. A build that no queue takes is retried before its lease lapses: nobody has begun it."""
        unsent = []
        for host, each in requests:
            if isinstance(each, ActionTicket):
                self.engine.send(each, context)
            elif not self.send(context, host, each):
                unsent.append(each.action_id)
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
        self.db.write(self._put_off, wanted, token, cause)

    def _put_off(self, uow: UnitOfWork, wanted: list[_Wanted], token: str, cause: str) -> None:
        items = {item.action_id: item for item in wanted}
        for action in actions.retry_later(uow, self.conf, items, token, cause):
            self._note(uow, items[action.id], action)

    # --- plan

    def _lease(self, uow: UnitOfWork, token: str, instance_uuids: list[str], leased: bool) -> list[_Wanted]:
        if not leased:
            actions.lease(uow, self.conf, token, instance_uuids, operations.SCHEDULE)
        wanted = []
        for action, row in actions.leased(uow, token, instance_uuids, operations.SCHEDULE):
            payload = action.payload
            tried, excluded = list(payload.get("tried", [])), payload.get("excluded", [])
            spec = request_spec(uow, row, tried, excluded, payload.get("flavor"))
            destination = spec.requested_destination and spec.requested_destination.host
            size = spec.flavor.flavorid if "flavor" in payload else ""
            group = (row.reservation_id, spec.forced_host or "", destination or "", size, *spec.ignore_hosts)
            is_new = action.action == operations.CREATE.kind and not tried
            wanted.append(_Wanted(action.id, row.uuid, uow.now, is_new, group, spec))
        return wanted

    # --- record

    def _locked(self, uow: UnitOfWork, item: _Wanted, token: str) -> Act | None:
        """The action and its instance, locked, if it is still leased to us."""
        found = actions.still_leased(uow, item.action_id, item.instance_uuid, token, operations.SCHEDULE)
        if found is None:
            return None
        act = Act(uow, *found)
        if act.instance.deleted or act.instance.task_state != act.step.task:
            return None
        self._note(uow, item, act.action)
        return act

    def _note(self, uow: UnitOfWork, item: _Wanted, action: InstanceAction) -> None:
        """Write that the step has begun, together with what came of it."""
        event = operations.get(action.action, action.payload).step(operations.SCHEDULE).event
        actions.start_event(uow, action, str(event), self.conf.host, item.since)

    def _claim(
        self, uow: UnitOfWork, wanted: list[_Wanted], destinations: dict[str, Destination], token: str
    ) -> tuple[list[tuple[str, Order]], list[_Wanted]]:
        """Claim what can be claimed; the orders to send, and the instances whose hosts were all full by now."""
        placed: list[tuple[str, Order]] = []
        lost: list[_Wanted] = []
        store = networks.Store(uow, new=[item.instance_uuid for item in wanted if item.is_new])
        # In the order of the hosts, so that two conductors do not lock the same rows the other way round.
        for item in sorted(wanted, key=lambda item: destinations[item.instance_uuid].selected.host):
            act = self._locked(uow, item, token)
            if act is None:
                continue
            with uow.session.no_autoflush:  # one update of each row says it all
                host = self._claim_one(act, item, destinations[item.instance_uuid], store)
            if host is None:
                lost.append(item)
            elif act.action.finish_time is None:
                placed.append((host, _order(act)))
        return placed, lost

    def _claim_one(self, act: Act, item: _Wanted, destination: Destination, store: networks.Store) -> str | None:
        """The host that has the place; None if none of those that the scheduler chose has room any more."""
        for selection in (destination.selected, *destination.alternates):
            if _claimed(act, item, selection):
                act.action.payload = {**act.action.payload, "limits": selection.limits}
                actions.extend(act.uow, self.conf, act.action)
                self.engine.advance(act, driven=True)
                self._connect(act, store)
                return selection.host
        return None

    def _connect(self, act: Act, store: networks.Store) -> None:
        """Addresses that are rows are taken with the place, so that the host need not ask for them. What speaks against
        that is told to the host when it asks."""
        network = self.engine.network
        if act.action.step != operations.BUILD or network.remote:
            return
        try:
            network.allocate(store, act.instance.uuid, requested_networks(act))
        except exception.NovaLiteException as error:
            LOG.info("Instance %s has no interfaces yet: %s", act.instance.uuid, error.message)
            network.deallocate(store, act.instance.uuid)
            return
        act.action.payload = {**act.action.payload, CONNECTED: act.uow.admissions[str(act.instance.host)]}
        begun(act)

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
    step = act.step
    if not isinstance(step, Schedule) or step.moves:
        return claims.claim(uow, instance, selection)
    place = claims.take(uow, instance, selection, claims.needs(item.spec.flavor))
    if place is None:
        return False
    same = place.host == instance.host
    act.action.payload = {**act.action.payload, End.DESTINATION.value: place._asdict(), "same_host": same}
    own(act.action.action).claimed(uow, instance, place)
    return True


def _order(act: Act) -> Order:
    """What follows the claim: a build, or an order of another step."""
    return build_request(act) if act.action.step == operations.BUILD else ticket(act)


def request_spec(
    uow: UnitOfWork,
    instance: Instance,
    tried: list[str],
    excluded: Iterable[str] = (),
    flavor: dict[str, Any] | None = None,
) -> RequestSpec:
    """What the scheduler has to know of an instance; ``tried`` are the hosts that could not build it, ``excluded``
    others that it is not to go to, ``flavor`` the one that it is to have."""
    wanted = instance.request.get("requested_destination")
    return RequestSpec(
        instance_uuids=[instance.uuid],
        project_id=instance.project_id,
        user_id=instance.user_id,
        flavor=msgspec.convert(flavor or instance.flavor, Flavor),
        image=None if instance.image is None else msgspec.convert(instance.image, Image),
        availability_zone=instance.requested_availability_zone,
        forced_host=instance.request.get("forced_host"),
        forced_node=instance.request.get("forced_node"),
        requested_destination=None if wanted is None else msgspec.convert(wanted, RequestedDestination),
        ignore_hosts=[*excluded, *tried],
        attempt=len(tried) + 1,
        instance_group=server_groups.of_instance(uow, instance.uuid) if instance.scheduler_hints.get("group") else None,
        scheduler_hints=_hints(uow, instance),
    )


def _hints(uow: UnitOfWork, instance: Instance) -> dict[str, list[str] | str]:
    """The hints, of which those about servers count only for the project's own: whether a host was found would tell
    where others' are. A server that is not one's own is nowhere."""
    found = dict(instance.scheduler_hints)
    named = {hint: _several(found[hint]) for hint in ("same_host", "different_host") if hint in found}
    wanted = {uuid for uuids in named.values() for uuid in uuids}
    if wanted:
        own = instances.of_project(uow, instance.project_id, wanted)
        found |= {hint: [uuid for uuid in uuids if uuid in own] or [NOWHERE] for hint, uuids in named.items()}
    return found


def _several(value: list[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else value
