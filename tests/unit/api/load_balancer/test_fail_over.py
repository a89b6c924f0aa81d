"""Load balancers whose hosts are lost, or that move: an address is on one host at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.load_balancer.wing import HostBalancers
from nova_lite.db.load_balancer import hosts
from nova_lite.load_balancer.objects import WING, HostReport, Report
from tests.support.api_client import ADMIN
from tests.support.load_balancers import LEASE, World


def holders(world: World, balancer_id: str) -> list[str]:
    """Return the hosts that may have the address, as they know it."""
    found = {name: host._backend.report() for name, host in world.hosts.items()}
    return [name for name, report in found.items() for one in report.balancers if one.id == balancer_id and one.holds]


def sweep(world: World) -> None:
    world.manager.wings.loaded["load_balancer"].sweep()  # type: ignore[attr-defined]


def started(world: World) -> str:
    for name in ("host1", "host2"):
        world.add_host(name)
    balancer_id: str = world.balancer()["id"]
    assert holders(world, balancer_id) == ["host1"]
    return balancer_id


def test_stand_by_takes_over_once_the_lease_of_a_lost_host_is_over(world: World) -> None:
    balancer_id = started(world)
    world.age(LEASE + hosts.MARGIN - 1, "host1")
    sweep(world)
    world.tick("host2")
    assert holders(world, balancer_id) == ["host1"]
    world.age(2, "host1")
    sweep(world)
    world.tick("host2")
    assert holders(world, balancer_id) == ["host1", "host2"]  # the kernel of host1 has removed the address
    world.tick("host1")
    assert holders(world, balancer_id) == ["host2"]
    row = world.row(balancer_id)
    assert row is not None and (row.host, row.standby_host, row.former_host) == ("host2", None, None)
    port = world.port(row.vip_port_id)
    assert port is not None and port.bound_host == "host2"
    sweep(world)  # host1 is back, and the stand-by now
    row = world.row(balancer_id)
    assert row is not None and (row.host, row.standby_host) == ("host2", "host1")


def test_host_without_a_lease_gives_up_floating_addresses_of_its_load_balancers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    balancer_id = started(world)
    host, found, kept = world.hosts["host1"], list[list[str]](), list[tuple[list[str], int]]()

    def refuse(_: object) -> None:
        raise exceptions.MessagingUnavailable(what="wing_report")

    filters = SimpleNamespace(
        withdraw_addresses=lambda ports: found.append(list(ports)),
        keep_addresses=lambda ports, seconds: kept.append((list(ports), seconds)),
    )
    monkeypatch.setattr(host, "driver", SimpleNamespace(filters=filters))
    host.woken.set()
    host.tick(0)
    ((ports, seconds),) = kept
    assert 0 < seconds <= LEASE, "the kernel removes them, if the daemon does not"
    monkeypatch.setattr(host, "send", refuse)
    for seconds in (0.0, LEASE):
        host._until -= seconds
        host.woken.set()
        with pytest.raises(exceptions.MessagingUnavailable):
            host.tick(0)
    row = world.row(balancer_id)
    assert row is not None and found == [ports] == [[row.vip_port_id]]
    again = HostBalancers(WING, world.conf, "host1", cast(Any, SimpleNamespace(filters=filters)), host._conductor)
    monkeypatch.setattr(again, "send", refuse)
    again.woken.set()
    with pytest.raises(exceptions.MessagingUnavailable):
        again.tick(0)
    assert found[1:] == [[row.vip_port_id]], "a daemon that has started again does not know its lease"


def test_moving_load_balancer_is_released_before_the_other_host_has_it(world: World) -> None:
    balancer_id = started(world)
    assert world("PUT", f"/loadbalancers/{balancer_id}/failover", token=ADMIN).status_code == 202
    world.tick("host2")
    assert holders(world, balancer_id) == ["host1"] and world.status(balancer_id) == "PENDING_UPDATE"
    world.db.write(hosts.sync, "host1", HostReport(balancers=[Report(id=balancer_id, version=2, holds=True)]))
    row = world.row(balancer_id)
    assert row is not None and row.former_host == "host1"
    world.tick("host1")
    assert holders(world, balancer_id) == []
    world.tick("host2")
    assert holders(world, balancer_id) == ["host2"] and world.status(balancer_id) == "ACTIVE"


def test_move_from_a_host_that_vanishes_waits_for_its_lease(world: World) -> None:
    balancer_id = started(world)
    assert world("PUT", f"/loadbalancers/{balancer_id}/failover", token=ADMIN).status_code == 202
    sweep(world)
    world.tick("host2")
    assert holders(world, balancer_id) == ["host1"]
    world.age(LEASE + hosts.MARGIN + 1, "host1")
    sweep(world)
    world.tick("host2")
    assert "host2" in holders(world, balancer_id) and world.status(balancer_id) == "ACTIVE"


def test_load_balancer_without_another_host_does_not_move(world: World) -> None:
    world.add_host("host1")
    balancer_id = world.balancer()["id"]
    world.refused("PUT", f"/loadbalancers/{balancer_id}/failover", None, 409, "no other host", ADMIN)
    world.age(LEASE + hosts.MARGIN + 1)
    sweep(world)
    world.tick()
    assert holders(world, balancer_id) == ["host1"]


def test_deleted_load_balancer_of_a_lost_host_ends_with_its_lease(world: World) -> None:
    balancer_id = started(world)
    assert world("DELETE", f"/loadbalancers/{balancer_id}").status_code == 204
    sweep(world)
    assert world.status(balancer_id) == "PENDING_DELETE"
    world.age(LEASE + hosts.MARGIN + 1, "host1")
    sweep(world)
    assert world.row(balancer_id) is None


def test_change_that_no_host_carries_out_is_an_error(world: World) -> None:
    world.add_host("host1")
    made = world("POST", "/loadbalancers", {"loadbalancer": {"vip_network_id": world.network.id}}).json["loadbalancer"]
    world.age_change(made["id"], hosts.DEADLINE + 1)
    sweep(world)
    assert world.status(made["id"]) == "ERROR"


def test_problem_of_a_host_is_an_error_of_what_has_changed(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    body = {"listener": {"loadbalancer_id": ids["loadbalancer"], "protocol": "TCP", "protocol_port": 5}}
    listener = world("POST", "/listeners", body).json["listener"]["id"]
    row = world.row(ids["loadbalancer"])
    assert row is not None
    said = Report(id=row.id, version=row.tree["version"], holds=True, problem="no room")
    world.db.write(hosts.sync, "host1", HostReport(balancers=[said]))
    assert world.status(row.id) == "ERROR"
    assert world.get(f"/listeners/{listener}")["listener"]["provisioning_status"] == "ERROR"
    assert world.get(f"/pools/{ids['pool']}")["pool"]["provisioning_status"] == "ACTIVE"


def test_health_of_members_is_that_of_their_pool(world: World) -> None:
    world.add_host("host1")
    ids = world.whole()
    path = f"/pools/{ids['pool']}/members"
    second = world.make(path, "member", address="10.0.0.10", protocol_port=80)["id"]
    row = world.row(ids["loadbalancer"])
    assert row is not None

    def states(**passes: bool) -> tuple[str, ...]:
        said = Report(id=row.id, version=row.tree["version"], holds=True)
        said.members = {ids["member"]: passes["first"], second: passes["second"]}
        world.db.write(hosts.sync, "host1", HostReport(balancers=[said]))
        shown = [world.get(f"{path}/{one}")["member"] for one in (ids["member"], second)]
        shown += [world.get(f"/pools/{ids['pool']}")["pool"], world.get(f"/loadbalancers/{row.id}")["loadbalancer"]]
        return tuple(one["operating_status"] for one in shown)

    assert states(first=True, second=True) == ("ONLINE", "ONLINE", "ONLINE", "ONLINE")
    assert states(first=True, second=False) == ("ONLINE", "ERROR", "DEGRADED", "DEGRADED")
    assert states(first=False, second=False) == ("ERROR", "ERROR", "ERROR", "ERROR")


def test_host_with_a_problem_gets_no_load_balancers(world: World) -> None:
    world.add_host("host1")
    world.db.write(hosts.sync, "host1", HostReport(problem="haproxy is missing"))
    assert world.balancer()["provisioning_status"] == "ERROR"


def test_late_report_of_a_host_releases_nothing(world: World) -> None:
    balancer_id = started(world)
    first, second = (HostReport(boot_id="b", number=number) for number in (1, 2))
    second.balancers = [Report(id=balancer_id, version=1, holds=True)]
    world.db.write(hosts.sync, "host1", second)
    assert world("PUT", f"/loadbalancers/{balancer_id}/failover", token=ADMIN).status_code == 202
    with pytest.raises(exceptions.Conflict):
        world.db.write(hosts.sync, "host1", first)
    row = world.row(balancer_id)
    assert row is not None and row.former_host == "host1"
