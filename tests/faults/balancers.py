"""Load balancers in the fault matrix: one is made, changed, moved and deleted, whatever dies. No two hosts have its
address at a time (`tests.faults.judges.one_holder`), and in the end the host of its row has it alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import requests
import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from tests.faults import judges
from tests.faults.arena import SETTLE_SECONDS, Arena, Site
from tests.faults.points import API, COMPUTE, CONDUCTOR, WING_WAKE_UP, Points, Story, around, join
from tests.support.waiting import wait_for

T = TypeVar("T")

#: The lease is the shortest one, so that a pause outlives it.
SITE = Site(
    config="[DEFAULT]\nwings = load_balancer\n[load_balancer]\nlease = 6\n"
    "[api]\nenabled_apis = osapi_compute, volume, network, load_balancer\n"
)


def _changed(transaction: str) -> Points:
    """Return the points of a user's change, which the host carries out, and its report."""
    request = {API: around("send/wing_change"), CONDUCTOR: around("handle/wing_change", f"commit/{transaction}")}
    woken = {CONDUCTOR: around(f"send/{WING_WAKE_UP}"), COMPUTE: around(f"handle/{WING_WAKE_UP}")}
    return join(request, woken)


_REPORTED: Points = {
    CONDUCTOR: around("handle/wing_report", "commit/sync"),
    COMPUTE: around("send/wing_report"),
}
MADE = join(_changed("create"), _REPORTED)
CHANGED, REMOVED, MOVED = _changed("add"), _changed("remove"), _changed("failover")
LOST: Points = {CONDUCTOR: around("commit/sweep")}


def _ask(arena: Arena, method: str, path: str, body: Any = None) -> requests.Response | None:
    url = f"http://127.0.0.1:{arena.cloud.load_balancer_port}/v2/lbaas{path}"
    with contextlib.suppress(requests.RequestException):
        return requests.request(method, url, json=body, headers={"X-Auth-Token": arena.cloud.token}, timeout=30)
    return None


def _read(arena: Arena, function: Callable[[UnitOfWork], T]) -> T:
    """Read from the database, which may be away meanwhile."""

    def attempt() -> list[T]:
        with contextlib.suppress(sa.exc.DBAPIError):
            return [arena.db.read(function)]
        return []

    found: T = wait_for("the database replies", attempt, SETTLE_SECONDS)[0]
    return found


def _listed(arena: Arena, kind: str) -> list[dict[str, Any]]:
    def read() -> list[list[dict[str, Any]]]:
        answer = _ask(arena, "GET", f"/{kind}")
        return [answer.json()[kind]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = wait_for(f"{kind} are listed", read, SETTLE_SECONDS)[0]
    return found


def _settle(arena: Arena) -> str:
    """Wait until the one load balancer is ACTIVE, and return its only holder, which its row names."""

    def settled() -> list[str]:
        (balancer,) = _listed(arena, "loadbalancers")
        holders = judges.holders(arena.cloud.path)[balancer["id"]]
        rows = _read(arena, judges.balancer_hosts)
        is_done = balancer["provisioning_status"] == "ACTIVE" and rows == [(holders[0], None)] if holders else False
        return holders if is_done and len(holders) == 1 else []

    return str(wait_for("the load balancer is ACTIVE on one host", settled, SETTLE_SECONDS, 0.3)[0])


def make(arena: Arena) -> None:
    """Make a load balancer with a listener and a member."""
    subnet = _read(arena, judges.default_subnet)
    member = {"address": "10.99.0.77", "protocol_port": 80}
    pool = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": [member]}
    listener = {"protocol": "TCP", "protocol_port": 80, "default_pool": pool}
    body = {"loadbalancer": {"name": "lb", "vip_subnet_id": subnet, "listeners": [listener]}}
    arena.insist_until(
        lambda: _ask(arena, "POST", "/loadbalancers", body), lambda: bool(_listed(arena, "loadbalancers"))
    )
    _settle(arena)


def add_listener(arena: Arena) -> None:
    (balancer,) = _listed(arena, "loadbalancers")
    body = {"listener": {"loadbalancer_id": balancer["id"], "protocol": "TCP", "protocol_port": 81}}
    arena.insist_until(lambda: _ask(arena, "POST", "/listeners", body), lambda: len(_listed(arena, "listeners")) == 2)
    _settle(arena)


def move(arena: Arena) -> None:
    """Let the stand-by take over: the former host releases the address first."""
    (balancer,) = _listed(arena, "loadbalancers")
    before = _settle(arena)
    arena.insist_until(
        lambda: _ask(arena, "PUT", f"/loadbalancers/{balancer['id']}/failover"),
        lambda: _read(arena, judges.balancer_hosts)[0][0] != before,
    )
    assert _settle(arena) != before


def lose_host(arena: Arena) -> None:
    """Leave its host dead. The other one takes over once the lease is over, and keeps it when the host is back."""
    before = _settle(arena)
    arena.leave_dead(before)
    wait_for("the other host has it", lambda: _settle(arena) != before, SETTLE_SECONDS)
    after = _settle(arena)
    arena.bring_back(before)
    wait_for(f"{before} is back", lambda: arena.is_state(before, "up"), SETTLE_SECONDS)
    assert _settle(arena) == after


def remove(arena: Arena) -> None:
    """Delete all load balancers with their parts. No host has one then."""

    def ask() -> None:
        for balancer in _listed(arena, "loadbalancers"):
            _ask(arena, "DELETE", f"/loadbalancers/{balancer['id']}?cascade=true")

    arena.insist_until(ask, lambda: not _listed(arena, "loadbalancers"))
    wait_for("no host has it", lambda: not judges.holders(arena.cloud.path), SETTLE_SECONDS)


def clear(arena: Arena) -> None:
    """Remove what a failed case may have left, and wait until both hosts run load balancers."""
    remove(arena)
    wait_for("both hosts have reported", lambda: _read(arena, judges.balancing_hosts) == 2, SETTLE_SECONDS)


def one(arena: Arena) -> None:
    clear(arena)
    make(arena)


def then_remove(run: Callable[[Arena], None]) -> Callable[[Arena], None]:
    """Return a scenario that leaves no load balancer."""

    def both(arena: Arena) -> None:
        run(arena)
        remove(arena)

    return both


def scenarios() -> Iterator[Story]:
    yield Story("load balancer create", clear, then_remove(make), MADE)
    yield Story("load balancer change", one, then_remove(add_listener), CHANGED, True)
    yield Story("load balancer failover", one, then_remove(move), MOVED, True)
    yield Story("load balancer, its host is lost", one, then_remove(lose_host), LOST, True)
    yield Story("load balancer delete", one, remove, REMOVED, True)
