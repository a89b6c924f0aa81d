"""Servers with vGPUs of their hosts: who gets which, what gives them back, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, tidy_up
from tests.functional.server_requests import act, ask, domain, fault, make_flavors, settled
from tests.support.waiting import wait_for

#: The fake machine has a GPU with four places for vGPUs of this type. Its first half is given out.
GPU = "0000:81:00.0"
CONFIG = """[devices]
enabled_mdev_types = nvidia-35
[mdev_nvidia-35]
max_instances = 2
[pci]
alias = {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}
device_spec = {"address": "0000:81:00.0"}
"""
FLAVORS = {
    "one": {"resources:VGPU": "1"},
    "two": {"resources:VGPU": "2"},
    "big": {"resources:CUSTOM_BIG": "1"},
    "whole": {"pci_passthrough:alias": "gpu:1"},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("vgpus")
    with cloud.running(path, computes=2, memory_mb=1024, extra_config=CONFIG) as ready:
        make_flavors(ready, FLAVORS)
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)
    running.audit()


def active(running: Cloud, flavor: str, count: int = 1) -> list[str]:
    servers = running.create(count=count, flavor=flavor)
    running.wait_active(servers)
    return list(servers)


def held(running: Cloud, server: str) -> tuple[str, list[str]]:
    """Return the host of a server, and the devices that its guest has there."""
    host = settled(running, server)["OS-EXT-SRV-ATTR:host"]
    devices: list[str] = domain(running, host, server)["pci"]
    return host, devices


def places(running: Cloud) -> list[tuple[str, list[str]]]:
    return [(host, [f"{GPU}#{number}"]) for host in sorted(running.computes) for number in range(2)]


def test_servers_take_the_places_and_the_next_gets_the_reason(tidy: Cloud) -> None:
    servers = active(tidy, "one", 4)
    assert sorted(held(tidy, server) for server in servers) == places(tidy)
    (late,) = tidy.create(flavor="one")
    assert "2 failed PciPassthroughFilter (1 VGPU requested, 0 free)" in fault(tidy, late)
    tidy.audit()
    gone = held(tidy, servers[0])
    ask(tidy, "DELETE", f"/servers/{servers[0]}", status=204)
    wait_for("it is gone", lambda: tidy.show(servers[0]) is None)
    assert [held(tidy, server) for server in active(tidy, "one")] == [gone]


def test_gpu_is_given_whole_or_in_parts(tidy: Cloud) -> None:
    whole, parts = active(tidy, "whole")[0], active(tidy, "two")[0]
    assert {held(tidy, whole)[0], held(tidy, parts)[0]} == set(tidy.computes)
    assert (held(tidy, whole)[1], held(tidy, parts)[1]) == ([GPU], [f"{GPU}#0", f"{GPU}#1"])
    (late,) = tidy.create(flavor="one")
    assert "2 failed PciPassthroughFilter (1 VGPU requested, 0 free)" in fault(tidy, late)
    (other,) = tidy.create(flavor="big")
    assert "2 failed PciPassthroughFilter (1 CUSTOM_BIG requested, 0 free)" in fault(tidy, other)


def test_vgpu_stays_at_reboots_and_goes_with_moves(tidy: Cloud) -> None:
    (server,) = active(tidy, "one")
    before = held(tidy, server)
    act(tidy, server, {"os-stop": None}, "SHUTOFF")
    act(tidy, server, {"os-start": None}, "ACTIVE")
    act(tidy, server, {"reboot": {"type": "HARD"}}, "ACTIVE")
    assert held(tidy, server) == before
    act(tidy, server, {"migrate": None}, "VERIFY_RESIZE")
    ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
    assert settled(tidy, server)["status"] == "ACTIVE"
    (other,) = [host for host in tidy.computes if host != before[0]]
    assert held(tidy, server) == (other, [f"{GPU}#0"])
    act(tidy, server, {"shelve": None}, "SHELVED_OFFLOADED")
    tidy.audit()
    assert sorted(held(tidy, item) for item in active(tidy, "two", 2)) == [
        (host, [f"{GPU}#0", f"{GPU}#1"]) for host in sorted(tidy.computes)
    ]


def test_server_of_a_lost_host_gets_a_vgpu_elsewhere(tidy: Cloud) -> None:
    (server,) = active(tidy, "one")
    lost, _ = held(tidy, server)
    lose(tidy, lost)
    assert tidy.evacuate(server).status_code == 200
    tidy.wait_active([server])
    where, devices = held(tidy, server)
    assert (where != lost, devices) == (True, [f"{GPU}#0"])
    come_back(tidy, lost)
    tidy.audit()


def test_request_that_vgpus_do_not_permit_is_refused(tidy: Cloud) -> None:
    spec = {"extra_specs": {"resources1:VGPU": "1"}}
    flavor = ask(tidy, "POST", "/flavors", {"flavor": {"name": "g", "ram": 64, "disk": 1, "vcpus": 1}}, status=200)
    path = f"/flavors/{flavor['flavor']['id']}/os-extra_specs"
    assert "which resources:VGPU requests" in ask(tidy, "POST", path, spec, status=400)["badRequest"]["message"]
    (server,) = active(tidy, "one")
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    refused = ask(tidy, "POST", f"/servers/{server}/action", live, status=400, version="2.30")
    assert "has vGPUs, which cannot be migrated while it runs" in refused["badRequest"]["message"]
    ask(tidy, "POST", f"/servers/{server}/action", {"suspend": None}, status=409)
