"""Cold moves between hosts: resized, confirmed, reverted, with failing hosts and daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, placed, tidy_up
from tests.support.waiting import wait_for

BIGGER = "900"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("resize"), computes=2) as ready:
        body = {"flavor": {"name": "bigger", "id": BIGGER, "vcpus": 2, "ram": 128, "disk": 2}}
        assert ready.request("POST", "/flavors", body).status_code == 200
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)


def act(running: Cloud, server_id: str, body: dict[str, Any], version: str = "2.1") -> requests.Response:
    return running.request("POST", f"/servers/{server_id}/action", body, version=version)


def settled(running: Cloud, server_id: str, status: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        server = running.show(server_id)
        idle = server is not None and server["OS-EXT-STS:task_state"] is None
        return server if server is not None and idle and server["status"] == status else None

    server: dict[str, Any] = wait_for(f"{server_id} is {status}", found)
    return server


def resized(running: Cloud) -> tuple[str, str, str]:
    server_id, host, other = placed(running)
    assert act(running, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    server = settled(running, server_id, "VERIFY_RESIZE")
    assert (server["OS-EXT-SRV-ATTR:host"], server["flavor"]["id"]) == (other, BIGGER)
    return server_id, host, other


def domain(running: Cloud, host: str, server_id: str) -> dict[str, Any]:
    file = running.path / host / "instances" / f"fake-{host}" / "domains" / f"{server_id}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def events(running: Cloud, server_id: str, kind: str) -> list[tuple[str, str]]:
    actions = running.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    request_id = next(action["request_id"] for action in actions if action["action"] == kind)
    found = running.request("GET", f"/servers/{server_id}/os-instance-actions/{request_id}").json()["instanceAction"]
    return [(event["event"], event["result"]) for event in found["events"]]


def test_resize_and_confirm(tidy: Cloud) -> None:
    server_id, host, other = resized(tidy)
    assert tidy.holders(server_id) == {host, other}
    assert (domain(tidy, host, server_id)["power_state"], domain(tidy, other, server_id)["vcpus"]) == (4, 2)
    tidy.audit()
    assert act(tidy, server_id, {"confirmResize": None}).status_code == 204
    settled(tidy, server_id, "ACTIVE")
    assert tidy.holders(server_id) == {other}
    assert events(tidy, server_id, "resize") == [
        ("conductor_migrate_server", "Success"),
        ("compute_resize_instance", "Success"),
        ("compute_finish_resize", "Success"),
    ]
    assert events(tidy, server_id, "confirmResize") == [("compute_confirm_resize", "Success")]


def test_resize_and_revert_and_again(tidy: Cloud) -> None:
    server_id, host, other = resized(tidy)
    assert act(tidy, server_id, {"revertResize": None}).status_code == 202
    server = settled(tidy, server_id, "ACTIVE")
    assert (server["OS-EXT-SRV-ATTR:host"], server["flavor"]["id"]) == (host, "1")
    assert (tidy.holders(server_id), domain(tidy, host, server_id)["power_state"]) == ({host}, 1)
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    settled(tidy, server_id, "VERIFY_RESIZE")
    assert domain(tidy, other, server_id)["generation"] == 3


def test_migrate_a_stopped_server_to_a_host(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    assert act(tidy, server_id, {"os-stop": None}).status_code == 202
    settled(tidy, server_id, "SHUTOFF")
    assert act(tidy, server_id, {"migrate": {"host": host}}, "2.56").status_code == 400
    assert act(tidy, server_id, {"migrate": {"host": "nowhere"}}, "2.56").status_code == 400
    assert act(tidy, server_id, {"migrate": {"host": other}}, "2.56").status_code == 202
    settled(tidy, server_id, "VERIFY_RESIZE")
    assert domain(tidy, other, server_id)["power_state"] == 4
    assert act(tidy, server_id, {"confirmResize": None}).status_code == 204
    settled(tidy, server_id, "SHUTOFF")
    assert act(tidy, server_id, {"os-start": None}).status_code == 202
    settled(tidy, server_id, "ACTIVE")


@pytest.mark.parametrize("step", ["copy_disk", "finish_migration", "finish_migration_after_domain"])
def test_a_destination_that_fails(tidy: Cloud, step: str) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(other, fail_at=[step])
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    server = settled(tidy, server_id, "ACTIVE")
    assert (server["OS-EXT-SRV-ATTR:host"], server["flavor"]["id"]) == (host, "1")
    assert (tidy.holders(server_id), domain(tidy, host, server_id)["power_state"]) == ({host}, 1)
    assert events(tidy, server_id, "resize")[-1] == ("compute_finish_resize", "Error")


def test_a_source_that_fails(tidy: Cloud) -> None:
    server_id, host, _ = placed(tidy)
    tidy.control_host(host, fail_at=["migrate_disk"])
    assert act(tidy, server_id, {"migrate": None}).status_code == 202
    settled(tidy, server_id, "ACTIVE")
    assert (tidy.holders(server_id), domain(tidy, host, server_id)["power_state"]) == ({host}, 1)


def test_no_room(tidy: Cloud) -> None:
    server_id, _, other = placed(tidy)
    tidy.kill(other)
    assert tidy.force_down(other).status_code == 200
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    settled(tidy, server_id, "ACTIVE")
    assert events(tidy, server_id, "resize") == [("conductor_migrate_server", "Error")]


def test_a_destination_that_is_killed_goes_on(tidy: Cloud) -> None:
    server_id, _, other = placed(tidy)
    tidy.control_host(other, delays={"copy_disk": 2.0})
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    wait_for("the destination is at it", lambda: other in tidy.holders(server_id))
    tidy.kill(other)
    tidy.control_host(other)
    tidy.start(other)
    settled(tidy, server_id, "VERIFY_RESIZE")
    assert tidy.domains() == {server_id: other}


def test_a_destination_that_is_lost_for_good(tidy: Cloud) -> None:
    """The destination returns with a command in its queue to create the guest, and ignores it."""
    server_id, host, other = placed(tidy)
    tidy.control_host(other, delays={"copy_disk": 600.0})
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    wait_for("the destination is at it", lambda: other in tidy.holders(server_id))
    tidy.kill(other)
    assert tidy.force_down(other).status_code == 200
    server = settled(tidy, server_id, "ACTIVE")
    assert (server["OS-EXT-SRV-ATTR:host"], domain(tidy, host, server_id)["power_state"]) == (host, 1)
    tidy.control_host(other)
    assert tidy.force_down(other, False).status_code == 200
    tidy.start(other)
    wait_for("it has cleaned up", lambda: tidy.holders(server_id) == {host})
    assert tidy.domains() == {server_id: host}


@pytest.mark.parametrize("moment", ["leaving", "arriving", "resized", "confirming", "reverting"])
def test_delete_at_any_moment(tidy: Cloud, moment: str) -> None:
    if moment in ("resized", "confirming", "reverting"):
        server_id, _, _ = resized(tidy)
        if moment == "confirming":
            act(tidy, server_id, {"confirmResize": None})
        elif moment == "reverting":
            act(tidy, server_id, {"revertResize": None})
    else:
        server_id, host, other = placed(tidy)
        tidy.control_host(host if moment == "leaving" else other, delays={"migrate_disk": 1.0, "copy_disk": 1.0})
        assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
        task = "resize_migrating" if moment == "leaving" else "resize_finish"
        wait_for(task, lambda: (tidy.show(server_id) or {})["OS-EXT-STS:task_state"] == task)
    assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("nothing is left", lambda: not tidy.holders(server_id))


# --- the source is lost


@pytest.mark.parametrize("word", ["evacuate", "delete"])
def test_a_source_that_is_lost_amid_it(tidy: Cloud, word: str) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, delays={"migrate_disk": 600.0})
    assert act(tidy, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    wait_for("it leaves", lambda: (tidy.show(server_id) or {})["OS-EXT-STS:task_state"] == "resize_migrating")
    lose(tidy, host)
    if word == "evacuate":
        assert tidy.evacuate(server_id).status_code == 200
        server = settled(tidy, server_id, "ACTIVE")
        assert (server["OS-EXT-SRV-ATTR:host"], server["flavor"]["id"]) == (other, "1")
    else:
        assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
        wait_for("it is gone", lambda: tidy.show(server_id) is None)
    come_back(tidy, host)
    left = {other} if word == "evacuate" else set()
    wait_for("nothing else is left", lambda: tidy.holders(server_id) == left)


def test_a_server_is_not_reverted_to_a_host_that_is_lost(tidy: Cloud) -> None:
    server_id, host, other = resized(tidy)
    lose(tidy, host)
    refused = act(tidy, server_id, {"revertResize": None})
    assert (refused.status_code, "which has its former disk, is down" in refused.text) == (409, True)
    assert domain(tidy, other, server_id)["power_state"] == 1
    assert act(tidy, server_id, {"confirmResize": None}).status_code == 204
    settled(tidy, server_id, "ACTIVE")
    come_back(tidy, host)
    wait_for("nothing else is left", lambda: tidy.holders(server_id) == {other})


# --- on one host


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Run a cloud with one host."""
    option = "[DEFAULT]\nallow_resize_to_same_host = true\n"
    with cloud.running(tmp_path_factory.mktemp("resize-here"), extra_config=option) as ready:
        body = {"flavor": {"name": "bigger", "id": BIGGER, "vcpus": 2, "ram": 128, "disk": 2}}
        assert ready.request("POST", "/flavors", body).status_code == 200
        yield ready


@pytest.fixture
def here(single: Cloud) -> Iterator[Cloud]:
    yield single
    single.control_host("compute-1")
    if "compute-1" not in single.processes:
        single.start("compute-1")
    single.wait_until_ready()
    single.delete_all()
    wait_for("nothing is left", lambda: not traces(single))
    single.audit()


def traces(single: Cloud) -> list[str]:
    """Return everything of instances on the only host."""
    path = single.path / "compute-1" / "instances" / "fake-compute-1"
    return [str(found) for kind in ("domains", "disks", "vifs", "aside") for found in (path / kind).iterdir()]


def used(single: Cloud) -> int:
    (node,) = single.request("GET", "/os-hypervisors/detail").json()["hypervisors"]
    return int(node["vcpus_used"])


def on_its_host(single: Cloud) -> str:
    (server_id,) = single.create()
    single.wait_active([server_id])
    assert act(single, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    assert settled(single, server_id, "VERIFY_RESIZE")["flavor"]["id"] == BIGGER
    assert (used(single), domain(single, "compute-1", server_id)["generation"]) == (3, 2)
    single.audit()
    return server_id


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("word", "flavor", "generation", "vcpus"), [("confirm", BIGGER, 2, 2), ("revert", "1", 1, 1)])
def test_a_resize_that_ends_where_it_began(
    here: Cloud, word: str, flavor: str, generation: int, vcpus: int, killed: bool
) -> None:
    server_id = on_its_host(here)
    if killed:
        here.kill("compute-1")
        here.start("compute-1")
    assert act(here, server_id, {f"{word}Resize": None}).status_code in (202, 204)
    assert settled(here, server_id, "ACTIVE")["flavor"]["id"] == flavor
    found = domain(here, "compute-1", server_id)
    assert (found["generation"], found["vcpus"], found["power_state"], used(here)) == (generation, vcpus, 1, vcpus)
    assert not [trace for trace in traces(here) if "/aside/" in trace]
    assert here.action(server_id, {"reboot": {"type": "HARD"}}).status_code == 202
    settled(here, server_id, "ACTIVE")


def test_a_delete_of_both_on_one_host(here: Cloud) -> None:
    server_id = on_its_host(here)
    assert here.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("it is gone", lambda: here.show(server_id) is None)
    wait_for("nothing is left", lambda: not traces(here))
    assert used(here) == 0


@pytest.mark.parametrize("step", ["set_aside", "copy_disk", "finish_migration_after_domain"])
def test_a_host_that_fails_at_it(here: Cloud, step: str) -> None:
    (server_id,) = here.create()
    here.wait_active([server_id])
    here.control_host("compute-1", fail_at=[step])
    assert act(here, server_id, {"resize": {"flavorRef": BIGGER}}).status_code == 202
    assert settled(here, server_id, "ACTIVE")["flavor"]["id"] == "1"
    found = domain(here, "compute-1", server_id)
    assert (found["generation"], found["power_state"], used(here)) == (1, 1, 1)
    assert not [trace for trace in traces(here) if "/aside/" in trace]
