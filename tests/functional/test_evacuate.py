"""A host is lost, its server is built elsewhere, and the host comes back: nothing runs twice, nothing is in between."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import lose, placed, tidy_up
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("evacuate"), computes=2) as ready:
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)


def generation(running: Cloud, host: str, server_id: str) -> int:
    domain = running.path / host / "instances" / f"fake-{host}" / "domains" / f"{server_id}.json"
    return int(json.loads(domain.read_text())["generation"])


def has_disk(running: Cloud, host: str, server_id: str) -> bool:
    return (running.path / host / "instances" / f"fake-{host}" / "disks" / server_id / "disk").exists()


def state(running: Cloud, host: str) -> str:
    (service,) = running.request("GET", f"/os-services?host={host}").json()["services"]
    return str(service["state"])


def test_a_lost_host_and_its_return(tidy: Cloud) -> None:
    server_id, lost, other = placed(tidy)
    before = tidy.wait_active([server_id])[server_id]
    tidy.kill(lost)
    refused = tidy.evacuate(server_id)
    assert refused.status_code == 400
    assert "forced_down" in refused.json()["badRequest"]["message"]
    assert tidy.force_down(lost).status_code == 200
    tidy.fenced.add(lost)
    answer = tidy.evacuate(server_id)
    assert (answer.status_code, answer.content) == (200, b"")
    after = tidy.wait_active([server_id])[server_id]
    assert after["OS-EXT-SRV-ATTR:host"] == other
    assert after["addresses"] == before["addresses"]
    assert generation(tidy, other, server_id) > generation(tidy, lost, server_id)
    assert tidy.domains() == {server_id: other}
    actions = tidy.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [action["action"] for action in actions] == ["evacuate", "create"]
    path = f"/os-migrations?migration_type=evacuation&host={lost}&instance_uuid={server_id}"
    (row,) = tidy.request("GET", path, version="2.80").json()["migrations"]
    assert (row["status"], row["source_compute"], row["dest_compute"]) == ("done", lost, other)
    assert row["migration_type"] == "evacuation"
    assert "links" not in row
    assert tidy.request("GET", f"/servers/{server_id}/migrations", version="2.80").json() == {"migrations": []}

    tidy.control_host(lost, fail_at=["destroy"])
    log = len(tidy.log(lost, 100000))
    tidy.start(lost)

    def says(text: str) -> bool:
        return text in tidy.log(lost, 100000)[log:]

    wait_for("it waits while it is forced down", lambda: says("is forced down"))
    assert tidy.force_down(lost, False).status_code == 200
    wait_for("it does not serve with what it cannot destroy", lambda: says("could not be destroyed"))
    assert not says("is ready on host")
    assert state(tidy, lost) == "down"
    assert (has_disk(tidy, lost, server_id), has_disk(tidy, other, server_id)) == (True, True)
    tidy.control_host(lost)
    wait_for("it serves", lambda: says("is ready on host"))
    tidy.fenced.clear()
    assert tidy.domains() == {server_id: other}
    assert (has_disk(tidy, lost, server_id), has_disk(tidy, other, server_id)) == (False, True)
    tidy.wait_until_ready()


def test_returned_host_keeps_the_disks_of_a_server_that_is_nowhere_else(tidy: Cloud) -> None:
    """The server is evacuated nowhere. Its disks, the only ones, are still there, and its guest is not a second one."""
    server_id, lost, other = placed(tidy)
    lose(tidy, lost)
    assert tidy.force_down(lost, False).status_code == 200
    tidy.start(lost)
    tidy.fenced.clear()
    tidy.wait_until_ready()
    assert (has_disk(tidy, lost, server_id), has_disk(tidy, other, server_id)) == (True, False)
    assert tidy.domains() == {server_id: lost}


def test_a_daemon_that_lives_while_its_host_is_forced_down_enters_anew(tidy: Cloud) -> None:
    server_id, lost, other = placed(tidy)
    assert tidy.force_down(lost).status_code == 200
    tidy.fenced.add(lost)
    wait_for("the daemon has noticed", lambda: "stops serving and restarts" in tidy.log(lost, 1000))
    assert tidy.evacuate(server_id, "2.29", host=other, force=True).status_code == 200
    assert tidy.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"] == other
    assert tidy.force_down(lost, False).status_code == 200
    wait_for("the daemon serves again", lambda: "is ready again on host" in tidy.log(lost, 1000))
    tidy.fenced.clear()
    assert tidy.domains() == {server_id: other}


def test_since_2_95_an_evacuated_server_is_off_in_the_end(tidy: Cloud) -> None:
    server_id, lost, other = placed(tidy)
    lose(tidy, lost)
    assert tidy.evacuate(server_id, "2.95").status_code == 200
    server = tidy.wait_settled([server_id])[server_id]
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("SHUTOFF", other)


def test_without_room_it_is_in_error_and_may_be_tried_again(tidy: Cloud) -> None:
    server_id, lost, other = placed(tidy)
    lose(tidy, lost)
    tidy.kill(other)
    assert tidy.force_down(other).status_code == 200
    answer = tidy.evacuate(server_id, "2.1", onSharedStorage=False, adminPass="a new one")
    assert (answer.status_code, answer.json()) == (200, {"adminPass": "a new one"})
    server = tidy.wait_settled([server_id])[server_id]
    assert (server["status"], "No valid host" in server["fault"]["message"]) == ("ERROR", True)
    path = f"/os-migrations?migration_type=evacuation&instance_uuid={server_id}"
    (row,) = tidy.request("GET", path).json()["migrations"]
    assert (row["status"], row["source_compute"], row["dest_compute"]) == ("error", lost, None)
    assert tidy.force_down(other, False).status_code == 200
    tidy.start(other)
    tidy.wait_until_ready()
    assert tidy.evacuate(server_id).status_code == 200
    assert tidy.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"] == other
