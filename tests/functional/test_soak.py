"""Short form of benchmarks/soak.py: message counts of fifty hosts, and nothing piles up (docs/explanation/scale.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import simulated
from tests.functional.simulated import Simulated
from tests.support.waiting import wait_for

HOSTS = 50
SERVERS = 60

#: Messages that the conductor is sent besides those of hosts, while that many hosts send heartbeats: heartbeats
#: of scheduler and conductor (one a second each here), echoes, the scheduler's look at all hosts.
OWN = 1.0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    path: Path = tmp_path_factory.mktemp("soak")
    with simulated.running(path, HOSTS, processes=1, beat=2.0, compare=6.0) as running:
        yield running


def received(running: Simulated) -> float:
    return running.metrics("conductor")["nova_lite_rpc_seconds_count"]


def waiting(running: Simulated) -> dict[str, int]:
    """Queues with messages."""
    return {name: depth for name, depth in running.depths().items() if depth}


def down(running: Simulated) -> set[str]:
    services = running.request("GET", "/os-services?binary=nova-compute").json()["services"]
    return {service["host"] for service in services if service["state"] == "down"}


def swept(running: Simulated) -> None:
    """Five times more."""

    def sweeps() -> float:
        return running.metrics("conductor")["nova_lite_reconcile_duration_seconds_count"]

    before = sweeps()
    wait_for("it has swept some more", lambda: sweeps() > before + 5)


def test_a_host_at_rest_sends_its_heartbeat_and_nothing_more(many: Simulated) -> None:
    """Counted against what the hosts say that they did, so that time has no part in it. All of them agree with the
    conductor, which they ask along with a heartbeat."""
    wait_for("each host has told a heartbeat", lambda: many.counts().get("beat", 0) >= HOSTS)
    before, sent = many.counts(), received(many)

    def beats() -> bool:
        return many.counts()["beat"] >= before["beat"] + 2 * HOSTS

    wait_for("each host has told two heartbeats", beats)
    arrived, after = received(many) - sent, many.counts()
    beaten = after["beat"] - before["beat"]
    # Messages on their way may count on one side only.
    assert arrived <= beaten * 1.1 + OWN * beaten / HOSTS * 4 + 20
    assert arrived >= beaten * 0.9 - 20
    wait_for("each host has asked whether all agrees", lambda: many.counts()["ask"] >= after["ask"] + HOSTS)
    assert many.counts()["compare"] == before["compare"], "all of them agree"
    assert not [name for name in after if name.endswith("failed")], after


def test_soak_leaves_no_backlog(many: Simulated) -> None:
    """Servers come and go; a host that is down is sent nothing more, however often the conductor sweeps."""
    ids = many.create(count=SERVERS)
    found = many.wait_active(ids)
    wait_for("all queues are empty", lambda: not waiting(many))
    lost = sorted({server["OS-EXT-SRV-ATTR:host"] for server in found.values()})[:3]
    orphans = [server for server, item in found.items() if item["OS-EXT-SRV-ATTR:host"] in lost]
    many.tell("die", lost)
    for server in orphans:
        assert many.request("DELETE", f"/servers/{server}").status_code == 204
    wait_for("those of lost hosts are gone for their owners", lambda: len(many.servers()) == SERVERS - len(orphans))
    wait_for("they count as down", lambda: set(lost) <= down(many))
    swept(many)  # what was under way is in their queues
    before = waiting(many)
    assert set(before) <= {f"compute.{host}" for host in lost}
    swept(many)
    assert waiting(many) == before
    many.tell("back", lost)
    many.delete_all()
    wait_for("all queues are empty", lambda: not waiting(many))
    wait_for("nothing is open", lambda: many.metrics("conductor").get("nova_lite_actions_open", 0.0) == 0.0)
    many.audit()
