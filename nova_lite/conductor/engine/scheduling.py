"""The step `ScheduleStep`: ask the scheduler, claim, and hand each instance to its host.

`Scheduling.run` may be nudged twice, late, or never: the lease on the action decides who drives it, and the claim is
one transaction that re-checks everything. What cannot go on now (no scheduler, no broker) is left to the reconciler.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from nova_lite import hardware, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import (
    CONNECTED,
    ActionContext,
    begun,
    build_requests,
    command_of,
    requested_networks,
)
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.placement_request import PlacementRequest, grouped, placement_request_of
from nova_lite.conductor.hosts.filter_queries import FilterQueries
from nova_lite.conductor.hosts.publisher import HostPublisher
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.db import actions, claims, networks, server_groups
from nova_lite.db.engine import UnitOfWork, translate
from nova_lite.db.models import InstanceAction
from nova_lite.objects import (
    ActionCommand,
    BuildRequest,
    Destination,
    Placement,
    PortFilters,
    RequestSpec,
    Selection,
)
from nova_lite.operations import HostRole, ScheduleStep
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)

Order = BuildRequest | ActionCommand

#: How often in one go the scheduler is asked again because others were faster to claim.
CLAIM_ROUNDS = 5

#: Orders that one message to a host carries at most.
ORDERS = 32


class Scheduling:
    """``news``: what schedulers have not been told yet. Nobody is refused for want of it. ``filters``: tells what hosts
    have to filter of the projects whose servers they build."""

    def __init__(
        self,
        engine: ActionEngine,
        scheduler: SchedulerRPC,
        news: HostPublisher | None = None,
        filters: FilterQueries | None = None,
    ) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf
        self.scheduler = scheduler
        self.news = news
        self.filters = filters

    def run(self, context: RequestContext, instance_uuids: Iterable[str], owner: str | None = None) -> None:
        """Drive the builds of these instances; with ``owner`` their actions are already leased to that name."""
        token = owner or actions.new_owner()
        self.place(self.db.write(self._lease, context, token, list(instance_uuids), owner is not None))

    def place(self, wanted: list[PlacementRequest]) -> None:
        """Ask the scheduler, claim and send, all of these together; more than one request's, perhaps."""
        for _ in range(CLAIM_ROUNDS):
            if not wanted:
                return
            chosen = self._choose(grouped(wanted))
            placed, wanted = self._claim_together([item for item in wanted if item.instance_uuid in chosen], chosen)
            self._send(placed)
        self._retry_later(wanted, "every chosen host was claimed by others first")

    # --- ask

    def _choose(self, groups: list[list[PlacementRequest]]) -> dict[str, Destination]:
        """By instance, where those can go that can go somewhere. What becomes of the others is recorded."""
        chosen: dict[str, Destination] = {}
        for group, answer in self._answers(groups):
            if isinstance(answer, exceptions.NoValidHost):
                self.db.write(self._not_placed, group, answer.message, str(answer.kwargs.get("details", "")))
            elif isinstance(answer, exceptions.NovaLiteException):
                self._retry_later(group, f"scheduling: {answer.message}")
            else:
                chosen |= {each.instance_uuid: each for each in answer}
        return chosen

    def _answers(
        self, groups: list[list[PlacementRequest]]
    ) -> Iterator[tuple[list[PlacementRequest], list[Destination] | exceptions.NovaLiteException]]:
        """Who finds no host is asked for again once the scheduler knows of all that has become free meanwhile."""
        known = self.news.count if self.news else 0
        if self.news:
            self.news.tell_freed()
        for group, answer in zip(groups, self._ask(groups), strict=True):
            if isinstance(answer, exceptions.NoValidHost) and self.news:
                self.news.refused()
                if self.news.count != known:
                    yield group, self._ask_one(group)
                    continue
            yield group, answer

    def _ask(self, groups: list[list[PlacementRequest]]) -> list[list[Destination] | exceptions.NovaLiteException]:
        """Ask for all groups in one message."""
        if len(groups) > 1:
            try:
                specs = [self._spec(group) for group in groups]
                placements = self.scheduler.select_for_several(groups[0][0].context, specs)
                return [_answer_of(placement) for placement in placements]
            except exceptions.NovaLiteException as error:
                return [error] * len(groups)
        return [self._ask_one(group) for group in groups]

    def _ask_one(self, group: list[PlacementRequest]) -> list[Destination] | exceptions.NovaLiteException:
        try:
            return self.scheduler.select_destinations(group[0].context, self._spec(group))
        except exceptions.NovaLiteException as error:
            return error

    def _spec(self, wanted: list[PlacementRequest]) -> RequestSpec:
        uuids = [item.instance_uuid for item in wanted]
        group = self.db.read(server_groups.of_instance, uuids[0]) if wanted[0].spec.instance_group else None
        return msgspec.structs.replace(wanted[0].spec, instance_uuids=uuids, instance_group=group)

    # --- send

    def _send(self, placed: list[tuple[str, PlacementRequest, Order]]) -> None:
        """Send the orders, a host's builds together. A build that no queue takes is retried before its lease lapses:
        nobody has begun it."""
        builds: dict[str, list[tuple[PlacementRequest, BuildRequest]]] = {}
        for host, item, order in placed:
            if isinstance(order, ActionCommand):
                self.engine.send(order, item.context)
            else:
                builds.setdefault(host, []).append((item, order))
        unsent: dict[int, str] = {}
        filters = self._filters(builds)
        for host, orders in builds.items():
            for start in range(0, len(orders), ORDERS):
                some = orders[start : start + ORDERS]
                some[0][1].filters = filters.get(host)
                unsent |= {item.action_id: item.owner for item in self._send_builds(host, some)}
        if unsent:
            self.db.write(actions.retry_later, self.conf, unsent, "its compute host could not be reached")

    def _filters(self, builds: Mapping[str, Sequence[tuple[PlacementRequest, BuildRequest]]]) -> dict[str, PortFilters]:
        """What these hosts have to filter, if several builds go out: of a single one its host asks while it builds."""
        if self.filters is None or sum(map(len, builds.values())) < 2:
            return {}
        requests = {host: [request for _, request in orders] for host, orders in builds.items()}
        projects = {
            host: {each.instance.project_id for each in mine if each.connected} for host, mine in requests.items()
        }
        return self.filters.rules_for_builds({host: theirs for host, theirs in projects.items() if theirs})

    def _send_builds(
        self, host: str, orders: Sequence[tuple[PlacementRequest, BuildRequest]]
    ) -> list[PlacementRequest]:
        """Send the builds of one host in one message. Return those that no queue took."""
        requests = [request for _, request in orders]
        context = orders[0][0].context
        if len(requests) > 1:
            try:
                self.engine.compute.build_and_run_instances(context, host, requests)
                return []
            except exceptions.MessagingUnavailable as error:
                LOG.warning("%d builds could not be sent to %s: %s", len(requests), host, error.message)
                return [item for item, _ in orders]
        return [item for item, request in orders if not self.send(item.context, host, request)]

    def send(self, context: RequestContext, host: str, request: BuildRequest) -> bool:
        """Cast a build to its host; whether a queue took it. If not, the reconciler sends it again."""
        try:
            self.engine.compute.build_and_run_instance(context, host, request)
        except exceptions.MessagingUnavailable as error:
            LOG.warning("Build of %s could not be sent to %s: %s", request.instance.uuid, host, error.message)
            return False
        return True

    def _retry_later(self, wanted: list[PlacementRequest], cause: str) -> None:
        LOG.info("%d build(s) will be tried again: %s", len(wanted), cause)
        self.db.write(self._put_off, wanted, cause)

    def _put_off(self, uow: UnitOfWork, wanted: list[PlacementRequest], cause: str) -> None:
        items = {item.action_id: item for item in wanted}
        leases = {item.action_id: item.owner for item in wanted}
        for action in actions.retry_later(uow, self.conf, leases, cause):
            self._note(uow, items[action.id], action)

    # --- plan

    def _lease(
        self, uow: UnitOfWork, context: RequestContext, token: str, instance_uuids: list[str], leased: bool
    ) -> list[PlacementRequest]:
        if not leased:
            actions.lease(uow, self.conf, token, instance_uuids, operations.SCHEDULE)
        found = actions.leased(uow, token, instance_uuids, operations.SCHEDULE)
        return [placement_request_of(uow, context, action, row) for action, row in found]

    # --- record

    def _locked(self, uow: UnitOfWork, wanted: list[PlacementRequest]) -> list[tuple[PlacementRequest, ActionContext]]:
        """Those that are still leased to us, locked with their instances; in the order in which they came."""
        uuids = {item.action_id: item.instance_uuid for item in wanted}
        owners = {item.action_id: item.owner for item in wanted}
        found = actions.still_leased(uow, uuids, owners, operations.SCHEDULE)
        contexts = [(item, ActionContext(uow, *found[item.action_id])) for item in wanted if item.action_id in found]
        ours = [
            (item, ctx)
            for item, ctx in contexts
            if not ctx.instance.deleted and ctx.instance.task_state == ctx.step.task
        ]
        for item, ctx in ours:
            self._note(uow, item, ctx.action)
        return ours

    def _note(self, uow: UnitOfWork, item: PlacementRequest, action: InstanceAction) -> None:
        """Write that the step has begun, together with what came of it."""
        event = operations.get(action.action, action.payload).step(operations.SCHEDULE).event
        actions.start_event(uow, action, str(event), self.conf.host, item.since)

    def _claim_together(
        self, wanted: list[PlacementRequest], destinations: dict[str, Destination]
    ) -> tuple[list[tuple[str, PlacementRequest, Order]], list[PlacementRequest]]:
        """`_claim` in one transaction. If that cannot be, because a row makes no sense, each request's in its own: what
        fails then is left to its lease."""
        groups = grouped(wanted)
        if len(groups) < 2:
            return self.db.write(self._claim, wanted, destinations) if wanted else ([], [])
        try:
            return self.db.write(self._claim, wanted, destinations)
        except Exception as error:
            if isinstance(translate(error), exceptions.DatabaseUnavailable):
                raise
            LOG.warning("Places are claimed for one request after the other, one of them cannot be: %r", error)
        placed: list[tuple[str, PlacementRequest, Order]] = []
        lost: list[PlacementRequest] = []
        for group in groups:

            def claim(group: list[PlacementRequest] = group) -> None:
                more, full = self.db.write(self._claim, group, destinations)
                placed.extend(more)
                lost.extend(full)

            self.engine.guarded(claim)
        return placed, lost

    def _claim(
        self, uow: UnitOfWork, wanted: list[PlacementRequest], destinations: dict[str, Destination]
    ) -> tuple[list[tuple[str, PlacementRequest, Order]], list[PlacementRequest]]:
        """Claim what can be claimed; the orders to send, and the instances whose hosts were all full by now.

        Two conductors do not lock the same rows the other way round: first come all instances, then all hosts, then in
        the order of the hosts their nodes, then networks.
        """
        placed: list[tuple[str, PlacementRequest, ActionContext]] = []
        lost: list[PlacementRequest] = []
        store = networks.Store(uow, new=[item.instance_uuid for item in wanted if item.is_new])
        with uow.session.no_autoflush:  # one update of each row says it all
            ours = self._locked(uow, wanted)
            claims.lock_hosts(uow, [destinations[item.instance_uuid].selected.host for item, _ in ours])
            for item, ctx in sorted(ours, key=lambda each: destinations[each[0].instance_uuid].selected.host):
                if placed and item.spec.instance_group is not None:
                    uow.session.flush()  # other members of its group may be among those
                selection = _claim_one(ctx, item, destinations[item.instance_uuid])
                if selection is None:
                    lost.append(item)
                    continue
                self._go_on(ctx, selection, store)
                if ctx.action.finish_time is None:
                    placed.append((selection.host, item, ctx))
        orders = _orders(uow, [ctx for *_, ctx in placed])
        return [(host, item, orders[item.instance_uuid]) for host, item, _ in placed], lost

    def _go_on(self, ctx: ActionContext, selection: Selection, store: networks.Store) -> None:
        """The place is claimed."""
        ctx.action.payload = {**ctx.action.payload, "limits": selection.limits}
        actions.extend(ctx.uow, self.conf, ctx.action)
        self.engine.advance(ctx, driven=True)
        self._connect(ctx, store)

    def _connect(self, ctx: ActionContext, store: networks.Store) -> None:
        """Addresses that are rows are taken with the place, so that the host need not ask for them. What speaks against
        that is told to the host when it asks."""
        network = self.engine.network
        if ctx.action.step != operations.BUILD or network.remote:
            return
        try:
            network.allocate(store, ctx.instance.uuid, requested_networks(ctx))
        except exceptions.NovaLiteException as error:
            LOG.info("Instance %s has no interfaces yet: %s", ctx.instance.uuid, error.message)
            network.deallocate(store, ctx.instance.uuid)
            return
        host = ctx.uow.hosts[str(ctx.instance.host)]
        assert host is not None
        ctx.action.payload = {**ctx.action.payload, CONNECTED: host.admission}
        begun(ctx)

    def _not_placed(self, uow: UnitOfWork, wanted: list[PlacementRequest], message: str, details: str) -> None:
        for _, ctx in self._locked(uow, wanted):
            errors = ctx.action.payload.get("errors", [])
            earlier = f" (an earlier host failed: {errors[-1]})" if errors else ""
            self.engine.fail(ctx, message + earlier, details, answered=False)


def _answer_of(placement: Placement) -> list[Destination] | exceptions.NovaLiteException:
    if placement.reason is None:
        return placement.destinations
    return exceptions.NoValidHost(placement.reason, details=placement.details)


def _claim_one(ctx: ActionContext, item: PlacementRequest, destination: Destination) -> Selection | None:
    """The host that has the place; None if none of those that the scheduler chose has room any more."""
    chosen = (destination.selected, *destination.alternates)
    return next((selection for selection in chosen if _claimed(ctx, item, selection)), None)


def _claimed(ctx: ActionContext, item: PlacementRequest, selection: Selection) -> bool:
    """Claim one instance's place; a host that breaks the policy of its server group counts as full."""
    uow, instance = ctx.uow, ctx.instance
    if item.spec.instance_group is not None and not server_groups.keeps_policy(uow, instance.uuid, selection.host):
        return False
    step, numa = ctx.step, hardware.numa_of(item.spec.flavor, item.spec.image)
    if not isinstance(step, ScheduleStep) or step.moves:
        return claims.claim(uow, instance, selection, numa)
    place = claims.take(uow, instance, selection, claims.needs(item.spec.flavor), numa)
    if place is None:
        return False
    same = place.host == instance.host
    ctx.action.payload = {**ctx.action.payload, HostRole.DESTINATION.value: place._asdict(), "same_host": same}
    handler_for(ctx.action.action).claimed(uow, instance, place)
    return True


def _orders(uow: UnitOfWork, contexts: list[ActionContext]) -> dict[str, Order]:
    """What follows the claims, by instance: a build, or an order of another step."""
    builds = [ctx for ctx in contexts if ctx.action.step == operations.BUILD]
    others = [ctx for ctx in contexts if ctx.action.step != operations.BUILD]
    orders: dict[str, Order] = {ctx.instance.uuid: command_of(ctx) for ctx in others}
    return orders | {request.instance.uuid: request for request in build_requests(uow, builds)}
