"""Interfaces come and go with all daemons: in the database, in the guest, on its host and in its actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.server_requests import attach
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("interfaces"), computes=1) as ready:
        yield ready


@pytest.fixture
def server(running: Cloud) -> Iterator[str]:
    (server_id,) = running.create()
    running.wait_active([server_id])
    yield server_id
    running.control_host(running.computes[0])
    running.delete_all()
    running.audit()


def listed(running: Cloud, server: str) -> dict[str, str]:
    answer = running.request("GET", f"/servers/{server}/os-interface").json()["interfaceAttachments"]
    return {item["port_id"]: item["port_state"] for item in answer}


def in_guest(running: Cloud, server: str) -> tuple[set[str], set[str]]:
    """Ids of ports that the guest has, and that its host has plugged."""
    domains = running._domains_of(running.computes[0])
    guest: dict[str, Any] = json.loads((domains / f"{server}.json").read_text())
    plugged = json.loads((domains.parent / "vifs" / f"{server}.json").read_text())
    return set(guest["interfaces"]), {vif["id"] for vif in plugged}


def settled(running: Cloud, server: str, count: int) -> set[str]:
    """Wait until the server has so many interfaces, all up; return their ids, which agree everywhere."""

    def same() -> set[str]:
        states = listed(running, server)
        good = len(states) == count and set(states.values()) == {"ACTIVE"}
        return set(states) if good and in_guest(running, server) == (set(states), set(states)) else set()

    found: set[str] = wait_for(f"{count} interfaces", same)
    return found


def test_attach_and_detach(running: Cloud, server: str) -> None:
    (first,) = settled(running, server, 1)
    network = running.request("GET", "/os-networks").json()["networks"][0]["id"]
    answer = attach(running, server, net_id=network, fixed_ips=[{"ip_address": "10.99.7.7"}], tag="backup")
    assert answer.status_code == 200, answer.text
    shown = answer.json()["interfaceAttachment"]
    assert (shown["fixed_ips"][0]["ip_address"], shown["tag"]) == ("10.99.7.7", "backup")
    assert settled(running, server, 2) == {first, shown["port_id"]}
    assert attach(running, server, net_id=network, fixed_ips=[{"ip_address": "10.99.7.7"}]).status_code == 409
    assert running.request("DELETE", f"/servers/{server}/os-interface/{first}").status_code == 202
    assert settled(running, server, 1) == {shown["port_id"]}
    assert running.request("DELETE", f"/servers/{server}/os-interface/{first}").status_code == 404
    actions = running.request("GET", f"/servers/{server}/os-instance-actions").json()["instanceActions"]
    assert [action["action"] for action in actions] == ["detach_interface", "attach_interface", "create"]


def test_several_at_once_all_come(running: Cloud, server: str) -> None:
    with futures.ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: attach(running, server).status_code, range(3)))
    assert answers == [200, 200, 200]
    settled(running, server, 4)


def test_a_server_that_is_off_has_it_at_its_next_start(running: Cloud, server: str) -> None:
    running.action(server, {"os-stop": None})
    wait_for("it is off", lambda: (running.show(server) or {})["status"] == "SHUTOFF")
    assert attach(running, server).status_code == 200
    wait_for("it is attached", lambda: set(listed(running, server).values()) == {"DOWN"})
    running.action(server, {"os-start": None})
    settled(running, server, 2)


@pytest.mark.parametrize("step", ["attach_interface", "attach_interface_after"])
def test_interface_failed_attach_leaves_no_port(running: Cloud, server: str, step: str) -> None:
    before = settled(running, server, 1)
    running.control_host(running.computes[0], fail_at=[step], fail_count=1)
    assert attach(running, server).status_code == 200
    assert settled(running, server, 1) == before


@pytest.mark.parametrize("step", ["detach_interface", "detach_interface_after"])
def test_interface_failed_detach_keeps_the_port(running: Cloud, server: str, step: str) -> None:
    (port,) = settled(running, server, 1)
    running.control_host(running.computes[0], fail_at=[step], fail_count=1)
    assert running.request("DELETE", f"/servers/{server}/os-interface/{port}").status_code == 202
    wait_for("it failed", lambda: listed(running, server)[port] == "ACTIVE")
    assert settled(running, server, 1) == {port}
