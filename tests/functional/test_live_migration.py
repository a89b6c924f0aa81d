"""Servers move between hosts while they run, with users that change their minds and daemons that fail meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, placed, tidy_up
from tests.functional.server_requests import LATEST, domain, migrate, place, settled
from tests.support.waiting import DEADLINE, wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("live"), computes=2) as ready:
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)


def in_progress(running: Cloud, server_id: str) -> list[dict[str, Any]]:
    answer = running.request("GET", f"/servers/{server_id}/migrations", version=LATEST)
    found: list[dict[str, Any]] = answer.json()["migrations"]
    return found


def going_on(running: Cloud, server_id: str) -> dict[str, Any]:
    """Return the migration as soon as some of the memory has been moved."""

    def found() -> dict[str, Any] | None:
        return next((item for item in in_progress(running, server_id) if item["memory_processed_bytes"]), None)

    migration: dict[str, Any] = wait_for("progress", found)
    return migration


def statuses(running: Cloud, server_id: str) -> list[str]:
    query = f"/os-migrations?instance_uuid={server_id}"
    return [item["status"] for item in running.request("GET", query, version=LATEST).json()["migrations"]]


def events(running: Cloud, server_id: str) -> list[tuple[str, str]]:
    actions = running.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    request_id = next(action["request_id"] for action in actions if action["action"] == "live-migration")
    found = running.request("GET", f"/servers/{server_id}/os-instance-actions/{request_id}").json()["instanceAction"]
    return [(event["event"], event["result"]) for event in found["events"]]


def test_there_and_back(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    assert migrate(tidy, server_id).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert tidy.holders(server_id) == {other}
    assert statuses(tidy, server_id) == ["completed"]
    assert in_progress(tidy, server_id) == []
    assert events(tidy, server_id) == [
        ("conductor_live_migrate_instance", "Success"),
        ("compute_check_can_live_migrate_source", "Success"),
        ("compute_pre_live_migration", "Success"),
        ("compute_live_migration", "Success"),
        ("compute_post_live_migration_at_destination", "Success"),
        ("compute_post_live_migration", "Success"),
    ]
    tidy.audit()
    assert migrate(tidy, server_id, host=host).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", host)
    assert tidy.holders(server_id) == {host}


def test_live_migration_invalid_requests_are_refused(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    itself = migrate(tidy, server_id, host=host)
    refused = [
        itself,
        migrate(tidy, server_id, host="nowhere"),
        migrate(tidy, server_id, "2.24"),
        migrate(tidy, server_id, "2.29", force=True),
        migrate(tidy, server_id, "2.68", force=True),
    ]
    assert [response.status_code for response in refused] == [400] * 5
    assert itself.json()["badRequest"]["message"] == (
        f"Unable to migrate instance ({server_id}) to current host ({host})."
    )
    assert migrate(tidy, server_id, "2.24", block_migration=True, disk_over_commit=False, host=other).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert tidy.request("POST", f"/servers/{server_id}/action", {"os-stop": None}).status_code == 202
    settled(tidy, server_id)
    stopped = migrate(tidy, server_id)
    assert stopped.status_code == 409
    assert "Cannot 'os-migrateLive' instance" in stopped.json()["conflictingRequest"]["message"]


def test_without_block_migration_there_is_nothing_to_share(tidy: Cloud) -> None:
    server_id, host, _ = placed(tidy)
    assert migrate(tidy, server_id, block_migration=False).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", host)
    assert (tidy.holders(server_id), statuses(tidy, server_id)) == ({host}, ["error"])


def test_progress_and_abort(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, live_migration_delay=30.0)
    assert migrate(tidy, server_id).status_code == 202
    migration = going_on(tidy, server_id)
    assert (migration["source_compute"], migration["dest_compute"]) == (host, other)
    assert 0 < migration["memory_processed_bytes"] < migration["memory_total_bytes"]
    path = f"/servers/{server_id}/migrations/{migration['id']}"
    assert tidy.request("GET", path, version=LATEST).json()["migration"]["status"] == "running"
    assert tidy.request("DELETE", f"/servers/{server_id}/migrations/99999", version=LATEST).status_code == 404
    assert tidy.request("DELETE", path, version=LATEST).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", host)
    assert (tidy.holders(server_id), statuses(tidy, server_id)) == ({host}, ["cancelled"])
    assert tidy.request("DELETE", path, version=LATEST).status_code == 409


def test_force_complete(tidy: Cloud) -> None:
    """Left alone it would continue for longer than the test waits here."""
    server_id, host, other = placed(tidy)
    tidy.control_host(host, live_migration_delay=10 * DEADLINE / 3)
    assert migrate(tidy, server_id).status_code == 202
    wait_for("it runs", lambda: any(item["status"] == "running" for item in in_progress(tidy, server_id)))
    (migration,) = in_progress(tidy, server_id)
    path = f"/servers/{server_id}/migrations/{migration['id']}/action"
    assert tidy.request("POST", path, {"force_complete": {}}, version=LATEST).status_code == 400
    assert tidy.request("POST", path, {"force_complete": None}, version=LATEST).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert statuses(tidy, server_id) == ["completed"]


@pytest.mark.parametrize("step", ["pre_live_migration", "live_migration", "check_can_live_migrate"])
def test_a_failure_leaves_it_where_it_runs(tidy: Cloud, step: str) -> None:
    server_id, host, other = placed(tidy)
    for item in (host, other):
        tidy.control_host(item, fail_at=[step], fail_count=-1)
    assert migrate(tidy, server_id).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", host)
    assert (tidy.holders(server_id), statuses(tidy, server_id)) == ({host}, ["error"])
    assert domain(tidy, host, server_id)["power_state"] == 1


def test_a_move_that_its_source_does_not_know_of_is_one_all_the_same(tidy: Cloud) -> None:
    """The source fails right after the guest has gone; the next daemon finds it gone."""
    server_id, host, other = placed(tidy)
    tidy.control_host(host, delays={"live_migration_after_move": 600.0})
    assert migrate(tidy, server_id).status_code == 202
    wait_for("it has gone", lambda: other in tidy.domains().get(server_id, ()))
    tidy.kill(host)
    tidy.control_host(host)
    tidy.start(host)
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert (tidy.holders(server_id), statuses(tidy, server_id)) == ({other}, ["completed"])


def test_a_source_that_is_killed_halfway_begins_again(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, live_migration_delay=30.0)
    assert migrate(tidy, server_id).status_code == 202
    going_on(tidy, server_id)
    tidy.kill(host)
    tidy.control_host(host)
    tidy.start(host)
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert tidy.holders(server_id) == {other}


def test_delete_amid_it(tidy: Cloud) -> None:
    server_id, host, _ = placed(tidy)
    tidy.control_host(host, live_migration_delay=30.0)
    assert migrate(tidy, server_id).status_code == 202
    going_on(tidy, server_id)
    assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("it is gone", lambda: tidy.show(server_id) is None)
    wait_for("nothing is left", lambda: tidy.domains() == {})


# --- an end is lost


def test_a_guest_that_had_arrived_before_its_source_was_lost_goes_on(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, delays={"live_migration_after_move": 600.0})
    assert migrate(tidy, server_id).status_code == 202
    wait_for("it has arrived", lambda: tidy.domains() == {server_id: other})
    lose(tidy, host)
    assert place(tidy, server_id) == ("ACTIVE", other)
    assert (domain(tidy, other, server_id)["power_state"], statuses(tidy, server_id)) == (1, ["completed"])
    come_back(tidy, host)
    assert tidy.holders(server_id) == {other}


@pytest.mark.parametrize("word", ["evacuate", "delete"])
def test_a_guest_that_is_lost_with_its_source(tidy: Cloud, word: str) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, live_migration_delay=60.0)
    assert migrate(tidy, server_id).status_code == 202
    going_on(tidy, server_id)
    lose(tidy, host)
    if word == "evacuate":
        assert place(tidy, server_id) == ("ACTIVE", host)
        assert tidy.evacuate(server_id).status_code == 200
        assert place(tidy, server_id) == ("ACTIVE", other)
    else:
        assert tidy.request("DELETE", f"/servers/{server_id}").status_code == 204
        wait_for("it is gone", lambda: tidy.show(server_id) is None)
    come_back(tidy, host)
    left = {other} if word == "evacuate" else set()
    wait_for("nothing else is left", lambda: tidy.holders(server_id) == left)


def test_a_destination_that_is_lost_has_nothing(tidy: Cloud) -> None:
    server_id, host, other = placed(tidy)
    tidy.control_host(host, live_migration_delay=3.0)
    tidy.control_host(other, delays={"pre_live_migration": 600.0})
    assert migrate(tidy, server_id).status_code == 202
    wait_for("it is made ready", lambda: "preparing" in statuses(tidy, server_id))
    lose(tidy, other)
    assert place(tidy, server_id) == ("ACTIVE", host)
    assert domain(tidy, host, server_id)["power_state"] == 1
    come_back(tidy, other)
    assert tidy.holders(server_id) == {host}
