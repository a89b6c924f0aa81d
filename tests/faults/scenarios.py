"""What the matrix runs: the operations of `nova_lite.operations`, and stories with deadlines, dead hosts and races.

A row of one step that a user may ask for joins by itself (`_single_step`): what it needs first, what it is to become
and the points that it passes are in the row. Everything else is a `Scenario` in `_STORIES`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nova_lite import hooks, operations, states
from tests.faults import points
from tests.faults.arena import Arena, Site
from tests.faults.outages import release
from tests.faults.points import COMPUTE, CONDUCTOR, Fault, Points, around
from tests.functional import cloud

SQLITE = Site()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """``prepare`` runs without faults, ``run`` with; ``points``: daemon to the points that ``run`` surely passes.
    ``effects``: the only ones that happen there, if not all. ``rows``: the operations that it is about."""

    name: str
    prepare: Callable[[Arena], Any]
    run: Callable[[Arena], None]
    points: Points
    site: Site = SQLITE
    effects: tuple[str, ...] | None = None
    rows: tuple[str, ...] = ()


STATUS = {states.ACTIVE: "ACTIVE", states.STOPPED: "SHUTOFF", states.PAUSED: "PAUSED", states.SUSPENDED: "SUSPENDED"}

#: What the request says, where it is not null.
ARGUMENTS: dict[str, Any] = {"reboot": {"type": "HARD"}}


def nothing(arena: Arena) -> None:
    del arena


def one_active(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)


def create(count: int) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        arena.create(count)
        arena.settle("ACTIVE", count)

    return run


def ask(arena: Arena, body: dict[str, Any]) -> None:
    """409: an earlier try that was not answered has been accepted."""
    arena.insist("POST", f"/servers/{arena.one()}/action", body, (202, 409))


def act(body: dict[str, Any], status: str) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        ask(arena, body)
        arena.settle(status, 1)

    return run


# --- rows with one step


def _becomes(row: operations.Operation) -> str | None:
    """The vm state after an operation that is one order to its host and that users may ask for; None for others."""
    if row.action is None or len(row.steps) != 1 or not isinstance(row.steps[0], operations.OnHost):
        return None
    return row.steps[0].becomes


def _body(row: operations.Operation) -> dict[str, Any]:
    assert row.action is not None
    return {row.action: ARGUMENTS.get(row.action)}


def _way_to(vm_state: str, rows: Mapping[str, operations.Operation]) -> list[operations.Operation]:
    """The operations that take a server from ACTIVE to this state."""
    if vm_state == states.ACTIVE:
        return []
    for row in rows.values():
        if _becomes(row) == vm_state and row.allowed is not None and states.ACTIVE in row.allowed:
            return [row]
    raise AssertionError(f"no operation makes a server {vm_state}")


def single_steps(rows: Mapping[str, operations.Operation]) -> list[Scenario]:
    return [_single_step(kind, row, rows) for kind, row in rows.items() if _becomes(row)]


def _single_step(kind: str, row: operations.Operation, rows: Mapping[str, operations.Operation]) -> Scenario:
    """From the first state that allows it; where it changes none, the guest has to have booted."""
    became = _becomes(row)
    assert became is not None
    began = states.ACTIVE if row.allowed is None else row.allowed[0]
    way = _way_to(began, rows)

    def prepare(arena: Arena) -> None:
        one_active(arena)
        for before in way:
            act(_body(before), STATUS[_becomes(before) or ""])(arena)

    def run(arena: Arena) -> None:
        boots = arena.boots(arena.one())
        act(_body(row), STATUS[became])(arena)
        assert became != began or arena.boots(arena.one()) > boots, f"{kind} has not booted the guest"

    return Scenario(kind, prepare, run, points.of(row), rows=(kind,))


# --- evacuate, delete


def one_on_a_lost_host(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    lost = server["OS-EXT-SRV-ATTR:host"]
    arena.cloud.kill(lost)
    arena.force_down(lost, True)
    arena.cloud.fenced.add(lost)


def evacuate(arena: Arena) -> None:
    """And let the lost host in again, which has to destroy what it still has before it serves."""
    (server,) = arena.servers()
    (lost,) = arena.cloud.fenced
    arena.insist("POST", f"/servers/{server['id']}/action", {"evacuate": {"onSharedStorage": False}}, (200, 400, 409))
    arena.settle("ACTIVE", 1)
    arena.force_down(lost, False)
    arena.cloud.start(lost)
    arena.is_back(lost)
    arena.cloud.fenced.clear()


def delete(arena: Arena) -> None:
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204, 404))
    arena.gone()


def delete_while_building(arena: Arena) -> None:
    arena.create(1)
    for server in arena.servers():
        arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
    arena.gone()


#: The delete may come before or after each step of the build; only what both of them surely pass.
CREATE_AND_DELETE: Points = {
    "api": around("send/create_instances", "send/accept_action"),
    CONDUCTOR: around(
        *(f"{what}/{name}" for name in (points.ACCEPT_CREATE, points.ACCEPT) for what in ("handle", "commit"))
    ),
}

EVACUATE = points.join(points.of(operations.EVACUATE), {COMPUTE: around("domain/destroy", "send/register_host")})


# --- past the deadline: actions have ten seconds in these clouds, and what is in the way is there until they are over

SHORT = Site(deadline=10)
LATE = "was not finished within 10 s"
#: Of each of these, only what stops a step short: a pause or an outage moves the end, and not the way there.
STOPS = (hooks.KILL, hooks.ERROR, hooks.DROP, hooks.DUPLICATE)
AT_DEADLINE: Points = {CONDUCTOR: around(f"commit/{points.SWEEP}")}
UNDONE = points.of_undos(operations.CREATE)
FENCE = f"send/{next(undo.method for undo in operations.CREATE.undos('build') if isinstance(undo, operations.OnHost))}"


REVIVED: Points = {
    CONDUCTOR: around(f"commit/{points.SWEEP}", FENCE, f"commit/{points.REVIVED}"),
    COMPUTE: around(f"handle/{FENCE.removeprefix('send/')}"),
}
REPORTED: Points = {
    CONDUCTOR: around(f"commit/{points.SWEEP}", "handle/finish_build", f"commit/{points.FINISH_BUILD}"),
    COMPUTE: ["send/finish_build/after"],
}
DONE_LATE: Points = {**AT_DEADLINE, COMPUTE: around("send/finish_action")}
DELETED_LATE = points.join(AT_DEADLINE, {COMPUTE: around("domain/destroy", "send/finish_action")})


def past_deadline(arena: Arena, status: str) -> None:
    """It ends with this status, and says why."""
    arena.settle(status, 1)
    answer = arena.cloud.show(arena.one())
    assert answer is not None
    if status == "ERROR":
        assert LATE in answer["fault"]["message"], answer["fault"]


def create_without_scheduler(arena: Arena) -> None:
    """Nothing was claimed, and the fault says what there was to wait for."""
    past_deadline(arena, "ERROR")
    arena.bring_back("scheduler")


def no_scheduler(arena: Arena) -> None:
    arena.leave_dead("scheduler")
    arena.create()
    time.sleep(SHORT.deadline - 3)


def slow_build(arena: Arena) -> None:
    """Its host is at it for longer than it may take, and at nothing that exists."""
    arena.control_hosts(delays={"image": SHORT.deadline + 10.0})
    arena.create()


def ordered_and_dead(arena: Arena) -> None:
    arena.dies_at("handle/build_and_run_instance/before")
    arena.create()
    arena.dead()


def compensated(arena: Arena) -> None:
    """The host, back if it was dead, gives up the build and says so; only then the claim is given back."""
    past_deadline(arena, "ERROR")
    if arena.away:
        arena.bring_back(arena.dead())
    arena.nothing_open()
    arena.control_hosts()
    (server,) = arena.servers()
    assert server["OS-EXT-SRV-ATTR:host"] is None, server


def report_held(arena: Arena) -> None:
    """The guest runs; its host comes to say so only when it is let."""
    (arena.held["report"],) = arena.arm((Fault(COMPUTE, "send/finish_build/before", hooks.HOLD),))
    arena.create()
    cloud.wait_for("the host has built it", arena.held["report"].exists)


def revived(arena: Arena) -> None:
    """It shows as failed (for an instant) until its host is asked, which has it after all."""
    arena.settle("ACTIVE", 1)
    release(arena.held["report"])


def both_held(arena: Arena) -> None:
    """And the question to the host is held, too."""
    (arena.held["fence"],) = arena.arm((Fault(CONDUCTOR, f"{FENCE}/before", hooks.HOLD),))
    report_held(arena)


def reported_late(arena: Arena) -> None:
    """The report comes after the deadline, and before the host could be asked."""
    past_deadline(arena, "ERROR")
    cloud.wait_for("the host is to be asked", arena.held["fence"].exists)
    release(arena.held["report"])
    arena.settle("ACTIVE", 1)
    release(arena.held["fence"])


def stop_and_die(arena: Arena) -> None:
    one_active(arena)
    arena.dies_at("handle/stop_instance/before")
    ask(arena, {"os-stop": None})
    arena.dead()


def not_stopped(arena: Arena) -> None:
    """It goes on running, and is no more in a task."""
    past_deadline(arena, "ACTIVE")
    arena.bring_back(arena.dead())
    arena.settle("ACTIVE", 1)


def slow_stop(arena: Arena) -> None:
    one_active(arena)
    arena.control_hosts(power_delay=SHORT.deadline + 4.0)
    ask(arena, {"os-stop": None})


def stopped_late(arena: Arena) -> None:
    """It was given up as ACTIVE; when its guest goes off after all, its state follows."""
    past_deadline(arena, "ACTIVE")
    arena.settle("SHUTOFF", 1)
    arena.control_hosts()


def failing_delete(arena: Arena) -> None:
    one_active(arena)
    arena.control_hosts(fail_at=["destroy"])
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204,))


def deleted_late(arena: Arena) -> None:
    """It shows as failed, and goes on until it has worked."""

    def shown() -> bool:
        (server,) = arena.servers()
        return bool(server["status"] == "ERROR" and server["OS-EXT-STS:task_state"] == states.DELETING)

    cloud.wait_for("the delete is past its deadline", shown, 3 * SHORT.deadline)
    arena.control_hosts()
    arena.gone()


# --- deletes while the host is away


def one_on_a_host_that_is_down(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    host = server["OS-EXT-SRV-ATTR:host"]
    arena.leave_dead(host)
    cloud.wait_for(f"{host} counts as down", lambda: arena.is_state(host, "down"))


def one_on_a_dead_host(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    arena.leave_dead(server["OS-EXT-SRV-ATTR:host"])


def delete_and_clean_up(arena: Arena) -> None:
    """Gone for its owner at once, or when its host counts as down; the claim is held until the host is back."""
    (host,) = arena.away
    delete(arena)
    assert list(arena.cloud.domains().values()) == [host]
    arena.bring_back(host)
    arena.is_back(host)
    arena.nothing_open()


CLEANUP = {daemon: names for daemon, names in points.of(operations.DELETE).items() if daemon != "api"}


# --- races: what has to come in an order is held until the other is seen, so no speed of the machine changes it


def standing_still(arena: Arena) -> None:
    """A host stands still right before its domain comes to exist, for longer than the lease; meanwhile there is another
    one to go to."""
    arena.control_hosts(destroy_delay=1.0)
    arena.enable("compute-2", False)
    (stands,) = arena.arm((Fault("compute-1", "fence/before", hooks.PAUSE),))
    arena.create()
    cloud.wait_for("the host stands still", stands.exists)
    arena.enable("compute-2", True)
    arena.settle("ACTIVE", 1)
    arena.outlast(hooks.PAUSE, stands)
    arena.settle("ACTIVE", 1)
    arena.control_hosts()


def ordered_again(arena: Arena) -> None:
    """A build fails. Before the conductor takes in the report, the host's daemon is killed; back again, it gets the
    same order once more. Whatever it is at then, the build moves; only then it goes on."""
    arena.enable("compute-2", False)
    arena.control_hosts(destroy_delay=1.0, fail_at=["image"])
    (report,) = arena.arm((Fault(CONDUCTOR, "handle/finish_build/before", hooks.HOLD),))
    arena.create()
    cloud.wait_for("the failure is reported", report.exists)
    arena.control_hosts(destroy_delay=1.0)
    arena.enable("compute-2", True)
    (again,) = arena.arm((Fault("compute-1", "send/start_build/after", hooks.HOLD),))
    arena.leave_dead("compute-1")
    arena.bring_back("compute-1")
    cloud.wait_for("it builds again, or refuses", lambda: again.exists() or arena.servers()[0]["status"] == "ACTIVE")
    release(report)
    arena.settle("ACTIVE", 1)
    release(again)
    time.sleep(1.0)
    arena.control_hosts()


def last_place(arena: Arena) -> None:
    """Two requests for one place: the first is held between the choice of its host and its claim, until the other is
    there. What the host is ordered to build then is held as long as it is of interest."""

    def states_seen() -> set[str]:
        return {server["status"] for server in arena.servers()}

    (late,) = arena.arm((Fault(CONDUCTOR, f"send/{points.SELECT}/after", hooks.HOLD),))
    arena.create()
    cloud.wait_for("a host is chosen", late.exists)
    arena.create()
    cloud.wait_for("the place is taken", arena.cloud.domains)
    (order,) = arena.arm((Fault("compute-1", "handle/build_and_run_instance/before", hooks.HOLD),))
    release(late)
    ids = [server["id"] for server in arena.servers()]
    cloud.wait_for("the claim is refused, or seen", lambda: arena.violated or len(states_seen() - {"BUILD"}) == 2)
    release(order)
    found = arena.cloud.wait_settled(ids)
    assert sorted(server["status"] for server in found.values()) == ["ACTIVE", "ERROR"]


ONE_PLACE = Site(computes=1, places=1)


def no_room(arena: Arena) -> None:
    arena.create(flavor="9")
    arena.settle("ERROR", 1)


NO_ROOM: Points = {CONDUCTOR: [f"send/{points.SELECT}/before", *around(f"commit/{points.NO_HOST}")]}


# --- networks of another service

NETWORKED = Site(network_service=True)
MADE: Points = {CONDUCTOR: around("network/resolve", f"commit/{points.ASK}", "network/allocate")}
GIVEN_BACK: Points = {CONDUCTOR: around(f"commit/{points.TELL}", "network/deallocate", f"commit/{points.TOLD}")}
REFUSED: Points = {CONDUCTOR: around(f"commit/{points.TELL_AGAIN}", f"commit/{points.TOLD}")}
TAKEN_BACK: Points = {CONDUCTOR: around("network/deallocate", f"commit/{points.TAKEN_BACK}")}


def create_with_service(arena: Arena) -> None:
    create(1)(arena)
    assert arena.at_network_service() == {arena.one()}


def delete_with_service(arena: Arena) -> None:
    """The service is told after the owner, and until it has done it."""
    delete(arena)
    arena.nothing_open()
    assert not arena.at_network_service()


def one_that_will_be_refused(arena: Arena) -> None:
    one_active(arena)
    arena.arm((Fault(CONDUCTOR, "network/deallocate/before", hooks.ERROR),))


def delete_while_asked(arena: Arena) -> None:
    """The server was deleted while its interfaces were made: nobody wants them any more."""
    release(arena.held["network"])
    arena.gone()
    arena.nothing_open()


def asked_for_interfaces(arena: Arena) -> None:
    (arena.held["network"],) = arena.arm((Fault(CONDUCTOR, "network/allocate/after", hooks.HOLD),))
    arena.create()
    cloud.wait_for("the service is asked", arena.held["network"].exists)
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204,))


# --- all


def _stories() -> Iterator[Scenario]:
    yield Scenario("create 1", nothing, create(1), points.of(operations.CREATE), rows=("create",))
    yield Scenario("create 20", nothing, create(20), points.of(operations.CREATE))
    yield Scenario("create without room", nothing, no_room, NO_ROOM)
    yield Scenario("delete", one_active, delete, points.of(operations.DELETE), rows=("delete",))
    yield Scenario("delete while building", nothing, delete_while_building, CREATE_AND_DELETE)
    yield Scenario("evacuate", one_on_a_lost_host, evacuate, EVACUATE, rows=("evacuate",))
    yield Scenario(
        "create past deadline, unscheduled", no_scheduler, create_without_scheduler, AT_DEADLINE, SHORT, STOPS
    )
    yield Scenario("create past deadline, given up", slow_build, compensated, UNDONE, SHORT, STOPS)
    yield Scenario("create past deadline, host away", ordered_and_dead, compensated, UNDONE, SHORT, STOPS)
    yield Scenario("create past deadline, revived", report_held, revived, REVIVED, SHORT, STOPS)
    yield Scenario("create past deadline, reported", both_held, reported_late, REPORTED, SHORT, STOPS)
    yield Scenario("stop past deadline, not done", stop_and_die, not_stopped, AT_DEADLINE, SHORT, STOPS)
    yield Scenario("stop past deadline, done late", slow_stop, stopped_late, DONE_LATE, SHORT, STOPS)
    yield Scenario("delete past deadline", failing_delete, deleted_late, DELETED_LATE, SHORT, STOPS)
    yield Scenario("delete, host is down", one_on_a_host_that_is_down, delete_and_clean_up, CLEANUP, effects=STOPS)
    yield Scenario("delete, host has died", one_on_a_dead_host, delete_and_clean_up, CLEANUP, effects=STOPS)
    yield Scenario("create, network service", nothing, create_with_service, MADE, NETWORKED)
    yield Scenario("delete, network service", one_active, delete_with_service, GIVEN_BACK, NETWORKED)
    yield Scenario("delete, network refused", one_that_will_be_refused, delete_with_service, REFUSED, NETWORKED, STOPS)
    yield Scenario("delete while networked", asked_for_interfaces, delete_while_asked, TAKEN_BACK, NETWORKED, STOPS)
    yield Scenario("create, host stands still", nothing, standing_still, {})
    yield Scenario("create, ordered again", nothing, ordered_again, {})
    yield Scenario("create 2, one place", nothing, last_place, {}, ONE_PLACE)


#: Two conductors and two schedulers, on MariaDB. What the others do while one is held up is what is of interest.
TWO = Site(own_database=True, more=("conductor-2", "scheduler-2"))


def _with_two(scenario: Scenario) -> Scenario:
    only = {CONDUCTOR: [point for point in scenario.points[CONDUCTOR] if not point.startswith("handle/")]}
    effects = (hooks.KILL, hooks.PAUSE, hooks.DUPLICATE)
    return dataclasses.replace(
        scenario, name=f"{scenario.name}, two conductors", points=only, site=TWO, effects=effects, rows=()
    )


def _all() -> list[Scenario]:
    found = [*_stories(), *single_steps(operations.OPERATIONS)]
    doubled = ("create 20", "delete", "stop", "evacuate", "delete while building")
    return found + [_with_two(scenario) for scenario in found if scenario.name in doubled]


SCENARIOS = _all()
