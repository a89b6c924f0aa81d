"""Runs of an unreliable cloud in which one protection of the protocol matters (`tests.model.unguarded`).

With the protection the run is a path of the model. Without it, it is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from nova_lite.compute.fencing import NEVER
from nova_lite.virt.fake_hypervisor import FakeHypervisor
from tests.model.unreliable_cloud import HOSTS, UnreliableCloud
from tests.support.waiting import polls, wait_for

#: Seconds for which a domain is not made while a delete is carried out, if it is.
_WHILE = 2.0
BEFORE, AFTER = "spawn_before_domain", "spawn_after_domain"


def _host_of(cloud: UnreliableCloud, server: str) -> str | None:
    host: str | None = cloud.request("GET", f"/servers/{server}").json["server"]["OS-EXT-SRV-ATTR:host"]
    return host


def _active(cloud: UnreliableCloud) -> str:
    server = cloud.send_create()
    assert cloud.settle(server)
    return server


def _building(cloud: UnreliableCloud, step: str) -> str:
    """Begin a create, and return once its host has a build that hangs at this step, until `mend_builds`."""
    cloud.set_builds(HOSTS, hang_at=[step])
    server = cloud.send_create()
    _deliver_until(cloud, lambda: _is_building(cloud, server))
    if step == AFTER:
        fakes = [host.host.driver.guests for host in cloud.hosts.values()]
        wait_for("the domain is there", lambda: any(server in {info.uuid for info in one.all()} for one in fakes), 20)
    return server


def _is_building(cloud: UnreliableCloud, server: str) -> bool:
    return any(host.jobs.is_building(server) for host in cloud.hosts.values())


def _deliver_until(cloud: UnreliableCloud, done: Callable[[], bool]) -> None:
    def delivered() -> bool:
        cloud.deliver()
        return done()

    wait_for("messages have had their effect", delivered, 20)


def _act(cloud: UnreliableCloud, server: str, action: str, body: Any = None) -> None:
    cloud.request("POST", f"/servers/{server}/action", {action: body})


def _delete(cloud: UnreliableCloud, server: str) -> None:
    cloud.request("DELETE", f"/servers/{server}")


def scheduled_twice(cloud: UnreliableCloud) -> None:
    """Let the reconciler schedule a build while another thread waits for the scheduler."""
    server = cloud.send_create()

    def schedule_again() -> None:
        cloud.bus.meanwhile = lambda: None
        cloud.retry()
        wait_for("the other thread has placed it", lambda: _host_of(cloud, server), 20)

    cloud.bus.meanwhile = schedule_again
    cloud.deliver()
    cloud.settle(server)


def repeated_while_it_builds(cloud: UnreliableCloud) -> None:
    server = _building(cloud, BEFORE)
    cloud.retry()
    builds = "build_and_run_instance"
    _deliver_until(cloud, lambda: [message.method for message in cloud.bus.sent].count(builds) > 1)
    cloud.mend_builds()
    cloud.settle(server)


def fenced_before_its_command(cloud: UnreliableCloud) -> None:
    """Lose the command of a build, and let its deadline pass."""
    server = cloud.send_create()
    _deliver_until(cloud, lambda: bool(_host_of(cloud, server)))
    cloud.bus.held = []
    cloud.expire()
    cloud.settle(server)


def failed_at_a_host(cloud: UnreliableCloud) -> None:
    cloud.set_builds(HOSTS, fail_at=[BEFORE])
    cloud.settle(cloud.send_create())


def deleted_while_it_builds(cloud: UnreliableCloud) -> None:
    """Delete a server whose build has passed its last check, and has not made its domain."""
    write = FakeHypervisor.write

    def slow_write(fake: FakeHypervisor, domain: Any) -> None:
        store = cloud.hosts[fake.host].host.fencing
        any(store.get(domain.uuid).result is not None for _ in polls(_WHILE))
        write(fake, domain)

    stores = [host.host.fencing for host in cloud.hosts.values()]
    with mock.patch.object(FakeHypervisor, "write", slow_write):
        server = cloud.send_create()
        _deliver_until(cloud, lambda: any(store.get(server).created_generation != NEVER for store in stores))
        _delete(cloud, server)
        cloud.settle(server)


def reported_twice(cloud: UnreliableCloud) -> None:
    """Repeat the report of a failed build while the next host builds."""
    server = cloud.send_create()
    _deliver_until(cloud, lambda: bool(_host_of(cloud, server)))
    first = _host_of(cloud, server)
    # The first host has no command yet: one delivery may bring it that, and another host the next.
    cloud.set_builds([host for host in HOSTS if host == first], fail_at=[BEFORE])
    cloud.set_builds([host for host in HOSTS if host != first], hang_at=[BEFORE])
    _deliver_until(cloud, lambda: _is_building(cloud, server) and _host_of(cloud, server) not in (None, first))
    cloud.bus.arrive(next(message for message in cloud.bus.sent if message.method == "finish_build"))
    cloud.mend_builds()
    cloud.settle(server)


def stopped_late(cloud: UnreliableCloud) -> None:
    """Repeat a stop after a later start."""
    server = _active(cloud)
    for action in ("os-stop", "os-start"):
        _act(cloud, server, action)
        cloud.settle(server)
    cloud.bus.arrive(next(message for message in cloud.bus.sent if message.method == "stop_instance"))
    cloud.settle(server)


def deleted_while_its_host_is_away(cloud: UnreliableCloud) -> None:
    server = _active(cloud)
    cloud.mark_down(*HOSTS)
    _delete(cloud, server)
    cloud.mark_up()
    cloud.settle(server)


def built_late(cloud: UnreliableCloud) -> None:
    """Let the deadline of a build pass that then succeeds, while the conductor cannot ask its host."""
    server = _building(cloud, AFTER)
    cloud.bus.lost = {"fence_instance"}
    cloud.expire()
    cloud.mend_builds()
    wait_for("the build has ended", lambda: not _is_building(cloud, server), 20)
    cloud.bus.lost = set()
    cloud.settle(server)


def deleted_late(cloud: UnreliableCloud) -> None:
    server = _active(cloud)
    _delete(cloud, server)
    cloud.expire()
    cloud.settle(server)


def stopped_while_a_rebuild_is_undone(cloud: UnreliableCloud) -> None:
    server = _active(cloud)
    cloud.bus.lost = {"fence_instance"}
    _act(cloud, server, "rebuild", {"imageRef": cloud.image_id})
    cloud.bus.held = []
    cloud.expire()
    _act(cloud, server, "os-stop")
    cloud.bus.lost = set()
    cloud.settle(server)


#: Runs by rule of `tests.model.unguarded`.
RUNS: dict[str, Callable[[UnreliableCloud], None]] = {
    "one driver": scheduled_twice,
    "confirmation": repeated_while_it_builds,
    "revocation": fenced_before_its_command,
    "fence before report": failed_at_a_host,
    "instance lock": deleted_while_it_builds,
    "report generation": reported_twice,
    "action order": stopped_late,
    "cleanup": deleted_while_its_host_is_away,
    "late success": built_late,
    "lasting delete": deleted_late,
    "undo first": stopped_while_a_rebuild_is_undone,
}


def run(cloud: UnreliableCloud, rule: str, guard: contextlib.AbstractContextManager[object]) -> None:
    """Make the run of a rule under a guard, whatever becomes of the server."""
    cloud.begin()
    with guard:
        RUNS[rule](cloud)
