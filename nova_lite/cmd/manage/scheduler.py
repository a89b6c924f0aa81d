"""``scheduler``: explains why a server is on its host or on none, and whether a new one would fit.

Nothing is booted.
"""

from __future__ import annotations

import argparse
import random
import uuid

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions, randomness
from nova_lite.base.context import RequestContext
from nova_lite.cmd.manage import accounts, moves
from nova_lite.cmd.manage.app import App, Commands, at_least, key_value
from nova_lite.conductor.engine.placement_request import request_spec
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.image import images
from nova_lite.db.servers import action_log, flavors, instances, server_groups
from nova_lite.hardware import numa_of, pci
from nova_lite.objects import (
    BalancePlan,
    Flavor,
    HostState,
    Image,
    InstanceAction,
    InstanceGroup,
    RequestedDestination,
    RequestSpec,
)
from nova_lite.objects.balance import RESOURCES
from nova_lite.scheduler import advice, core, filters, plans, weights

#: Hosts that are checked for the advice of a refusal, with freed servers: some seconds.
ADVICE_CHECKS = 1_000_000


def register(commands: Commands) -> None:
    noun = commands.noun("scheduler", "Explain the scheduler's decisions.")
    explain_ = commands.verb(
        noun,
        "explain",
        "Show where a server would be placed now, or why no host fits and what would help. Nothing is booted.",
        explain,
    )
    explain_.add_argument("server", nargs="?", metavar="SERVER", help="uuid of a server; its fault is shown as well")
    explain_.add_argument("--flavor", metavar="ID", help="explain a hypothetical server with this flavor instead")
    explain_.add_argument("--image", metavar="ID")
    explain_.add_argument("--az", metavar="ZONE")
    explain_.add_argument("--host", help="request this host; it still has to pass the filters")
    explain_.add_argument("--node", help="request this hypervisor")
    explain_.add_argument("--hint", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    explain_.add_argument("--project", default="", help="id or name of the hypothetical server's project")
    explain_.add_argument("--count", type=at_least(1), default=1)


def explain(app: App, args: argparse.Namespace) -> int:
    if (args.server is None) == (args.flavor is None):
        raise exceptions.InvalidInput(reason="name either a server, or a flavor with --flavor.")
    if args.server is None:
        args.project = args.project and accounts.project_id(app, args.project)
        states, spec = app.db.read(_imagined, app, args)
    else:
        states, spec, server = app.db.read(_of_server, app, args.server)
        host = server[2]
        now = None if host is None else _rank(app, states, spec, host)
        app.show(("Server", "State", "Host", "Fault", "Details", "Placed By", "Now"), [(*server, now)])
        if host is not None:
            return 0
    return _decide(app, states, spec)


def decider(app: App) -> tuple[list[filters.HostFilter], list[weights.HostWeigher], core.Options]:
    """Return filters, weighers and options by the same configuration as the scheduler daemon."""
    options = core.Options(app.conf.scheduler.host_subset_size, app.conf.scheduler.max_alternates)
    return filters.load(app.conf), weights.load(app.conf), options


def _decide(app: App, states: list[HostState], spec: RequestSpec) -> int:
    try:
        places = core.select_destinations(states, spec, *decider(app), random.Random())
    except exceptions.NoValidHost as error:
        filters_, weighers, _ = decider(app)
        freeable = app.db.read(_freeable)
        search = advice.Search(states, spec, filters_, weighers, randomness.Source(), ADVICE_CHECKS, freeable)
        error = advice.advised(error, search)
        lines = [error.message, *str(error.kwargs["details"]).splitlines()]
        app.show(("Fits", "Why"), [(False, line) for line in lines])
        return 1
    app.show(
        ("Fits", "Host", "Node", "Alternates"),
        [
            (True, place.selected.host, place.selected.node, [alternate.host for alternate in place.alternates])
            for place in places
        ],
    )
    return 0


def _rank(app: App, states: list[HostState], spec: RequestSpec, name: str) -> str | None:
    """Return how the scheduler would judge a server's host if the server was to be placed now.

    None for a server with NUMA cells or devices, whose use of its host cannot be left out.
    """
    if spec.pci or numa_of(spec.flavor, spec.image) is not None:
        return None
    states = [core.without(state, spec) if state.host == name else state for state in states]
    free = plans.free(spec)
    if free.instance_group is not None and name in free.instance_group.hosts:
        others = list(free.instance_group.hosts)
        others.remove(name)
        free = msgspec.structs.replace(free, instance_group=msgspec.structs.replace(free.instance_group, hosts=others))
    try:
        ranking(app, [state for state in states if state.host == name], free)
    except exceptions.NoValidHost as error:
        return f"the host would not be chosen: {error.message}"
    fitting = ranking(app, states, free)
    return f"number {fitting.index(name) + 1} of {len(fitting)} hosts that fit"


def ranking(app: App, states: list[HostState], spec: RequestSpec) -> list[str]:
    """Return the hosts that fit the server of ``spec``, the best one first. Raises `NoValidHost`."""
    filters_, weighers, _ = decider(app)
    options = core.Options(max_alternates=len(states))
    (place,) = core.select_destinations(states, spec, filters_, weighers, options, randomness.Source())
    return [place.selected.host, *(other.host for other in place.alternates)]


def _freeable(uow: UnitOfWork) -> list[RequestSpec]:
    """Return what the servers that may move take of their hosts."""
    return [
        RequestSpec(
            instance_uuids=[row.uuid],
            project_id=row.project_id,
            user_id=row.user_id,
            flavor=msgspec.convert(row.flavor, Flavor),
            image=None if row.image is None else msgspec.convert(row.image, Image),
        )
        for row in instances.movable(uow)
    ]


def _imagined(uow: UnitOfWork, app: App, args: argparse.Namespace) -> tuple[list[HostState], RequestSpec]:
    hints: dict[str, list[str] | str] = {}
    for key, value in args.hint:
        earlier = hints.get(key)
        hints[key] = value if earlier is None else [*([earlier] if isinstance(earlier, str) else earlier), value]
    flavor = flavors.get(uow, app.context, args.flavor)
    image = None if args.image is None else images.get(uow, app.context, args.image)
    spec = RequestSpec(
        instance_uuids=[str(uuid.uuid4()) for _ in range(args.count)],
        project_id=args.project,
        user_id="",
        flavor=flavor,
        image=image,
        pci=pci.requests(uow.conf, flavor, image),
        availability_zone=args.az,
        requested_destination=_destination(args),
        instance_group=_group(uow, app.context, hints.get("group")),
        scheduler_hints=hints,
    )
    return hosts.states(uow), spec


def _destination(args: argparse.Namespace) -> RequestedDestination | None:
    if args.host is None and args.node is None:
        return None
    return RequestedDestination(host=args.host, node=args.node)


def _group(uow: UnitOfWork, context: RequestContext, hint: list[str] | str | None) -> InstanceGroup | None:
    if not hint:
        return None
    return server_groups.as_asked(uow, context, hint if isinstance(hint, str) else hint[0])


def _of_server(uow: UnitOfWork, app: App, server: str) -> tuple[list[HostState], RequestSpec, tuple[str | None, ...]]:
    """Return the hosts, the request spec of the server, and its uuid, state, host, fault and what placed it."""
    row = instances.get_row(uow, app.context, server, deleted=True)
    fault = row.fault or {}
    log = action_log.list_(uow, app.context, server)
    message = fault.get("message") or next((action.message for action in log), None)
    placed_by = next((action for action in log if action.message is None and _places(action)), None)
    by = (
        None
        if placed_by is None
        else f"{placed_by.action} {placed_by.request_id} of {placed_by.start_time:%Y-%m-%d %H:%M}"
    )
    shown = (row.uuid, row.vm_state, row.host, message, fault.get("details"), by)
    return hosts.states(uow), request_spec(uow, row, []), shown


def _places(action: InstanceAction) -> bool:
    """Check whether the action chose the host of its server and has ended."""
    definition = operations.OPERATIONS.get(action.action)
    return action.finish_time is not None and definition is not None and definition.has_choice


def drain(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host drain``. Return 1 if a server stays, or (``--dry-run``) no host fits it."""
    return empty(app, args)


def empty(app: App, args: argparse.Namespace, reason: str = "") -> int:
    """Disable ``args.host`` with this reason, and move all its servers to others. Return the exit status."""

    def read(uow: UnitOfWork) -> tuple[list[HostState], list[RequestSpec], dict[str, str]]:
        states = hosts.states(uow)
        source = [state for state in states if state.host == args.host]
        if not source:
            raise exceptions.HostNotFound(host=args.host)
        if not (source[0].up or args.dry_run):
            raise exceptions.InvalidInput(reason=f"host {args.host} is down: its servers can only be evacuated.")
        placed = [uuid for state in source for uuid in state.instances]
        rows_by_uuid = instances.rows_by_uuid(uow, placed)
        rows = sorted((row for row in rows_by_uuid.values() if not row.deleted), key=lambda row: row.id)
        specs = [request_spec(uow, row, [args.host], is_live=_is_live(args, row.vm_state)) for row in rows]
        for spec in specs:
            spec.current_zone = source[0].availability_zone
        return states, specs, {row.uuid: row.display_name for row in rows}

    if not args.dry_run:
        app.db.read(read)  # raises its errors before the host is disabled
        moves.disable(app, args.host, reason)
    states, specs, names = app.db.read(read)
    planned = plans.drain(args.host, states, specs, *decider(app), random.Random(), may_stop=args.way is None)
    if not args.dry_run:
        found = [
            moves.Move(
                move.instance_uuid,
                names[move.instance_uuid],
                args.host,
                move.target,
                move.reason,
                moves.COLD if move.is_off else None,
            )
            for move in planned
        ]
        return moves.carry_out(app, args, found)
    app.show(
        ("Server", "Name", "To", "Why Not"),
        [(move.instance_uuid, names[move.instance_uuid], move.target, move.reason) for move in planned],
    )
    return 0 if all(move.target is not None for move in planned) else 1


def rebalance(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host rebalance`` among the hosts that are up and enabled.

    With ``--dry-run``, show the steps and the spread of use. If there is nothing to move, show one line without a
    server.
    """

    def read(uow: UnitOfWork) -> tuple[list[HostState], list[RequestSpec], dict[str, str]]:
        chosen = [state for state in hosts.states(uow) if _takes_part(state, args)]
        placed = {uuid for state in chosen for uuid in state.instances}
        rows = [row for row in instances.movable(uow) if row.uuid in placed]
        specs = [request_spec(uow, row, [], is_live=_is_live(args, row.vm_state)) for row in rows]
        return chosen, specs, {row.uuid: row.display_name for row in rows}

    chosen, specs, names = app.db.read(read)
    filters_, weighers, _ = decider(app)
    steps = plans.rebalance(chosen, specs, filters_, weighers, random.Random(), args.max_moves)
    if not args.dry_run:
        planned = [
            moves.Move(step.instance_uuid, names[step.instance_uuid], step.source, step.target) for step in steps
        ]
        return moves.carry_out(app, args, planned)
    rows: list[tuple[str | float | None, ...]] = [
        (
            step.instance_uuid,
            names[step.instance_uuid],
            step.source,
            step.target,
            round(step.spread_before, 4),
            round(step.spread_after, 4),
        )
        for step in steps
    ]
    spread = round(plans.spread(chosen), 4)
    app.show(
        ("Server", "Name", "From", "To", "Spread Before", "Spread After"),
        rows or [(None, None, None, None, spread, spread)],
    )
    return 0


def _is_live(args: argparse.Namespace, vm_state: str) -> bool:
    """Check whether a move of a server in this state is live, so that its guest has to continue on the target."""
    return args.way != moves.COLD and moves.may_move_live(vm_state)


def _takes_part(state: HostState, args: argparse.Namespace) -> bool:
    return (
        state.up
        and not state.disabled
        and args.az in (None, state.availability_zone)
        and (args.aggregate is None or any(aggregate.name == args.aggregate for aggregate in state.aggregates))
    )


def balance(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host balance``, by a conductor. Return 1 if a move was to begin and did not."""
    plan = app.servers.conductor.balance_hosts(app.context, args.run_once)
    if args.explain:
        app.show(
            ("Server", "Name", "Host", "Verdict"),
            [(item.instance_uuid, item.name, item.host, item.verdict) for item in plan.verdicts],
        )
        if app.output != "json":
            _show_pressure(app, plan)
        return 0
    app.show(
        ("Server", "Name", "From", "To", "Gain", "Seconds", "Begun", "Why"),
        [
            (
                move.instance_uuid,
                move.name,
                move.source,
                move.target,
                move.gain,
                move.seconds,
                move.begun,
                move.reason,
            )
            for move in plan.moves
        ],
    )
    if plan.limit:
        app.say(f"Hosts remain under pressure: {plan.limit}.")
    return int(args.run_once and not all(move.begun for move in plan.moves))


def _show_pressure(app: App, plan: BalancePlan) -> None:
    app.show(
        ("Host", *(f"{name} %" for name in RESOURCES.values()), "Status"),
        [(item.host, *(item.pressure.get(name) for name in RESOURCES), item.status) for item in plan.hosts],
    )
