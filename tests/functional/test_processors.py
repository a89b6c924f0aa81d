"""Hosts with processors of two generations: each way of moving a running server compares them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import enable, kinds, on, places
from tests.functional.server_requests import LATEST, domain, migrate, place
from tests.support.waiting import wait_for

NEW = {"virt_type": "qemu", "vendor": "Intel", "features": "aes avx avx2 avx512f", "machines": "pc-q35-7.2 pc-q35-8.0"}
OLD = {**NEW, "features": "aes avx", "machines": "pc-q35-7.2"}
LACKING = "its processor lacks avx2, avx512f"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Run a cloud of two hosts with a new processor, and ``compute-3`` with an old one."""
    with cloud.running(tmp_path_factory.mktemp("processors"), describe, computes=3) as made:
        yield made


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    describe(running)
    for host in running.computes:
        enable(running, host)
    running.delete_all()
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def describe(cloud: Cloud) -> None:
    for host, cpu in zip(cloud.computes, (NEW, NEW, OLD), strict=True):
        cloud.control_host(host, cpu=cpu)


def failure(running: Cloud, server_id: str) -> tuple[str, str]:
    """Return the failed event of the newest action, and its details."""
    actions = running.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    path = f"/servers/{server_id}/os-instance-actions/{actions[0]['request_id']}"
    events = running.request("GET", path, version=LATEST).json()["instanceAction"]["events"]
    failed = next(event for event in events if event["result"] == "Error")
    return failed["event"], failed["details"]


def test_drain_leaves_the_guest_behind_that_runs_on_no_other_host_and_says_why(tidy: Cloud) -> None:
    (stays,) = on(tidy, "compute-1", 1)
    (leaves,) = on(tidy, "compute-3", 1)
    assert migrate(tidy, leaves, host="compute-1").status_code == 202
    assert place(tidy, leaves) == ("ACTIVE", "compute-1")
    enable(tidy, "compute-2", False)

    planned = tidy.try_manage("host", "drain", "compute-1", "--live", "--dry-run", "--format", "json")
    assert planned.returncode == 1
    done = tidy.try_manage("host", "drain", "compute-1", "--live", "--format", "json")
    assert done.returncode == 1
    for answer in (planned, done):
        moves = {move["server"]: move for move in json.loads(answer.stdout)}
        assert (moves[leaves]["to"], moves[leaves]["why_not"] or "") == ("compute-3", "")
        assert moves[stays]["to"] is None
        assert f"1 failed LiveMigrationFilter ({LACKING})" in moves[stays]["why_not"]
    assert places(tidy, [stays, leaves]) == {stays: ("ACTIVE", "compute-1"), leaves: ("ACTIVE", "compute-3")}
    assert kinds(tidy, stays) == []


def test_drain_moves_the_guest_off_if_it_may_stop_it(tidy: Cloud) -> None:
    (server_id,) = on(tidy, "compute-1", 1)
    enable(tidy, "compute-2", False)
    done = tidy.try_manage("host", "drain", "compute-1")
    assert done.returncode == 0, done
    assert "It cannot move while it runs. No valid host was found. Of 2 hosts, 1 failed ComputeFilter" in done.stdout
    assert LACKING in done.stdout
    assert places(tidy, [server_id]) == {server_id: ("ACTIVE", "compute-3")}
    assert kinds(tidy, server_id) == ["migrate", "confirmResize"]
    # The guest has the old processor since its start there, so it can go back while it runs.
    enable(tidy, "compute-1")
    assert migrate(tidy, server_id).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", "compute-1")
    assert kinds(tidy, server_id)[2:] == ["live-migration"]


def test_rebalance_leaves_the_guests_where_they_run(tidy: Cloud) -> None:
    ids = on(tidy, "compute-1", 2)
    enable(tidy, "compute-2", False)
    planned = json.loads(tidy.manage("host", "rebalance", "--dry-run", "--format", "json"))
    assert [step["server"] for step in planned] == [None]
    planned = json.loads(tidy.manage("host", "rebalance", "--dry-run", "--cold", "--format", "json"))
    assert [step["to"] for step in planned] == ["compute-3"]
    assert {step["server"] for step in planned} < set(ids)


@pytest.mark.parametrize(("version", "body"), [(LATEST, {}), ("2.30", {"force": True})])
def test_users_move_to_a_host_without_the_features_is_refused(tidy: Cloud, version: str, body: dict[str, Any]) -> None:
    (server_id,) = on(tidy, "compute-1", 1)
    assert migrate(tidy, server_id, version, host="compute-3", **body).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", "compute-1")
    event, details = failure(tidy, server_id)
    assert event == "conductor_live_migrate_instance"
    assert LACKING in details
    assert migrate(tidy, server_id).status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", "compute-2")


def test_target_itself_refuses_a_guest_that_the_scheduler_does_not_know(tidy: Cloud) -> None:
    """The record of the guest's processor is missing, as after an upgrade; the check at the source repairs it."""
    (server_id,) = on(tidy, "compute-3", 1)
    path = tidy.path / "compute-3/instances/fake-compute-3/domains" / f"{server_id}.json"
    guest = domain(tidy, "compute-3", server_id)
    guest["cpu"] = {**guest["cpu"], "features": "aes avx sha-ni"}
    path.write_text(json.dumps(guest))
    assert migrate(tidy, server_id, host="compute-1").status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", "compute-3")
    event, details = failure(tidy, server_id)
    assert event == "compute_pre_live_migration"
    assert "the guest cannot continue on this host: its processor lacks sha-ni" in details
    assert migrate(tidy, server_id, host="compute-1").status_code == 202
    assert place(tidy, server_id) == ("ACTIVE", "compute-3")
    event, details = failure(tidy, server_id)
    assert (event, "its processor lacks sha-ni" in details) == ("conductor_live_migrate_instance", True)
