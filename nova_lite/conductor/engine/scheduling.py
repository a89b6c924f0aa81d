"""The step `ScheduleStep`: ask the scheduler for hosts, claim places, and send the commands that follow.

`Scheduling.run` may be called twice for an action, late, or never. The lease on the action decides who schedules it.
The claim is one transaction that checks everything again. If the scheduler or the broker is away, the reconciler
schedules the action later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nova_lite import hardware, operations
from nova_lite.base import exceptions, tracing
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
from nova_lite.conductor.engine.ports import BuildFilters, CapacityPublisher, HandlerLookup
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork, is_isolated
from nova_lite.db.core.events import InterfacesChanged
from nova_lite.db.core.models import InstanceAction
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import claims, server_groups
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
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)

HostCommand = BuildRequest | ActionCommand

#: Rounds of scheduling in one call of `Scheduling.place`. A round fails if other conductors claim the places first.
CLAIM_ROUNDS = 5

#: Builds that one message to a host carries at most.
MAX_BUILDS = 32


class Placed(NamedTuple):
    """A claimed place, and the command to send to its host."""

    host: str
    request: PlacementRequest
    command: HostCommand


class Scheduling:
    """Schedules actions.

    ``publisher``: publishes changes of hosts, so that no request is refused because the scheduler missed one.
    ``filters``: finds the packet filters of the projects whose servers a host builds.
    """

    def __init__(
        self,
        engine: ActionEngine,
        scheduler: SchedulerRPC,
        publisher: CapacityPublisher | None = None,
        filters: BuildFilters | None = None,
    ) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf
        self.scheduler = scheduler
        self.publisher = publisher
        self.filters = filters
        tracing.batches(self, "place", operations.SCHEDULE)

    def run(self, requests: Sequence[tuple[RequestContext, list[str]]], owner: str | None = None) -> None:
        """Schedule the open actions of these instances together.

        ``requests``: instances, with the context of the message that names them. ``owner``: holds their leases already;
        None: lease them.
        """
        contexts: dict[str | None, RequestContext] = {context.request_id: context for context, _ in requests}
        uuids = [instance_uuid for _, instance_uuids in requests for instance_uuid in instance_uuids]
        self.place(self._leased(contexts, list(dict.fromkeys(uuids)), owner))

    def place(self, requests: list[PlacementRequest]) -> None:
        """Ask the scheduler for hosts, claim places there, and send the commands, for all requests together."""
        for _ in range(CLAIM_ROUNDS):
            if not requests:
                return
            destinations = self._choose(grouped(requests))
            located = [request for request in requests if request.instance_uuid in destinations]
            placed, requests = self._claim_together(located, destinations)
            self._send(placed)
        self._retry_later(requests, "every chosen host was claimed by others first")

    # --- ask the scheduler

    def _choose(self, groups: list[list[PlacementRequest]]) -> dict[str, Destination]:
        """Return destinations by instance. Requests without a destination fail, or are retried later."""
        destinations: dict[str, Destination] = {}
        for group, reply in self._replies(groups):
            if isinstance(reply, exceptions.NoValidHost):
                self.db.write(self._fail, group, reply.message, str(reply.kwargs.get("details", "")))
            elif isinstance(reply, exceptions.NovaLiteException):
                self._retry_later(group, f"scheduling: {reply.message}")
            else:
                destinations |= {destination.instance_uuid: destination for destination in reply}
        return destinations

    def _replies(
        self, groups: list[list[PlacementRequest]]
    ) -> Iterator[tuple[list[PlacementRequest], list[Destination] | exceptions.NovaLiteException]]:
        """Yield each group with the scheduler's reply.

        Before `NoValidHost` is accepted, capacity that any conductor has freed lately is published, and the scheduler
        decides again. It refuses only if it knows all hosts as the database had them then.
        """
        for group, reply in zip(groups, self._select(groups), strict=True):
            yield group, self._ask_again(group, reply) if isinstance(reply, exceptions.NoValidHost) else reply

    def _ask_again(
        self, group: list[PlacementRequest], refusal: exceptions.NoValidHost
    ) -> list[Destination] | exceptions.NovaLiteException:
        if self.publisher is None:
            return refusal
        try:
            return self._select_one(group, self.publisher.publish_before_refusal())
        except exceptions.NovaLiteException as error:
            return error

    def _select(self, groups: list[list[PlacementRequest]]) -> list[list[Destination] | exceptions.NovaLiteException]:
        """Ask the scheduler about all groups in one message."""
        if len(groups) > 1:
            try:
                specs = [self._spec(group) for group in groups]
                placements = self.scheduler.select_destinations_batch(groups[0][0].context, specs)
                return [_destinations_of(placement) for placement in placements]
            except exceptions.NovaLiteException as error:
                return [error] * len(groups)
        return [self._select_one(group) for group in groups]

    def _select_one(
        self, group: list[PlacementRequest], known: int = 0
    ) -> list[Destination] | exceptions.NovaLiteException:
        try:
            spec = msgspec.structs.replace(self._spec(group), known=known)
            return self.scheduler.select_destinations(group[0].context, spec)
        except exceptions.NovaLiteException as error:
            return error

    def _spec(self, group: list[PlacementRequest]) -> RequestSpec:
        """Return one spec for all instances of the group, with the members of their server group as they are now."""
        uuids = [request.instance_uuid for request in group]
        spec = group[0].spec
        server_group = self.db.read(server_groups.of_instance, uuids[0]) if spec.instance_group else None
        return msgspec.structs.replace(spec, instance_uuids=uuids, instance_group=server_group)

    # --- send

    def _send(self, placed: list[Placed]) -> None:
        """Send the commands; builds of one host are batched.

        A build that cannot be sent is retried before its lease expires, because no host has begun it.
        """
        builds: dict[str, list[tuple[PlacementRequest, BuildRequest]]] = {}
        for host, request, command in placed:
            if isinstance(command, ActionCommand):
                self.engine.send(command, request.context)
            else:
                builds.setdefault(host, []).append((request, command))
        unsent: dict[int, str] = {}
        filters = self._filters(builds)
        for host, commands in builds.items():
            for start in range(0, len(commands), MAX_BUILDS):
                batch = commands[start : start + MAX_BUILDS]
                batch[0][1].filters = filters.get(host)
                unsent |= {request.action_id: request.owner for request in self._send_builds(host, batch)}
        if unsent:
            self.db.write(actions.retry_later, self.conf, unsent, "its compute host could not be reached")

    def _filters(self, builds: Mapping[str, Sequence[tuple[PlacementRequest, BuildRequest]]]) -> dict[str, PortFilters]:
        """Return the packet filters by host, so that the hosts do not ask for them."""
        connected = {
            host: {build.instance.uuid: build.instance.project_id for _, build in commands if build.connected}
            for host, commands in builds.items()
        }
        wanted = {host: projects for host, projects in connected.items() if projects}
        return self.filters.rules_for_builds(wanted) if self.filters is not None and wanted else {}

    def _send_builds(
        self, host: str, commands: Sequence[tuple[PlacementRequest, BuildRequest]]
    ) -> list[PlacementRequest]:
        """Send the builds of one host in one message. Return the requests of builds that no queue took."""
        builds = [build for _, build in commands]
        context = commands[0][0].context
        if len(builds) > 1:
            try:
                self.engine.compute.build_and_run_instances(context, host, builds)
                return []
            except exceptions.MessagingUnavailable as error:
                LOG.warning("%d builds could not be sent to %s: %s", len(builds), host, error.message)
                return [request for request, _ in commands]
        return [request for request, build in commands if not self.send(request.context, host, build)]

    def send(self, context: RequestContext, host: str, build: BuildRequest) -> bool:
        """Send a build to its host. Return False if no queue took it: then the reconciler sends it again."""
        try:
            self.engine.compute.build_and_run_instance(context, host, build)
        except exceptions.MessagingUnavailable as error:
            LOG.warning("Build of %s could not be sent to %s: %s", build.instance.uuid, host, error.message)
            return False
        return True

    def _retry_later(self, requests: list[PlacementRequest], cause: str) -> None:
        LOG.info("%d build(s) will be tried again: %s", len(requests), cause)
        self.db.write(self._put_off, requests, cause)

    def _put_off(self, uow: UnitOfWork, requests: list[PlacementRequest], cause: str) -> None:
        by_action = {request.action_id: request for request in requests}
        leases = {request.action_id: request.owner for request in requests}
        for action in actions.retry_later(uow, self.conf, leases, cause):
            self._start_event(uow, by_action[action.id], action)

    # --- lease

    def _leased(
        self, contexts: Mapping[str | None, RequestContext], instance_uuids: list[str], owner: str | None
    ) -> list[PlacementRequest]:
        """Lease the actions of these instances in one transaction. If a corrupt row prevents that, lease each alone."""
        try:
            return self.db.write(self._lease, contexts, instance_uuids, owner)
        except Exception as error:
            if len(instance_uuids) < 2 or not is_isolated(error):
                raise
            LOG.warning("Builds are leased one by one, because a row is corrupt: %r", error)
        leased: list[PlacementRequest] = []
        for instance_uuid in instance_uuids:

            def lease(instance_uuid: str = instance_uuid) -> None:
                leased.extend(self.db.write(self._lease, contexts, [instance_uuid], owner))

            self.engine.guarded(lease)
        return leased

    def _lease(
        self,
        uow: UnitOfWork,
        contexts: Mapping[str | None, RequestContext],
        instance_uuids: list[str],
        owner: str | None,
    ) -> list[PlacementRequest]:
        token = owner or actions.new_owner()
        if owner is None:
            actions.lease(uow, self.conf, token, instance_uuids, operations.SCHEDULE)
        requests = []
        for action, row in actions.leased(uow, token, instance_uuids, operations.SCHEDULE):
            context = contexts.get(action.request_id) or ActionContext(uow, row, action).context
            requests.append(placement_request_of(uow, context, action, row))
        return requests

    # --- record

    def _locked(
        self, uow: UnitOfWork, requests: list[PlacementRequest]
    ) -> list[tuple[PlacementRequest, ActionContext]]:
        """Lock actions and instances of the requests. Leave out lost leases."""
        uuids = {request.action_id: request.instance_uuid for request in requests}
        owners = {request.action_id: request.owner for request in requests}
        rows = actions.still_leased(uow, uuids, owners, operations.SCHEDULE)
        locked = []
        for request in requests:
            if request.action_id not in rows:
                continue
            ctx = ActionContext(uow, *rows[request.action_id])
            if not ctx.instance.deleted and ctx.instance.task_state == ctx.step.task:
                self._start_event(uow, request, ctx.action)
                locked.append((request, ctx))
        return locked

    def _start_event(self, uow: UnitOfWork, request: PlacementRequest, action: InstanceAction) -> None:
        """Write the event of the step. It is written together with the result of the step, to save a transaction."""
        event = operations.get(action.action, action.payload).step(operations.SCHEDULE).event
        actions.start_event(uow, action, str(event), self.conf.host, request.since)

    def _claim_together(
        self, requests: list[PlacementRequest], destinations: dict[str, Destination]
    ) -> tuple[list[Placed], list[PlacementRequest]]:
        """Call `_claim` in one transaction. If it fails because of a corrupt row, claim for one group after the other.

        The leases of a group that fails then expire, so the reconciler retries it.
        """
        groups = grouped(requests)
        if len(groups) < 2:
            return self.db.write(self._claim, requests, destinations) if requests else ([], [])
        try:
            return self.db.write(self._claim, requests, destinations)
        except Exception as error:
            if not is_isolated(error):
                raise
            LOG.warning("Places are claimed for one request after the other, one of them cannot be: %r", error)
        placed: list[Placed] = []
        lost: list[PlacementRequest] = []
        for group in groups:

            def claim(group: list[PlacementRequest] = group) -> None:
                more, full = self.db.write(self._claim, group, destinations)
                placed.extend(more)
                lost.extend(full)

            self.engine.guarded(claim)
        return placed, lost

    def _claim(
        self, uow: UnitOfWork, requests: list[PlacementRequest], destinations: dict[str, Destination]
    ) -> tuple[list[Placed], list[PlacementRequest]]:
        """Claim places. Return the claimed places, and the requests whose hosts are all full by now.

        All conductors lock rows in the same order, to avoid deadlocks: instances, hosts, the hosts' nodes, networks.
        """
        handlers = self.engine.transitions.handlers
        claimed: list[tuple[str, PlacementRequest, ActionContext]] = []
        lost: list[PlacementRequest] = []
        store = builtin_networks.Store(uow, new=[request.instance_uuid for request in requests if request.is_new])
        with uow.session.no_autoflush:  # each row is updated once
            locked = self._locked(uow, requests)
            hosts = {request.instance_uuid: destinations[request.instance_uuid].selected.host for request, _ in locked}
            claims.lock_hosts(uow, list(hosts.values()))
            for request, ctx in sorted(locked, key=lambda pair: hosts[pair[0].instance_uuid]):
                if claimed and request.spec.instance_group is not None:
                    uow.session.flush()  # a member of the same group may be among the claimed
                selection = _claim_one(handlers, ctx, request, destinations[request.instance_uuid])
                if selection is None:
                    lost.append(request)
                    continue
                self._advance(ctx, selection, store)
                if ctx.action.finish_time is None:
                    claimed.append((selection.host, request, ctx))
        commands = _commands(uow, [ctx for *_, ctx in claimed])
        return [Placed(host, request, commands[request.instance_uuid]) for host, request, _ in claimed], lost

    def _advance(self, ctx: ActionContext, selection: Selection, store: builtin_networks.Store) -> None:
        """Start the next step, as the place is claimed."""
        ctx.action.payload = {**ctx.action.payload, "limits": selection.limits}
        actions.extend(ctx.uow, self.conf, ctx.action)
        self.engine.transitions.advance(ctx, keep_lease=True)
        self._connect(ctx, store)

    def _connect(self, ctx: ActionContext, store: builtin_networks.Store) -> None:
        """Allocate addresses of the built-in network service, so that the host need not ask for them.

        If that fails, the host asks, and gets the error.
        """
        network = self.engine.network
        if ctx.action.step != operations.BUILD or network.remote:
            return
        try:
            network.allocate(store, ctx.instance.uuid, requested_networks(ctx))
        except exceptions.NovaLiteException as error:
            LOG.info("Instance %s has no interfaces yet: %s", ctx.instance.uuid, error.message)
            network.deallocate(store, ctx.instance.uuid)
            return
        host = claims.locked_host(ctx.uow, str(ctx.instance.host))
        assert host is not None
        ctx.action.payload = {**ctx.action.payload, CONNECTED: host.admission}
        begun(ctx)

    def _fail(self, uow: UnitOfWork, requests: list[PlacementRequest], message: str, details: str) -> None:
        for _, ctx in self._locked(uow, requests):
            errors = ctx.action.payload.get("errors", [])
            earlier = f" (an earlier host failed: {errors[-1]})" if errors else ""
            self.engine.transitions.fail(ctx, message + earlier, details, reported=False)


def _destinations_of(placement: Placement) -> list[Destination] | exceptions.NovaLiteException:
    if placement.reason is None:
        return placement.destinations
    return exceptions.NoValidHost(placement.reason, details=placement.details)


def _claim_one(
    handlers: HandlerLookup, ctx: ActionContext, request: PlacementRequest, destination: Destination
) -> Selection | None:
    """Claim a place on the selected host, or on the first alternate with room. Return None if all are full."""
    selections = (destination.selected, *destination.alternates)
    return next((selection for selection in selections if _is_claimed(handlers, ctx, request, selection)), None)


def _is_claimed(handlers: HandlerLookup, ctx: ActionContext, request: PlacementRequest, selection: Selection) -> bool:
    """Claim a place. Return False if the host is full, or would break the policy of the server group."""
    uow, instance = ctx.uow, ctx.instance
    if request.spec.instance_group is not None and not server_groups.keeps_policy(uow, instance.uuid, selection.host):
        return False
    step, numa = ctx.step, hardware.numa_of(request.spec.flavor, request.spec.image)
    if not request.is_new:
        uow.publish(InterfacesChanged(instance.uuid))  # other hosts reach them at this place, too
    if not isinstance(step, ScheduleStep) or step.moves:
        if not claims.claim(uow, instance, selection, numa, request.spec.pci):
            return False
        place = claims.place_of(instance)
        assert place is not None
        handlers(ctx.action.action).on_claimed(uow, instance, place)
        return True
    place = claims.take(uow, instance, selection, claims.needs(request.spec.flavor), numa, request.spec.pci)
    if place is None:
        return False
    same = place.host == instance.host
    ctx.action.payload = {**ctx.action.payload, HostRole.DESTINATION.value: place.described(), "same_host": same}
    handlers(ctx.action.action).on_claimed(uow, instance, place)
    return True


def _commands(uow: UnitOfWork, contexts: list[ActionContext]) -> dict[str, HostCommand]:
    """Return the commands that follow the claims, by instance: builds, and commands of other steps."""
    builds = [ctx for ctx in contexts if ctx.action.step == operations.BUILD]
    others = [ctx for ctx in contexts if ctx.action.step != operations.BUILD]
    commands: dict[str, HostCommand] = {ctx.instance.uuid: command_of(ctx) for ctx in others}
    return commands | {build.instance.uuid: build for build in build_requests(uow, builds)}
