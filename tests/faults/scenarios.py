"""Scenarios of the matrix: the operations of `nova_lite.operations`, and stories with deadlines, dead hosts and
races.

A definition of one step that users may request joins automatically (`_single_step`): it has the required state, the
result and the points. Everything else is a `Scenario` in `_STORIES`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nova_lite import operations
from nova_lite.base import failpoints
from nova_lite.conductor.hosts import domains
from nova_lite.operations import states
from tests.faults import (
    automatic,
    balancers,
    clones,
    guest_keys,
    images,
    outside,
    pinned,
    points,
    services,
    shared_volumes,
    shares,
    sizes,
    snapshot_points,
    volumes,
)
from tests.faults.arena import SETTLE_SECONDS, Arena, Site
from tests.faults.outages import release
from tests.faults.outside import network
from tests.faults.points import API, COMPUTE, CONDUCTOR, Fault, Points, around
from tests.support.waiting import polls, wait_for

SQLITE = Site()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A scenario. ``prepare`` runs without faults, ``run`` with them. ``points``: by daemon, the points that ``run``
    surely passes. ``effects``: the only possible effects, if not all. ``long``: it is not in the sample. ``rows``: the
    operations that it covers.
    """

    name: str
    prepare: Callable[[Arena], Any]
    run: Callable[[Arena], None]
    points: Points
    site: Site = SQLITE
    effects: tuple[str, ...] | None = None
    long: bool = False
    rows: tuple[str, ...] = ()


STATUS = {
    states.ACTIVE: "ACTIVE",
    states.STOPPED: "SHUTOFF",
    states.PAUSED: "PAUSED",
    states.SUSPENDED: "SUSPENDED",
    states.RESCUED: "RESCUE",
}

#: Arguments of requests whose body is not null.
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


def ask(arena: Arena, body: dict[str, Any], version: str | None = None) -> None:
    """Request an action. 409: an earlier, unanswered try was accepted."""
    arena.insist("POST", f"/servers/{arena.one()}/action", body, (200, 202, 204, 409), version)


def act(body: dict[str, Any], status: str) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        ask(arena, body)
        arena.settle(status, 1)

    return run


# --- rows with one step


def _becomes(row: operations.Operation) -> str | None:
    """Return the vm state after an operation of one command that users may request; None for others."""
    if row.action is None or len(row.steps) != 1 or not isinstance(row.steps[0], operations.HostStep):
        return None
    return row.steps[0].becomes


def _body(row: operations.Operation) -> dict[str, Any]:
    assert row.action is not None
    return {row.action: ARGUMENTS.get(row.action)}


def _way_to(vm_state: str, rows: Mapping[str, operations.Operation]) -> list[operations.Operation]:
    """Return the operations that take a server from ACTIVE to this state."""
    if vm_state == states.ACTIVE:
        return []
    for row in rows.values():
        if _becomes(row) == vm_state and row.allowed is not None and states.ACTIVE in row.allowed:
            return [row]
    raise AssertionError(f"no operation makes a server {vm_state}")


def single_steps(rows: Mapping[str, operations.Operation]) -> list[Scenario]:
    """Return scenarios of the operations whose starting state other operations reach."""
    reached = {states.ACTIVE, *(_becomes(row) for row in rows.values())}
    found = [(kind, row) for kind, row in rows.items() if _becomes(row)]
    return [_single_step(kind, row, rows) for kind, row in found if row.allowed is None or row.allowed[0] in reached]


def _single_step(kind: str, row: operations.Operation, rows: Mapping[str, operations.Operation]) -> Scenario:
    """Build a scenario from the first allowed state. If the state does not change, the guest must have booted."""
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


# --- a domain that vanished


def vanished(arena: Arena) -> None:
    """Lose a domain: its host notices automatically, and a hard reboot recreates it."""
    (server,) = arena.servers()
    arena.lose_domain(server)
    arena.settle("ERROR", 1)
    (server,) = arena.servers()
    assert server["fault"]["message"] == domains.LOST
    assert server["OS-EXT-SRV-ATTR:host"] is not None
    act({"reboot": {"type": "HARD"}}, "ACTIVE")(arena)


VANISHED: Points = {
    COMPUTE: around("send/domains_expected", f"send/{points.DOMAIN_LOST}"),
    CONDUCTOR: around("handle/domains_expected", f"handle/{points.DOMAIN_LOST}", f"commit/{points.DOMAIN_LOST}"),
}


# --- a protected guest that crashes


def one_protected(arena: Arena) -> None:
    arena.create(1, metadata={"ha:restart": "always"})
    arena.settle("ACTIVE", 1)


def crashed(arena: Arena) -> None:
    """Let the guest crash: it is started again, once."""
    (server,) = arena.servers()
    boots = arena.boots(server["id"])
    arena.crash(server)
    wait_for("the guest runs again", lambda: arena.boots(server["id"]) > boots, SETTLE_SECONDS)
    arena.settle("ACTIVE", 1)
    assert arena.boots(server["id"]) == boots + 1, "it was started more than once"


CRASHED: Points = points.join(
    points.of_restart(operations.START),
    {COMPUTE: around("send/reconcile_domains"), CONDUCTOR: around("handle/reconcile_domains")},
)


# --- evacuate, delete


def one_on_a_lost_host(arena: Arena) -> None:
    one_active(arena)
    lose_its_host(arena)


def with_volume_on_a_lost_host(arena: Arena) -> None:
    services.with_volume(arena)
    lose_its_host(arena)


def lose_its_host(arena: Arena) -> None:
    (server,) = arena.servers()
    lost = server["OS-EXT-SRV-ATTR:host"]
    arena.cloud.kill(lost)
    arena.force_down(lost, True)
    arena.cloud.fenced.add(lost)


def evacuate(arena: Arena) -> None:
    """Evacuate, and admit the lost host again, which has to destroy its leftovers before it serves."""
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
        *(f"handle/{method}" for method in (points.ACCEPT_CREATE, points.REQUEST)),
        *(f"commit/{transaction}" for transaction in (points.ACCEPT_CREATE, points.ACCEPT)),
    ),
}


def rebuild(arena: Arena) -> None:
    """Rebuild: a new generation on the same host with the same address."""
    (before,) = arena.servers()
    generation = arena.generation(before["id"])
    act({"rebuild": {"imageRef": arena.cloud.image_id}}, "ACTIVE")(arena)
    (after,) = arena.servers()
    kept = ("OS-EXT-SRV-ATTR:host", "addresses")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert arena.generation(before["id"]) > generation, "it was not built again"


def failing_rebuild(arena: Arena) -> None:
    """Fail a rebuild: the server is in ERROR on its host without a guest, and can be rebuilt."""
    arena.control_hosts(fail_at=["image"])
    act({"rebuild": {"imageRef": arena.cloud.image_id}}, "ERROR")(arena)
    arena.nothing_open()
    arena.control_hosts()
    (server,) = arena.servers()
    assert server["OS-EXT-SRV-ATTR:host"] is not None and not arena.cloud.domains()
    act({"rebuild": {"imageRef": arena.cloud.image_id}}, "ACTIVE")(arena)


def one_with_agent(arena: Arena) -> None:
    """Create a server whose image declares a guest agent."""
    metadata = {"metadata": {"hw_qemu_guest_agent": "yes"}}
    arena.insist("POST", f"/images/{arena.cloud.image_id}/metadata", metadata, (200,))
    one_active(arena)


def says(body: dict[str, Any], line: str, version: str | None = None) -> Callable[[Arena], None]:
    """Return a scenario whose request ends with an unchanged server and this line on its console."""

    def run(arena: Arena) -> None:
        ask(arena, body, version)
        arena.nothing_open()
        arena.settle("ACTIVE", 1)
        assert line in arena.console(arena.one())

    return run


change_password = says({"changePassword": {"adminPass": "s3cret"}}, "a password of 6 characters for root")
crash_dump = says({"trigger_crash_dump": None}, "has written a crash dump", "2.17")


def ports(arena: Arena) -> list[dict[str, Any]]:
    """Return the interfaces that the API shows."""
    answer = arena.send("GET", f"/servers/{arena.one()}/os-interface")
    return answer.json()["interfaceAttachments"] if answer is not None and answer.status_code == 200 else []


def has_interfaces(arena: Arena, count: int) -> None:
    """Check that database, guest and host have the same number of interfaces, and that no other address was given
    out.
    """
    arena.nothing_open()
    arena.settle("ACTIVE", 1)
    found = {port["port_id"] for port in wait_for("interfaces are listed", lambda: ports(arena))}
    assert len(found) == count
    assert arena.interfaces(arena.one()) == (found, found)


def attach(arena: Arena) -> None:
    """Attach an interface. 409: an earlier, unanswered try is running. A lost request is not repeated blindly,
    because each accepted one adds an interface.
    """
    before = len(ports(arena))
    arena.insist_until(
        lambda: arena.send("POST", f"/servers/{arena.one()}/os-interface", {"interfaceAttachment": {}}),
        lambda: len(ports(arena)) > before,
    )
    has_interfaces(arena, before + 1)


def detach(arena: Arena) -> None:
    last = sorted(port["port_id"] for port in ports(arena))[-1]
    arena.insist("DELETE", f"/servers/{arena.one()}/os-interface/{last}", None, (202, 404, 409))
    has_interfaces(arena, 1)


def attach_and_detach(arena: Arena) -> None:
    """Attach and detach interfaces. In the end each server has one, as all judges expect."""
    attach(arena)
    detach(arena)


def one_with_two_interfaces(arena: Arena) -> None:
    one_active(arena)
    attach(arena)


def failing_to(step: str, prepare: Callable[[Arena], None]) -> Callable[[Arena], None]:
    """Return a preparation that makes each host do a step and report a failure."""

    def run(arena: Arena) -> None:
        prepare(arena)
        arena.control_hosts(fail_at=[step], fail_count=1)

    return run


def not_attached(arena: Arena) -> None:
    """Fail an attach: the host reports a failure and has to remove the interface."""
    arena.insist("POST", f"/servers/{arena.one()}/os-interface", {"interfaceAttachment": {}}, (200, 409))
    has_interfaces(arena, 1)
    arena.control_hosts()


def not_detached(arena: Arena) -> None:
    """Fail a detach: the host reports a failure and has to restore the interface."""
    last = sorted(port["port_id"] for port in ports(arena))[-1]
    arena.insist("DELETE", f"/servers/{arena.one()}/os-interface/{last}", None, (202, 409))
    has_interfaces(arena, 2)
    arena.control_hosts()
    detach(arena)


def _interfaces() -> Iterator[Scenario]:
    for row, prepare, run in (
        (operations.ATTACH_INTERFACE, one_active, attach_and_detach),
        (operations.DETACH_INTERFACE, one_with_two_interfaces, detach),
    ):
        yield Scenario(row.kind, prepare, run, points.of(row), rows=(row.kind,))
    for row, step, prepare, run in (
        (operations.ATTACH_INTERFACE, "attach_interface_after", one_active, not_attached),
        (operations.DETACH_INTERFACE, "detach_interface_after", one_with_two_interfaces, not_detached),
    ):
        undone = around(f"handle/{row.steps[0].undo[0].method}")  # type: ignore[attr-defined]
        yield Scenario(f"{row.kind}, it fails", failing_to(step, prepare), run, {COMPUTE: undone}, effects=STOPS)


def ports_of_users(arena: Arena) -> list[dict[str, Any]]:
    def listed() -> list[list[dict[str, Any]]]:
        answer = network(arena, "GET", "/ports?name=mine")
        return [answer.json()["ports"]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = wait_for("ports are listed", listed)[0]
    return found


def one_port(arena: Arena) -> None:
    answer = network(arena, "GET", "/networks?name=private")
    assert answer is not None and answer.status_code == 200, answer
    body = {"port": {"name": "mine", "network_id": answer.json()["networks"][0]["id"]}}
    arena.insist_until(lambda: network(arena, "POST", "/ports", body), lambda: bool(ports_of_users(arena)))


def given_and_free_again(arena: Arena) -> None:
    """Attach a floating address: the server has it with its previous address. After the server no server has it."""
    (port,) = ports_of_users(arena)
    body: dict[str, Any] = {"name": "vm", "imageRef": arena.cloud.image_id, "flavorRef": "1"}
    body["networks"] = [{"port": port["id"]}]
    arena.insist_until(lambda: arena.send("POST", "/servers", {"server": body}), lambda: bool(arena.servers()))
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
    (has,) = ports_of_users(arena)
    assert (has["device_id"], has["fixed_ips"]) == (arena.one(), port["fixed_ips"])
    delete(arena)
    wait_for("the port is free", lambda: [item["device_id"] for item in ports_of_users(arena)] == [""])
    arena.insist_until(lambda: network(arena, "DELETE", f"/ports/{port['id']}"), lambda: not ports_of_users(arena))


def one_with_free_device_port(arena: Arena) -> None:
    """Make a server, and a port that gets a virtual function of its host."""
    one_active(arena)
    listed = network(arena, "GET", "/networks?name=physical")
    assert listed is not None
    networks = listed.json()["networks"]
    if not networks:
        attributes = {"provider:network_type": "flat", "provider:physical_network": "physnet1"}
        made = network(arena, "POST", "/networks", {"network": {"name": "physical", **attributes}})
        assert made is not None and made.status_code == 201, made
        networks = [made.json()["network"]]
        subnet = {"network_id": networks[0]["id"], "ip_version": 4, "cidr": "10.64.9.0/24"}
        made = network(arena, "POST", "/subnets", {"subnet": subnet})
        assert made is not None and made.status_code == 201, made and made.text
    port = {"name": "mine", "network_id": networks[0]["id"], "binding:vnic_type": "direct"}
    made = network(arena, "POST", "/ports", {"port": port})
    assert made is not None and made.status_code == 201, made and made.text


def attach_device(arena: Arena) -> None:
    """Attach the port: the guest and the rows have its device."""
    (port,) = ports_of_users(arena)
    body = {"interfaceAttachment": {"port_id": port["id"]}}
    arena.insist_until(
        lambda: arena.send("POST", f"/servers/{arena.one()}/os-interface", body), lambda: len(ports(arena)) > 1
    )
    has_interfaces(arena, 2)
    assert [devices for _, _, devices in arena.own_parts().values()] == [[pinned.FUNCTION]]


def one_with_device_port(arena: Arena) -> None:
    one_with_free_device_port(arena)
    attach_device(arena)


def detach_device(arena: Arena) -> None:
    """Detach the port, which then has no device, and delete it."""
    (port,) = ports_of_users(arena)
    arena.insist("DELETE", f"/servers/{arena.one()}/os-interface/{port['id']}", None, (202, 404, 409))
    has_interfaces(arena, 1)
    assert [devices for _, _, devices in arena.own_parts().values()] == [[]]
    arena.insist_until(lambda: network(arena, "DELETE", f"/ports/{port['id']}"), lambda: not ports_of_users(arena))


def attach_and_detach_device(arena: Arena) -> None:
    attach_device(arena)
    detach_device(arena)


def _devices_of_ports() -> Iterator[Scenario]:
    for row, prepare, run in (
        (operations.ATTACH_INTERFACE, one_with_free_device_port, attach_and_detach_device),
        (operations.DETACH_INTERFACE, one_with_device_port, detach_device),
    ):
        yield Scenario(f"{row.kind} with a device", prepare, run, points.of(row), pinned.SITE)


SOFT = Site(reclaim=3600)
RECLAIMED: Points = {
    CONDUCTOR: around("handle/finish_action", f"commit/{points.FINISH}"),
    COMPUTE: points.of(operations.DELETE)[COMPUTE],
}


def soft_delete(arena: Arena) -> None:
    """Delete softly: the server is invisible to its owner, off, and on its host."""
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204,))
    arena.gone()
    arena.nothing_open()
    assert [power_state for _, power_state in arena.guests().values()] == [states.PowerState.SHUTDOWN]


def one_soft_deleted(arena: Arena) -> None:
    one_active(arena)
    soft_delete(arena)


def restore(arena: Arena) -> None:
    arena.insist("POST", f"/servers/{arena.soft_deleted()}/action", {"restore": None}, (202, 409))
    arena.settle("ACTIVE", 1)


def soft_delete_and_restore(arena: Arena) -> None:
    soft_delete(arena)
    restore(arena)


def force_delete(arena: Arena) -> None:
    arena.insist("POST", f"/servers/{arena.soft_deleted()}/action", {"forceDelete": None}, (202, 404))
    arena.vanished()


def reclaimed(arena: Arena) -> None:
    """Wait until a soft-deleted server is reclaimed automatically, two seconds after its delete."""
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204, 404))
    arena.vanished()


EVACUATE = points.join(points.of(operations.EVACUATE), {COMPUTE: around("domain/destroy", "send/register_host")})


# --- resize, migrate

BIGGER = {"name": "bigger", "id": "2", "vcpus": 2, "ram": 128, "disk": 2}
MOVES: dict[str, Any] = {"resize": {"resize": {"flavorRef": "2"}}, "migrate": {"migrate": None}}

#: The destination asks whether it is still to make the guest.
ARRIVES: Points = {
    CONDUCTOR: around("handle/is_command_current", f"commit/{points.WANTED}"),
    COMPUTE: around("send/is_command_current"),
}


def one_to_be_moved(arena: Arena) -> None:
    arena.send("POST", "/flavors", {"flavor": BIGGER})
    one_active(arena)


def moved(kind: str) -> Callable[[Arena], None]:
    """Return a preparation that moves a server and leaves it unconfirmed."""

    def run(arena: Arena) -> None:
        one_to_be_moved(arena)
        act(MOVES[kind], "VERIFY_RESIZE")(arena)

    return run


def move(kind: str) -> Callable[[Arena], None]:
    """Return a move, after which the server runs at the other host only."""

    def run(arena: Arena) -> None:
        (before, _), *_ = arena.guests().values()
        act(MOVES[kind], "VERIFY_RESIZE")(arena)
        (after, power), *_ = arena.guests().values()
        assert (after != before, power) == (True, 1), f"from {before} to {after}, power state {power}"

    return run


def word(body: dict[str, Any], stays: bool) -> Callable[[Arena], None]:
    """Return the owner's decision about a move, after which the server runs on one host and the other has nothing of
    it.
    """

    def run(arena: Arena) -> None:
        server_id = arena.one()
        (before, _), *_ = arena.guests().values()
        act(body, "ACTIVE")(arena)
        (after, power), *_ = arena.guests().values()
        assert ((after == before) == stays, power) == (True, 1), f"from {before} to {after}, power state {power}"
        wait_for("the other host has nothing", lambda: arena.cloud.holders(server_id) == {after})

    return run


def failing_destination(arena: Arena) -> None:
    one_to_be_moved(arena)
    arena.control_hosts(fail_at=["copy_disk"])


def stays(arena: Arena) -> None:
    """Fail a move at its destination: the server keeps running at its source."""
    server_id = arena.one()
    before = arena.guests()[server_id][0]
    act(MOVES["resize"], "ACTIVE")(arena)
    arena.nothing_open()
    assert arena.guests()[server_id] == (before, 1)
    wait_for("the other host has nothing", lambda: arena.cloud.holders(server_id) == {before})
    arena.control_hosts()


STAYS: Points = {
    CONDUCTOR: around("send/drop_resize", "send/finish_revert_resize"),
    COMPUTE: around("handle/drop_resize", "domain/destroy", "handle/finish_revert_resize"),
}


SIZE_REFUSED: Points = {
    CONDUCTOR: around("send/rollback_resize_in_place"),
    COMPUTE: around("handle/rollback_resize_in_place"),
}


def arrive_and_die(arena: Arena) -> None:
    one_to_be_moved(arena)
    arena.dies_at("handle/finish_resize/after")
    ask(arena, MOVES["resize"])
    arena.dead()


def taken_back(arena: Arena) -> None:
    """Force the destination of a move down: the server runs at its source. The returning destination ignores its old
    command.
    """
    host = arena.dead()
    arena.force_down(host, True)
    arena.cloud.fenced.add(host)
    arena.settle("ACTIVE", 1)
    arena.force_down(host, False)
    arena.bring_back(host)
    arena.is_back(host)
    arena.cloud.fenced.clear()


def come_back(arena: Arena, host: str) -> None:
    """Admit a lost host again: it destroys its old leftovers."""
    arena.force_down(host, False)
    arena.bring_back(host)
    arena.is_back(host)
    arena.cloud.fenced.clear()


def lose(arena: Arena) -> str:
    """Force the dead host down and return it."""
    host = arena.dead()
    arena.force_down(host, True)
    arena.cloud.fenced.add(host)
    return host


def leave_and_die(arena: Arena) -> None:
    one_to_be_moved(arena)
    arena.dies_at("handle/resize_instance/before")
    ask(arena, MOVES["resize"])
    arena.dead()


def hand_over_and_die(arena: Arena) -> None:
    """Kill the source while the guest moves."""
    one_active(arena)
    arena.control_hosts(live_migration_delay=60.0)
    arena.dies_at("send/live_migration_progress/before")
    ask(arena, MOVES[LIVE.kind])
    arena.dead()
    arena.control_hosts()


def prepare_and_die(arena: Arena) -> None:
    one_active(arena)
    arena.dies_at("handle/pre_live_migration/after")
    ask(arena, MOVES[LIVE.kind])
    arena.dead()


def evacuate_amid(arena: Arena) -> None:
    """Evacuate as soon as no part of the move is open elsewhere; until then the request is refused (409)."""
    server_id, lost = arena.one(), lose(arena)

    def accepted() -> bool:
        answer = arena.send("POST", f"/servers/{server_id}/action", {"evacuate": {"onSharedStorage": False}})
        (server,) = arena.servers()
        return (answer is not None and answer.status_code == 200) or server["OS-EXT-SRV-ATTR:host"] != lost

    wait_for("it is evacuated", accepted, 60.0, 0.5)
    arena.settle("ACTIVE", 1)
    (host, power), *_ = arena.guests().values()
    assert (host != lost, power) == (True, 1), f"on {host}, power state {power}"
    come_back(arena, lost)


def delete_with_a_lost_end(arena: Arena) -> None:
    lost = lose(arena)
    delete(arena)
    come_back(arena, lost)
    arena.vanished()


def retired(arena: Arena) -> None:
    """Retire the destination: the server runs at its source. A new host starts under the retired name."""
    host = lose(arena)
    arena.retire(host)
    arena.settle("ACTIVE", 1)
    arena.bring_back(host)
    arena.is_back(host)
    arena.cloud.fenced.clear()


ONE_HOST = Site(computes=1, same_host=True)


def resized_on_its_host(arena: Arena) -> None:
    server_id = arena.one()
    before = arena.generation(server_id)
    act(MOVES["resize"], "VERIFY_RESIZE")(arena)
    assert arena.generation(server_id) > before
    act({"confirmResize": None}, "ACTIVE")(arena)
    (_, power), *_ = arena.guests().values()
    assert power == 1, f"power state {power}"


def delete_amid(kind: str) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        ask(arena, MOVES.get(kind, {kind: None}))
        delete(arena)

    return run


def delete_while_growing(arena: Arena) -> None:
    ask(arena, {"resize": {"flavorRef": sizes.LARGE}})
    delete(arena)


#: The delete may come before or after each step of the move.
DELETE_AMID: Points = {
    "api": around("send/accept_action"),
    CONDUCTOR: around(f"handle/{points.REQUEST}", f"commit/{points.ACCEPT}"),
}


RETIRED: Points = {CONDUCTOR: around("handle/host_retire", f"commit/{points.RETIRE}")}

LIVE = operations.LIVE_MIGRATE
MOVES[LIVE.kind] = {"os-migrateLive": {"block_migration": True, "disk_over_commit": False, "host": None}}


def live_move(arena: Arena) -> None:
    """Migrate live: the server runs at one host only. A fault may decide which."""
    server_id = arena.one()
    act(MOVES[LIVE.kind], "ACTIVE")(arena)
    arena.nothing_open()
    host, power = arena.guests()[server_id]
    assert power == 1, f"power state {power}"
    wait_for("the other host has nothing", lambda: arena.cloud.holders(server_id) == {host})


def failing_source(arena: Arena) -> None:
    one_active(arena)
    arena.control_hosts(fail_at=["live_migration"])


def stays_running(arena: Arena) -> None:
    """Fail a live migration at its source: the server keeps running there."""
    server_id = arena.one()
    before, boots = arena.guests()[server_id][0], arena.boots(server_id)
    live_move(arena)
    assert (arena.guests()[server_id], arena.boots(server_id)) == ((before, 1), boots)
    arena.control_hosts()


ROLLED_BACK: Points = {
    CONDUCTOR: around("send/rollback_live_migration", "send/rollback_live_migration_at_destination"),
    COMPUTE: around(
        "handle/rollback_live_migration", "handle/rollback_live_migration_at_destination", "domain/destroy"
    ),
}


def _live_moves() -> Iterator[Scenario]:
    yield Scenario(LIVE.kind, one_active, live_move, points.join(points.of(LIVE), ARRIVES), rows=(LIVE.kind,))
    yield Scenario("live migration, source fails", failing_source, stays_running, ROLLED_BACK)
    yield Scenario("delete while migrating live", one_active, delete_amid(LIVE.kind), DELETE_AMID)
    yield Scenario("live migration, destination is lost", prepare_and_die, taken_back, AT_DEADLINE, effects=STOPS)
    yield Scenario("evacuate, live source is lost", hand_over_and_die, evacuate_amid, EVACUATE, effects=STOPS)
    yield Scenario("delete, live source is lost", hand_over_and_die, delete_with_a_lost_end, DELETE_AMID, effects=STOPS)


def _moves() -> Iterator[Scenario]:
    yield from _live_moves()
    for row in (operations.RESIZE, operations.MIGRATE):
        yield Scenario(
            row.kind, one_to_be_moved, move(row.kind), points.join(points.of(row), ARRIVES), rows=(row.kind,)
        )
    confirm, revert = operations.CONFIRM_RESIZE, operations.REVERT_RESIZE
    yield Scenario(
        confirm.kind, moved("resize"), word({"confirmResize": None}, True), points.of(confirm), rows=(confirm.kind,)
    )
    yield Scenario(
        revert.kind, moved("resize"), word({"revertResize": None}, False), points.of(revert), rows=(revert.kind,)
    )
    yield Scenario("resize, destination fails", failing_destination, stays, STAYS)
    yield Scenario("resize, destination is lost", arrive_and_die, taken_back, AT_DEADLINE, effects=STOPS)
    yield Scenario("evacuate, source is lost", leave_and_die, evacuate_amid, EVACUATE, effects=STOPS)
    yield Scenario("delete, source is lost", leave_and_die, delete_with_a_lost_end, DELETE_AMID, effects=STOPS)
    yield Scenario("resize, destination is retired", arrive_and_die, retired, RETIRED, effects=STOPS)
    yield Scenario(
        "resize on one host",
        one_to_be_moved,
        resized_on_its_host,
        points.join(points.of(operations.RESIZE_SAME_HOST), ARRIVES),
        ONE_HOST,
        rows=("resize",),
    )
    in_place, back = operations.RESIZE_IN_PLACE, operations.REVERT_IN_PLACE
    yield Scenario("resize in place", sizes.one_to_grow, sizes.grow, points.of(in_place), rows=("resize",))
    yield Scenario("confirm in place", sizes.grown, sizes.confirm, points.of(operations.CONFIRM_IN_PLACE))
    yield Scenario("revert in place", sizes.grown, sizes.revert, points.of(back))
    yield Scenario("revert in place, guest refuses", sizes.grown, sizes.refuse, SIZE_REFUSED)
    yield Scenario("delete while resizing in place", sizes.one_to_grow, delete_while_growing, DELETE_AMID)
    yield Scenario("delete while resizing", one_to_be_moved, delete_amid("resize"), DELETE_AMID)
    yield Scenario("delete while confirming", moved("resize"), delete_amid("confirmResize"), DELETE_AMID)
    yield Scenario("delete while reverting", moved("resize"), delete_amid("revertResize"), DELETE_AMID)


# --- past the deadline: actions have ten seconds in these clouds, and what is in the way is there until they are over

SHORT = Site(deadline=10)
LATE = "was not finished within 10 s"
#: Effects that stop a step. A pause or an outage only moves its end.
STOPS = (failpoints.KILL, failpoints.ERROR, failpoints.DROP, failpoints.DUPLICATE)
AT_DEADLINE: Points = {CONDUCTOR: around(f"commit/{points.SWEEP}")}
UNDONE = points.of_undos(operations.CREATE)
_BUILD_UNDOS = (undo for undo in operations.CREATE.undos("build") if isinstance(undo, operations.HostStep))
FENCE = f"send/{next(_BUILD_UNDOS).method}"


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
    """Wait until the server has this status with a cause."""
    arena.settle(status, 1)
    answer = arena.cloud.show(arena.one())
    assert answer is not None
    if status == "ERROR":
        assert LATE in answer["fault"]["message"], answer["fault"]


def create_without_scheduler(arena: Arena) -> None:
    """Create without a scheduler: nothing is claimed, and the fault names the missing scheduler."""
    past_deadline(arena, "ERROR")
    arena.bring_back("scheduler")


def no_scheduler(arena: Arena) -> None:
    arena.leave_dead("scheduler")
    arena.create()
    time.sleep(SHORT.deadline - 3)


def slow_build(arena: Arena) -> None:
    """Build longer than the deadline, before the domain exists."""
    arena.control_hosts(delays={"image": SHORT.deadline + 10.0})
    arena.create()


def ordered_and_dead(arena: Arena) -> None:
    arena.dies_at("handle/build_and_run_instance/before")
    arena.create()
    arena.dead()


def compensated(arena: Arena) -> None:
    """Compensate: the host gives up the build and reports it; only then is the claim released."""
    past_deadline(arena, "ERROR")
    arena.nothing_open()
    arena.control_hosts()
    (server,) = arena.servers()
    assert server["OS-EXT-SRV-ATTR:host"] is None, server


def compensated_or_revived(arena: Arena) -> None:
    """Compensate or succeed late: an absent host may carry out a queued command before it is fenced."""
    past_deadline(arena, "ERROR")
    arena.bring_back(arena.dead())
    arena.nothing_open()
    (server,) = arena.servers()
    assert server["status"] == "ACTIVE" or server["OS-EXT-SRV-ATTR:host"] is None, server


def report_held(arena: Arena) -> None:
    """Hold the host's report of a running guest."""
    (arena.held["report"],) = arena.arm((Fault(COMPUTE, "send/finish_build/before", failpoints.HOLD),))
    arena.create()
    wait_for("the host has built it", arena.held["report"].exists)


def revived(arena: Arena) -> None:
    """Revive: the server shows as failed until its host reports that it runs."""
    arena.settle("ACTIVE", 1)
    release(arena.held["report"])


def both_held(arena: Arena) -> None:
    """Hold the report, and the fence as well."""
    (arena.held["fence"],) = arena.arm((Fault(CONDUCTOR, f"{FENCE}/before", failpoints.HOLD),))
    report_held(arena)


def reported_late(arena: Arena) -> None:
    """Report after the deadline, but before the fence."""
    past_deadline(arena, "ERROR")
    wait_for("the host is to be asked", arena.held["fence"].exists)
    release(arena.held["report"])
    arena.settle("ACTIVE", 1)
    release(arena.held["fence"])


def stop_and_die(arena: Arena) -> None:
    one_active(arena)
    arena.dies_at("handle/stop_instance/before")
    ask(arena, {"os-stop": None})
    arena.dead()


def not_stopped(arena: Arena) -> None:
    """Fail a stop: the server keeps running and has no task."""
    past_deadline(arena, "ACTIVE")
    arena.bring_back(arena.dead())
    arena.settle("ACTIVE", 1)


def slow_stop(arena: Arena) -> None:
    """Stop so long after the deadline that every observer sees the failure first. An API request that a killed
    conductor loses takes ten seconds.
    """
    one_active(arena)
    arena.control_hosts(power_delay=SHORT.deadline + 20.0)
    ask(arena, {"os-stop": None})


def stopped_late(arena: Arena) -> None:
    """Stop late: the action failed as ACTIVE; when the guest stops after all, the state follows."""
    past_deadline(arena, "ACTIVE")
    arena.settle("SHUTOFF", 1)
    arena.control_hosts()


def failing_delete(arena: Arena) -> None:
    one_active(arena)
    arena.control_hosts(fail_at=["destroy"])
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204,))


def deleted_late(arena: Arena) -> None:
    """Delete late: the server shows as failed, and the delete continues until it succeeds. If its killed host stays
    away until it counts as down, the owner sees the delete earlier.
    """

    def shown() -> bool:
        seen = [(server["status"], server["OS-EXT-STS:task_state"]) for server in arena.servers()]
        return seen in ([], [("ERROR", states.DELETING)])

    wait_for("the delete is past its deadline", shown, 3 * SHORT.deadline)
    arena.control_hosts()
    arena.gone()


# --- deletes while the host is away


def one_on_a_host_that_is_down(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    host = server["OS-EXT-SRV-ATTR:host"]
    arena.leave_dead(host)
    wait_for(f"{host} counts as down", lambda: arena.is_state(host, "down"))


def one_on_a_dead_host(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    arena.leave_dead(server["OS-EXT-SRV-ATTR:host"])


def delete_and_clean_up(arena: Arena) -> None:
    """Delete on an absent host: the server is gone for its owner at once, or when the host counts as down. The claim
    stays until the host returns.
    """
    (host,) = arena.away
    delete(arena)
    assert list(arena.cloud.domains().values()) == [host]
    arena.bring_back(host)
    arena.is_back(host)
    arena.nothing_open()


CLEANUP = {daemon: names for daemon, names in points.of(operations.DELETE).items() if daemon != "api"}


# --- races: what has to come in an order is held until the other is seen, so no speed of the machine changes it


def standing_still(arena: Arena) -> None:
    """Stop a host right before its domain exists, for longer than the lease, with another host available."""
    arena.control_hosts(destroy_delay=1.0)
    arena.enable("compute-2", False)
    (stands,) = arena.arm((Fault("compute-1", "fence/before", failpoints.PAUSE),))
    arena.create()
    wait_for("the host stands still", stands.exists)
    arena.enable("compute-2", True)
    arena.settle("ACTIVE", 1)
    arena.outlast(failpoints.PAUSE, stands)
    arena.settle("ACTIVE", 1)
    arena.control_hosts()


def ordered_again(arena: Arena) -> None:
    """Fail a build and kill the daemon before the conductor has its report. After the restart it gets the same
    command again. The build moves to another host meanwhile, and then the daemon continues.
    """
    arena.enable("compute-2", False)
    arena.control_hosts(destroy_delay=1.0, fail_at=["image"])
    (report,) = arena.arm((Fault(CONDUCTOR, "handle/finish_build/before", failpoints.HOLD),))
    arena.create()
    wait_for("the failure is reported", report.exists)
    arena.control_hosts(destroy_delay=1.0)
    arena.enable("compute-2", True)
    (again,) = arena.arm((Fault("compute-1", "domain/spawn/before", failpoints.HOLD),))
    arena.leave_dead("compute-1")
    arena.bring_back("compute-1")
    wait_for("it builds again, or refuses", lambda: again.exists() or arena.servers()[0]["status"] == "ACTIVE")
    release(report)
    arena.settle("ACTIVE", 1)
    release(again)
    for _ in polls(1.0):  # the daemon continues, and makes no second guest
        assert not arena.violated, arena.violated
    arena.control_hosts()


def last_place(arena: Arena) -> None:
    """Race for one place. The first request is held between scheduling and claim until the second has arrived. The
    host's build is held while the case observes it.
    """

    def states_seen() -> set[str]:
        return {server["status"] for server in arena.servers()}

    (late,) = arena.arm((Fault(CONDUCTOR, f"send/{points.SELECT}/after", failpoints.HOLD),))
    arena.create()
    wait_for("a host is chosen", late.exists)
    arena.create()
    wait_for("the place is taken", arena.cloud.domains)
    (order,) = arena.arm((Fault("compute-1", "handle/build_and_run_instance/before", failpoints.HOLD),))
    release(late)
    ids = [server["id"] for server in arena.servers()]
    wait_for("the claim is refused, or seen", lambda: arena.violated or len(states_seen() - {"BUILD"}) == 2)
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
MADE: Points = {
    CONDUCTOR: around(
        "network/resolve",
        "handle/start_build",
        f"commit/{points.ASK}",
        "network/allocate",
        f"commit/{points.START_BUILD}",
    ),
    COMPUTE: around("send/start_build"),
}
GIVEN_BACK: Points = {CONDUCTOR: around(f"commit/{points.TELL}", "network/deallocate", f"commit/{points.TOLD}")}
REFUSED: Points = {CONDUCTOR: around(f"commit/{points.TELL_AGAIN}", f"commit/{points.TOLD}")}
TAKEN_BACK: Points = {CONDUCTOR: around("network/deallocate", f"commit/{points.TAKEN_BACK}")}


def create_with_service(arena: Arena) -> None:
    create(1)(arena)
    assert arena.at_network_service() == {arena.one()}


def delete_with_service(arena: Arena) -> None:
    """Delete with a network service: the service is called after the owner's response, until it succeeds."""
    delete(arena)
    arena.nothing_open()
    assert not arena.at_network_service()


def one_that_will_be_refused(arena: Arena) -> None:
    one_active(arena)
    arena.arm((Fault(CONDUCTOR, "network/deallocate/before", failpoints.ERROR),))


def delete_while_asked(arena: Arena) -> None:
    """Delete the server while its interfaces are being created."""
    release(arena.held["network"])
    arena.gone()
    arena.nothing_open()


def asked_for_interfaces(arena: Arena) -> None:
    (arena.held["network"],) = arena.arm((Fault(CONDUCTOR, "network/allocate/after", failpoints.HOLD),))
    arena.create()
    wait_for("the service is asked", arena.held["network"].exists)
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204,))


# --- Neutron and Cinder


def asks(service: str, daemon: str, *requests: str, commits: tuple[str, ...] = ()) -> Points:
    """Return the points of calls to a service. ``requests``: method and subject of each; ``commits``: further
    transactions.
    """
    return {
        daemon: around(*(f"{service}/{request}" for request in requests), *(f"commit/{commit}" for commit in commits))
    }


def _with_neutron() -> Iterator[Scenario]:
    site = Site(services=(services.NEUTRON,))
    made, gone = asks(services.NEUTRON, CONDUCTOR, "post/ports"), asks(services.NEUTRON, CONDUCTOR, "delete/ports")
    bound = asks(services.NEUTRON, CONDUCTOR, "put/ports", commits=(points.PORTS,))
    asked = asks(services.NEUTRON, CONDUCTOR, commits=(points.ATTACH_ASK, points.ACCEPT))
    for name, prepare, run, found in (
        ("create", nothing, create(1), made),
        ("delete", one_active, delete, gone),
        ("attach interface", one_active, attach_and_detach, points.join(made, asked, gone)),
        ("live migration", one_active, live_move, bound),
        ("evacuate", one_on_a_lost_host, evacuate, asks(services.NEUTRON, CONDUCTOR, "put/ports")),
    ):
        yield Scenario(f"{name}, Neutron", prepare, run, found, site)


def _with_cinder() -> Iterator[Scenario]:
    site = Site(services=(services.CINDER,))
    leased = (points.CINDER_TAKE, points.CINDER_GIVE_BACK)
    taken = asks(
        services.CINDER,
        CONDUCTOR,
        "post/attachments",
        "put/attachments",
        "post/action",
        commits=(*leased, points.CINDER_NOTE),
    )
    free = asks(services.CINDER, CONDUCTOR, "delete/attachments", commits=(*leased, points.CINDER_FORGET))
    moved_along = asks(services.CINDER, CONDUCTOR, "delete/attachments")
    noted = asks(services.CINDER, CONDUCTOR, commits=(points.CINDER_MADE, points.CINDER_IS_MADE))
    made = points.join({API: [f"{services.CINDER}/post/volumes/after"]}, noted)
    for name, prepare, run, found in (
        ("attach volume", services.server_and_volume, services.attach, taken),
        ("detach volume", services.with_volume, services.detach, free),
        ("boot from volume", nothing, services.boot_from_volume, points.join(made, taken)),
        ("delete", services.with_volume, delete, free),
        ("live migration", services.with_volume, live_move, points.join(taken, moved_along)),
        ("evacuate", with_volume_on_a_lost_host, evacuate, points.join(taken, moved_along)),
    ):
        yield Scenario(f"{name}, Cinder", prepare, run, found, site)
    for name, prepare, run, row in (
        ("snapshot of a file", services.with_volume, services.make_snapshot, operations.VOLUME_SNAPSHOT_CREATE),
        ("merge of files", services.with_new_file, services.delete_snapshot, operations.VOLUME_SNAPSHOT_DELETE),
    ):
        on_files = Site(services=(services.FILES,))
        yield Scenario(f"{name}, Cinder", prepare, run, points.of_files(row), on_files, rows=(row.kind,))
    yield Scenario(
        "boot from volume, Cinder is not asked",
        nothing,
        services.boot_from_volume_in_vain,
        {API: [f"{services.CINDER}/post/volumes/before"]},
        dataclasses.replace(site, deadline=SHORT.deadline),
        (failpoints.KILL, failpoints.ERROR),
    )


# --- without a request


def _automatic() -> Iterator[Scenario]:
    for name, prepare, run, found, site in (
        (
            "evacuate automatically",
            automatic.one_protected,
            automatic.lose_its_host,
            automatic.evacuated(),
            automatic.ARMED,
        ),
        (
            "server backup",
            automatic.one_backed_up,
            automatic.then_expire(automatic.back_up),
            automatic.STORED,
            automatic.BACKED_UP,
        ),
        (
            "server backup, restore",
            automatic.one_backed_up,
            automatic.then_expire(automatic.restore),
            automatic.RESTORED,
            automatic.BACKED_UP,
        ),
        ("server backup, removal", automatic.one_backed_up, automatic.expire, automatic.EXPIRED, automatic.BACKED_UP),
        (
            "replication, failover and failback",
            automatic.one_replicated,
            automatic.then_expire(automatic.fail_over_and_back),
            automatic.LEFT_AND_RETURNED,
            automatic.REPLICATED,
        ),
        ("balance", automatic.busy_host, automatic.relieve, automatic.moved(), automatic.BUSY),
    ):
        yield Scenario(name, prepare, run, found, site, automatic.EFFECTS, long=True)


# --- work on volumes


def _of_shared_volumes() -> Iterator[Scenario]:
    """Yield what happens to the second server of a volume. The first one keeps it."""
    one, both = shared_volumes.one_of_two_has_it, shared_volumes.both_have_it
    attach, detach = points.of(operations.ATTACH_VOLUME), points.of(operations.DETACH_VOLUME)
    delete_points = points.of(operations.DELETE)
    yield Scenario("attach shared volume to a second server", one, shared_volumes.attach_to_the_second, attach)
    yield Scenario("clone", clones.one_changed, clones.create, points.of_clone(), rows=("clone",))
    yield Scenario("detach shared volume", both, shared_volumes.detach_from_the_second, detach, long=True)
    yield Scenario(
        "delete one server of a shared volume", both, shared_volumes.delete_the_second, delete_points, long=True
    )


def _of_volumes() -> Iterator[Scenario]:
    for name, prepare, run, found in (
        ("volume extend", volumes.filled, volumes.extend, points.of_extension()),
        ("volume snapshot", volumes.filled, volumes.snapshot, points.of_snapshot()),
        ("volume snapshot delete", volumes.with_snapshot, volumes.delete_snapshot, points.of_snapshot_deletion()),
        ("volume upload", volumes.filled, volumes.upload, points.of_upload()),
        ("volume retype", volumes.with_another_type, volumes.retype, points.of_retype()),
        ("volume delete", volumes.filled, volumes.delete, points.of_volume_deletion()),
    ):
        yield Scenario(name, prepare, run, found)
    # A volume that a server has differs in the work of its host alone.
    for name, run, effect in (
        ("volume extend, in use", volumes.extend_in_use, "volume/extend"),
        ("volume snapshot, in use", volumes.snapshot, "snapshot"),
    ):
        yield Scenario(name, volumes.filled_in_use, run, {COMPUTE: around(effect)}, long=True)
    yield Scenario("volume snapshot, late command", volumes.filled, volumes.late_snapshot, {}, long=True)


# --- all


def _stories() -> Iterator[Scenario]:
    yield Scenario("create 1", nothing, create(1), points.of(operations.CREATE), rows=("create",))
    yield Scenario("create 20", nothing, create(20), points.of_several())
    yield Scenario(
        "create 2 with CPUs and devices", pinned.flavor, pinned.create, points.of(operations.CREATE), pinned.SITE
    )
    yield Scenario(
        "delete while building with CPUs and a device",
        pinned.flavor,
        pinned.delete_while_building,
        CREATE_AND_DELETE,
        site=pinned.SITE,
    )
    yield Scenario("create with a TPM", guest_keys.flavors, guest_keys.create_with_tpm, points.of_tpm_key())
    yield Scenario("create with encrypted disks", guest_keys.flavors, guest_keys.create_encrypted, points.of_disk_key())
    yield Scenario("create without room", nothing, no_room, NO_ROOM)
    yield Scenario("delete", one_active, delete, points.of(operations.DELETE), rows=("delete",))
    yield Scenario(
        "port of a user",
        one_port,
        given_and_free_again,
        points.join(points.of(operations.CREATE), points.of(operations.DELETE)),
    )
    yield Scenario("delete while building", nothing, delete_while_building, CREATE_AND_DELETE)
    yield Scenario("evacuate", one_on_a_lost_host, evacuate, EVACUATE, rows=("evacuate",))
    yield Scenario("soft delete", one_active, soft_delete_and_restore, points.of(operations.SOFT_DELETE), SOFT)
    yield Scenario("restore", one_soft_deleted, restore, points.of(operations.RESTORE), SOFT, rows=("restore",))
    yield Scenario("soft delete, forced", one_soft_deleted, force_delete, points.of(operations.DELETE), SOFT)
    yield Scenario("soft delete, reclaimed", one_active, reclaimed, RECLAIMED, Site(reclaim=2))
    yield Scenario(
        "change password",
        one_with_agent,
        change_password,
        points.of(operations.CHANGE_PASSWORD),
        rows=("changePassword",),
    )
    yield Scenario(
        "trigger crash dump", one_active, crash_dump, points.of(operations.CRASH_DUMP), rows=("trigger_crash_dump",)
    )
    yield Scenario("rebuild", one_active, rebuild, points.of(operations.REBUILD), rows=("rebuild",))
    yield Scenario("rebuild, failing", one_active, failing_rebuild, {})
    yield Scenario(
        "create past deadline, unscheduled", no_scheduler, create_without_scheduler, AT_DEADLINE, SHORT, STOPS
    )
    yield Scenario("create past deadline, given up", slow_build, compensated, UNDONE, SHORT, STOPS)
    yield Scenario(
        "create past deadline, host away", ordered_and_dead, compensated_or_revived, AT_DEADLINE, SHORT, STOPS
    )
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
    yield Scenario("createImage", one_active, images.make, images.MADE, rows=("createImage",))
    yield Scenario("createImage, it fails", images.prepare_failure, images.fails, images.DISCARDED, effects=STOPS)
    yield Scenario("createImage, its file is lost", images.uploaded_and_lost, images.lost, images.LOST, effects=STOPS)
    yield Scenario("createImage, delete", images.slow, images.delete, images.DISCARDED, effects=STOPS)
    yield Scenario("createBackup", one_active, images.backup, images.BACKED_UP, rows=("createBackup",))
    yield Scenario("shelve", one_active, images.shelve, images.OFFLOADED, rows=("shelve", "shelveOffload"))
    yield Scenario("unshelve", images.one_shelved, images.unshelve, images.UNSHELVED, rows=("unshelve",))
    yield Scenario("delete, shelved", images.one_shelved, images.delete, images.DISCARDED, effects=STOPS)
    yield Scenario("volume create", volumes.clear, volumes.make, points.of_volume())
    yield Scenario(
        "encrypted volume create", volumes.encrypted_type, volumes.make_encrypted, points.of_encrypted_volume()
    )
    yield Scenario(
        "attach encrypted volume",
        volumes.server_and_encrypted_volume,
        volumes.attach,
        points.of_key(),
        effects=STOPS,
    )
    yield from _of_volumes()
    yield Scenario("volume backup", volumes.filled, volumes.back_up, points.of_backup())
    yield Scenario("volume restore", volumes.backed_up_and_changed, volumes.restore, points.of_restoration())
    yield Scenario(
        "attach volume",
        volumes.server_and_volume,
        volumes.attach,
        points.of(operations.ATTACH_VOLUME),
        rows=("attach_volume",),
    )
    yield Scenario(
        "detach volume",
        volumes.attached,
        volumes.detach,
        points.of(operations.DETACH_VOLUME),
        rows=("detach_volume",),
    )
    yield from _of_shared_volumes()
    yield Scenario(
        "attach share",
        shares.one_stopped,
        shares.attach,
        points.of(operations.ATTACH_SHARE),
        rows=("attach_share",),
    )
    yield Scenario(
        "detach share",
        shares.one_with_share,
        shares.detach,
        points.of(operations.DETACH_SHARE),
        rows=("detach_share",),
        long=True,
    )
    yield Scenario(
        "create snapshot point",
        one_active,
        snapshot_points.create,
        points.of(operations.CREATE_POINT),
        rows=("create_point",),
    )
    yield Scenario(
        "delete snapshot point",
        snapshot_points.one_with_point,
        snapshot_points.delete,
        points.of(operations.DELETE_POINT),
        rows=("delete_point",),
        long=True,
    )
    yield Scenario(
        "revert to snapshot point",
        snapshot_points.one_with_point,
        snapshot_points.revert,
        points.of(operations.REVERT_TO_POINT),
        rows=("revert_to_point",),
    )
    yield Scenario(
        "swap volume",
        volumes.one_attached_and_another,
        volumes.swap,
        points.of(operations.SWAP_VOLUME),
        rows=("swap_volume",),
    )
    yield from _moves()
    yield from _interfaces()
    yield from _devices_of_ports()
    yield from _with_neutron()
    yield from _with_cinder()
    yield from _automatic()
    for story in balancers.scenarios():
        yield Scenario(**story._asdict(), site=balancers.SITE)
    for story in outside.scenarios():
        yield Scenario(**story._asdict())
    yield Scenario("domain vanished", one_active, vanished, VANISHED)
    yield Scenario("crash", one_protected, crashed, CRASHED)
    found = {CONDUCTOR: around(f"commit/{points.DEVICE_LOST}")}
    yield Scenario("device vanished", pinned.one_with_device, pinned.device_lost, found, pinned.SITE)
    yield Scenario("create, host stands still", nothing, standing_still, {})
    yield Scenario("create, ordered again", nothing, ordered_again, {})
    yield Scenario("create 2, one place", nothing, last_place, {}, ONE_PLACE)


#: Two conductors and two schedulers, on MariaDB. What the others do while one is held up is what is of interest. A host
#: whose every heartbeat meanwhile went to that one is not down, as with the defaults a pause is shorter than that.
TWO = Site(own_database=True, more=("conductor-2", "scheduler-2"), down_time=15)


def _with_two(scenario: Scenario) -> Scenario:
    only = {CONDUCTOR: [point for point in scenario.points[CONDUCTOR] if not point.startswith("handle/")]}
    effects = (failpoints.KILL, failpoints.PAUSE, failpoints.DUPLICATE)
    return dataclasses.replace(
        scenario, name=f"{scenario.name}, two conductors", points=only, site=TWO, effects=effects, rows=()
    )


def _all() -> list[Scenario]:
    found = [*_stories(), *single_steps(operations.OPERATIONS)]
    doubled = ("create 20", "delete", "stop", "evacuate", "delete while building")
    return found + [_with_two(scenario) for scenario in found if scenario.name in doubled]


SCENARIOS = _all()
