"""Guests with CPUs of their own fill hosts, and give them back on every way that leads away from a host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, tidy_up
from tests.functional.server_requests import act, ask, domain, fault, make_flavors, migrate, place, settled
from tests.support.waiting import wait_for

#: CPU sets of a host with eight CPUs in two cells; 0-1 and 4-5 are dedicated.
SETS = "[compute]\ncpu_dedicated_set = 0-1,4-5\ncpu_shared_set = 2-3,6-7\n"
FLAVORS = {
    "pinned": {"hw:cpu_policy": "dedicated"},
    "isolated": {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
    "nodes": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"},
    "mixed": {"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"},
    "large": {"hw:mem_page_size": "2MB"},
    "shared": {"hw:cpu_policy": "shared"},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("numa")
    with cloud.running(path, computes=2, memory_mb=1024, extra_config=SETS) as ready:
        make_flavors(ready, FLAVORS, vcpus=2)
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)
    running.audit()


def held(running: Cloud, server: str) -> tuple[str, list[int]]:
    """Its host, and the CPUs there that are its own: the API and the guest say the same."""
    host = settled(running, server)["OS-EXT-SRV-ATTR:host"]
    told = ask(running, "GET", f"/servers/{server}/topology", version="2.78")
    pinned = sorted(cpu for node in told["nodes"] for cpu in node["cpu_pinning"].values())
    guest: list[int] = domain(running, host, server)["host_cpus"]
    assert pinned and set(pinned) <= set(guest)
    return host, guest


def test_numa_servers_fill_the_hosts_and_the_next_gets_the_reason(tidy: Cloud) -> None:
    servers = [server for _ in range(2) for server in tidy.create(count=2, flavor="pinned")]
    tidy.wait_active(servers)
    places = [(host, cpu) for server in servers for host, cpus in [held(tidy, server)] for cpu in cpus]
    assert sorted(places) == [(host, cpu) for host in tidy.computes for cpu in (0, 1, 4, 5)]
    (late,) = tidy.create(flavor="pinned")
    says = "2 failed NUMATopologyFilter (2 dedicated CPUs requested in a NUMA cell, at most 0 free)"
    assert says in fault(tidy, late)
    (shared,) = tidy.create(flavor="shared")
    tidy.wait_active([shared])
    assert ask(tidy, "GET", f"/servers/{shared}/topology", version="2.78") == {"nodes": [], "pagesize_kb": None}
    told = ask(tidy, "GET", f"/servers/{servers[0]}/topology", version="2.78", token="user:demo")
    assert told["nodes"][0].keys() == {"memory_mb", "siblings", "vcpu_set"}
    tidy.audit()
    gone = held(tidy, servers[0])
    ask(tidy, "DELETE", f"/servers/{servers[0]}", status=204)
    wait_for("it is gone", lambda: tidy.show(servers[0]) is None)
    (again,) = tidy.create(flavor="pinned")
    tidy.wait_active([again])
    assert held(tidy, again) == gone


def test_nodes_cores_and_pages(tidy: Cloud) -> None:
    nodes, isolated, large = (tidy.create(flavor=name)[0] for name in ("nodes", "isolated", "large"))
    found = tidy.wait_settled([nodes, isolated, large])
    assert [found[item]["status"] for item in (nodes, large)] == ["ACTIVE", "ACTIVE"]
    assert len(held(tidy, nodes)[1]) == 2
    assert "2 failed NUMATopologyFilter (2 whole cores requested in a NUMA cell" in found[isolated]["fault"]["message"]
    told = ask(tidy, "GET", f"/servers/{large}/topology", version="2.78")
    assert (told["pagesize_kb"], told["nodes"][0]["cpu_pinning"]) == (2048, {})


def test_mixed_server_has_a_dedicated_and_a_shared_cpu_on_each_way(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="mixed")
    tidy.wait_active([server])
    host, cpus = held(tidy, server)
    told = ask(tidy, "GET", f"/servers/{server}/topology", version="2.78")
    assert (len(cpus), [*told["nodes"][0]["cpu_pinning"]]) == (1, ["1"])
    assert migrate(tidy, server).status_code == 202
    other = next(compute for compute in tidy.computes if compute != host)
    assert place(tidy, server) == ("ACTIVE", other)
    assert (held(tidy, server)[0], len(held(tidy, server)[1])) == (other, 1)
    tidy.audit()
    act(tidy, server, {"resize": {"flavorRef": "pinned"}}, "VERIFY_RESIZE")
    assert len(held(tidy, server)[1]) == 2
    act(tidy, server, {"revertResize": None}, "ACTIVE")
    assert len(held(tidy, server)[1]) == 1


def test_whatever_takes_a_server_away_gives_them_back(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="pinned")
    tidy.wait_active([server])
    host, _ = held(tidy, server)
    assert migrate(tidy, server).status_code == 202
    other = next(compute for compute in tidy.computes if compute != host)
    assert place(tidy, server) == ("ACTIVE", other)
    assert held(tidy, server)[0] == other
    tidy.audit()
    act(tidy, server, {"resize": {"flavorRef": "nodes"}}, "VERIFY_RESIZE")
    assert len(held(tidy, server)[1]) == 2
    act(tidy, server, {"revertResize": None}, "ACTIVE")
    assert held(tidy, server)[0] == other
    tidy.audit()
    for flavor in ("nodes", "pinned"):
        act(tidy, server, {"resize": {"flavorRef": flavor}}, "VERIFY_RESIZE")
        ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
        assert settled(tidy, server)["status"] == "ACTIVE"
    tidy.audit()
    act(tidy, server, {"shelve": None}, "SHELVED_OFFLOADED")
    everywhere = [item for _ in range(2) for item in tidy.create(count=2, flavor="pinned")]
    tidy.wait_active(everywhere)
    ask(tidy, "DELETE", f"/servers/{everywhere[0]}", status=204)
    wait_for("it is gone", lambda: tidy.show(everywhere[0]) is None)
    act(tidy, server, {"unshelve": None}, "ACTIVE")
    taken = [(where, cpu) for item in (server, *everywhere[1:]) for where, cpus in [held(tidy, item)] for cpu in cpus]
    assert len(set(taken)) == 8
    act(tidy, server, {"reboot": {"type": "HARD"}}, "ACTIVE")
    act(tidy, server, {"rebuild": {"imageRef": tidy.image_id}}, "ACTIVE")
    assert {(held(tidy, server)[0], cpu) for cpu in held(tidy, server)[1]} <= set(taken)


def test_a_lost_host_has_none_of_them_any_more(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="pinned")
    tidy.wait_active([server])
    lost, _ = held(tidy, server)
    lose(tidy, lost)
    assert tidy.evacuate(server).status_code == 200
    tidy.wait_active([server])
    assert held(tidy, server)[0] != lost
    come_back(tidy, lost)
    tidy.audit()


def test_an_image_that_asks_for_another_place_is_no_rebuild(tidy: Cloud) -> None:
    (server,) = tidy.create()
    tidy.wait_active([server])
    path = f"/images/{tidy.image_id}/metadata"
    body = {"rebuild": {"imageRef": tidy.image_id}}
    ask(tidy, "POST", path, {"metadata": {"hw_cpu_policy": "dedicated"}})
    try:
        refused = ask(tidy, "POST", f"/servers/{server}/action", body, status=400)
        assert "a rebuild cannot change that" in refused["badRequest"]["message"]
    finally:
        ask(tidy, "DELETE", f"{path}/hw_cpu_policy", status=204)
