"""Servers with PCI devices of their hosts: who gets which, what gives them back, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, tidy_up
from tests.functional.server_requests import act, ask, domain, fault, make_flavors, settled
from tests.support.waiting import wait_for

#: The fake machine offers the accelerator of its first cell, and its network card.
CONFIG = """[pci]
alias = {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}
alias = {"name": "card", "vendor_id": "8086", "product_id": "1592", "device_type": "type-PF"}
alias = {"name": "function", "vendor_id": "8086", "product_id": "1889", "device_type": "type-VF"}
device_spec = {"address": "0000:41:00.0"}
device_spec = {"devname": "ens1", "physical_network": "physnet1"}
[network]
project_ranges = 10.64.0.0/16
"""
GPU = "0000:41:00.0"
FLAVORS = {"gpu": "gpu:1", "card": "card:1", "function": "function:2", "unknown": "fpga:1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("pci")
    with cloud.running(path, computes=2, memory_mb=1024, extra_config=CONFIG) as ready:
        make_flavors(ready, {name: {"pci_passthrough:alias": alias} for name, alias in FLAVORS.items()})
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)
    running.audit()


def held(running: Cloud, server: str) -> tuple[str, list[str]]:
    """Return the host of a server, and the devices that its guest has there."""
    host = settled(running, server)["OS-EXT-SRV-ATTR:host"]
    devices: list[str] = domain(running, host, server)["pci"]
    return host, devices


def refused(running: Cloud, server: str, body: dict[str, Any], status: int) -> str:
    (error,) = ask(running, "POST", f"/servers/{server}/action", body, status=status, version="2.30").values()
    return str(error["message"])


def test_servers_take_the_devices_and_the_next_gets_the_reason(tidy: Cloud) -> None:
    servers = tidy.create(count=2, flavor="gpu")
    tidy.wait_active(servers)
    assert sorted(held(tidy, server) for server in servers) == [(host, [GPU]) for host in sorted(tidy.computes)]
    (late,) = tidy.create(flavor="gpu")
    message = fault(tidy, late)
    assert message.startswith("No valid host was found.")
    assert "2 failed PciPassthroughFilter (1 PCI devices gpu requested, 0 free)" in message
    tidy.audit()
    gone = held(tidy, servers[0])
    ask(tidy, "DELETE", f"/servers/{servers[0]}", status=204)
    wait_for("it is gone", lambda: tidy.show(servers[0]) is None)
    (again,) = tidy.create(flavor="gpu")
    tidy.wait_active([again])
    assert held(tidy, again) == gone


def test_card_and_its_virtual_functions_are_not_given_to_two_servers(tidy: Cloud) -> None:
    functions = [server for _ in range(3) for server in tidy.create(flavor="function")]
    tidy.wait_active(functions)
    taken = [(host, device) for server in functions for host, devices in [held(tidy, server)] for device in devices]
    assert len(set(taken)) == 6
    (card,) = tidy.create(flavor="card")
    assert "2 failed PciPassthroughFilter (1 PCI devices card requested, 0 free)" in fault(tidy, card)
    (plain,) = tidy.create()
    tidy.wait_active([plain])
    assert held(tidy, plain)[1] == []


def test_whatever_takes_a_server_away_gives_its_device_back(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="gpu")
    tidy.wait_active([server])
    host, _ = held(tidy, server)
    other = next(compute for compute in tidy.computes if compute != host)
    act(tidy, server, {"migrate": None}, "VERIFY_RESIZE")
    ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
    assert settled(tidy, server)["status"] == "ACTIVE"
    assert held(tidy, server) == (other, [GPU])
    tidy.audit()
    act(tidy, server, {"resize": {"flavorRef": "card"}}, "VERIFY_RESIZE")
    assert held(tidy, server)[1] == ["0000:c1:00.0"]
    tidy.audit()
    act(tidy, server, {"revertResize": None}, "ACTIVE")
    assert held(tidy, server) == (other, [GPU])
    act(tidy, server, {"reboot": {"type": "HARD"}}, "ACTIVE")
    act(tidy, server, {"rebuild": {"imageRef": tidy.image_id}}, "ACTIVE")
    assert held(tidy, server) == (other, [GPU])
    act(tidy, server, {"shelve": None}, "SHELVED_OFFLOADED")
    tidy.audit()
    both = tidy.create(count=2, flavor="gpu")
    tidy.wait_active(both)
    ask(tidy, "DELETE", f"/servers/{both[0]}", status=204)
    wait_for("it is gone", lambda: tidy.show(both[0]) is None)
    act(tidy, server, {"unshelve": None}, "ACTIVE")
    assert sorted(held(tidy, item) for item in (server, both[1])) == [(name, [GPU]) for name in sorted(tidy.computes)]


def test_server_of_a_lost_host_gets_a_device_elsewhere(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="gpu")
    tidy.wait_active([server])
    lost, _ = held(tidy, server)
    lose(tidy, lost)
    assert tidy.evacuate(server).status_code == 200
    tidy.wait_active([server])
    where, devices = held(tidy, server)
    assert (where != lost, devices) == (True, [GPU])
    come_back(tidy, lost)
    tidy.audit()


def test_request_that_devices_do_not_permit_is_refused(tidy: Cloud) -> None:
    body = {"server": {"name": "x", "flavorRef": "unknown", "imageRef": tidy.image_id}}
    assert "alias does not define fpga" in ask(tidy, "POST", "/servers", body, status=400)["badRequest"]["message"]
    (server,) = tidy.create(flavor="gpu")
    tidy.wait_active([server])
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    assert "PCI devices gpu, which cannot be migrated while it runs" in refused(tidy, server, live, 400)
    assert "has PCI devices of its host, so it cannot be suspended" in refused(tidy, server, {"suspend": None}, 409)


def network(running: Cloud, method: str, path: str, key: str, **values: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{running.network_port}/v2.0/{path}"
    headers = {"X-Auth-Token": running.token}
    answer = requests.request(method, url, json={key: values}, headers=headers, timeout=60)
    assert answer.ok, answer.text
    found: dict[str, Any] = answer.json()[key] if answer.content else {}
    return found


def test_port_brings_a_virtual_function_along_and_loses_it_with_its_server(tidy: Cloud) -> None:
    provider = {"provider:network_type": "vlan", "provider:physical_network": "physnet1"}
    physical = network(tidy, "POST", "networks", "network", **provider, **{"provider:segmentation_id": 42})
    cidr = {"network_id": physical["id"], "ip_version": 4, "cidr": "10.64.9.0/24"}
    network(tidy, "POST", "subnets", "subnet", **cidr)
    kind = {"network_id": physical["id"], "binding:vnic_type": "direct"}
    first, second = (network(tidy, "POST", "ports", "port", **kind)["id"] for _ in range(2))
    body = {"name": "vf", "flavorRef": "1", "imageRef": tidy.image_id, "networks": [{"port": first}]}
    server = ask(tidy, "POST", "/servers", {"server": body}, status=202)["server"]["id"]
    tidy.wait_active([server])
    host, devices = held(tidy, server)
    assert len(devices) == 1
    bound = network(tidy, "GET", f"ports/{first}", "port")
    assert (bound["binding:host_id"], bound["binding:vif_type"]) == (host, "hw_veb")
    interface = {"interfaceAttachment": {"port_id": second}}
    ask(tidy, "POST", f"/servers/{server}/os-interface", interface)
    settled(tidy, server)
    assert len(set(held(tidy, server)[1])) == 2
    tidy.audit()
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    assert "has a device of its host, which cannot be migrated" in refused(tidy, server, live, 400)
    act(tidy, server, {"migrate": None}, "VERIFY_RESIZE")
    ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
    settled(tidy, server)
    assert (held(tidy, server)[0] != host, len(held(tidy, server)[1])) == (True, 2)
    ask(tidy, "DELETE", f"/servers/{server}/os-interface/{second}", status=202)
    wait_for("it is detached", lambda: len(held(tidy, server)[1]) == 1)
    tidy.audit()
    act(tidy, server, {"shelve": None}, "SHELVED_OFFLOADED")
    tidy.audit()
    act(tidy, server, {"unshelve": None}, "ACTIVE")
    assert len(held(tidy, server)[1]) == 1
    ask(tidy, "DELETE", f"/servers/{server}", status=204)
    wait_for("it is gone", lambda: tidy.show(server) is None)
    free = network(tidy, "GET", f"ports/{first}", "port")
    assert (free["device_id"], free["binding:vif_type"]) == ("", "unbound")
    for port_id in (first, second):
        network(tidy, "DELETE", f"ports/{port_id}", "port")


def test_owner_sees_that_a_device_has_vanished_and_nobody_gets_it(tidy: Cloud) -> None:
    (server,) = tidy.create(flavor="gpu")
    tidy.wait_active([server])
    try:
        for host in tidy.computes:
            tidy.control_host(host, unplugged=[GPU])

        def events() -> list[str]:
            listed = ask(tidy, "GET", f"/servers/{server}/os-instance-actions", token="user:demo")["instanceActions"]
            return [item["request_id"] for item in listed if item["action"] == "device_lost"]

        (request_id,) = wait_for("its history says so", events, timeout=60)
        path = f"/servers/{server}/os-instance-actions/{request_id}"
        (event,) = ask(tidy, "GET", path, version="2.84")["instanceAction"]["events"]
        assert event["details"] == "The host does not offer PCI devices of the server any more: gpu."
        (late,) = tidy.create(flavor="gpu")
        assert "2 failed PciPassthroughFilter (1 PCI devices gpu requested, 0 free)" in fault(tidy, late)
    finally:
        for host in tidy.computes:
            tidy.control_host(host)
