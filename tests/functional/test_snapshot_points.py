"""Snapshot points of servers, through all daemons, with fake hypervisors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.hosts import tidy_up
from tests.functional.server_requests import act, ask, migrate, settled
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("points"), computes=2, standalone=True) as made:
        yield made


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)


def server_of(running: Cloud) -> str:
    (server,) = running.create()
    running.wait_active([server])
    return server


def path_of(server: str, *more: str) -> str:
    return "/".join(["/servers", server, "os-snapshot-points", *more])


def points(running: Cloud, server: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(running, "GET", path_of(server))["snapshot_points"]
    return found


def create(running: Cloud, server: str, name: str, memory: bool = False) -> str:
    body = {"snapshot_point": {"name": name, "description": f"{name} of them", "memory": memory}}
    made = ask(running, "POST", path_of(server), body, status=202)["snapshot_point"]
    assert (made["name"], made["description"], made["status"], made["memory"]) == (
        name, f"{name} of them", "creating", memory
    )  # fmt: skip
    wait_for("the point", lambda: {"available"} == {point["status"] for point in points(running, server)})
    return str(made["id"])


def revert(running: Cloud, server: str, point_id: str, body: dict[str, bool] | None = None) -> None:
    ask(running, "POST", path_of(server, point_id, "revert"), {"revert": body or {}}, status=202)
    wait_for(
        "the server is at its point",
        lambda: (
            [p["id"] for p in points(running, server) if p["is_current"] and p["status"] == "available"] == [point_id]
        ),
    )


def disk_of(running: Cloud, server: str) -> Path:
    (path,) = running.path.glob(f"*/instances/fake-*/disks/{server}/disk")
    return path


def test_server_returns_to_its_points_and_they_are_deleted(tidy: Cloud) -> None:
    server = server_of(tidy)
    one = create(tidy, server, "one")
    disk_of(tidy, server).write_text("second\n")
    two = create(tidy, server, "two", memory=True)
    disk_of(tidy, server).write_text("third\n")
    revert(tidy, server, one)
    tidy.wait_active([server])
    assert disk_of(tidy, server).read_text() == "generation 1\n"
    revert(tidy, server, two)
    assert disk_of(tidy, server).read_text() == "second\n"
    tidy.wait_active([server])
    shown = ask(tidy, "GET", path_of(server, two))["snapshot_point"]
    assert (shown["parent_id"], shown["is_current"], shown["memory"]) == (one, True, True)
    ask(tidy, "DELETE", path_of(server, one), status=202)
    wait_for("one point is left", lambda: [point["id"] for point in points(tidy, server)] == [two])
    assert points(tidy, server)[0]["parent_id"] is None
    assert ask(tidy, "GET", path_of(server, one), status=404)["itemNotFound"]["message"].startswith("Snapshot point")


def test_stopped_server_moves_with_its_points_and_a_running_one_does_not(tidy: Cloud) -> None:
    server = server_of(tidy)
    one = create(tidy, server, "one")
    assert "which 'live-migration' would lose" in migrate(tidy, server).text
    disk_of(tidy, server).write_text("second\n")
    act(tidy, server, {"os-stop": None}, "SHUTOFF")
    act(tidy, server, {"migrate": None}, "VERIFY_RESIZE")
    ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
    assert settled(tidy, server)["status"] == "SHUTOFF"
    revert(tidy, server, one)
    assert disk_of(tidy, server).read_text() == "generation 1\n"


def test_point_that_its_host_cannot_make_disappears(tidy: Cloud) -> None:
    server = server_of(tidy)
    for host in tidy.computes:
        tidy.control_host(host, fail_at=["create_point"], fail_count=1)
    ask(tidy, "POST", path_of(server), {"snapshot_point": {"name": "one"}}, status=202)
    wait_for("it is gone", lambda: points(tidy, server) == [])
    tidy.wait_active([server])
    assert [path.name for path in disk_of(tidy, server).parent.glob("point-*")] == []
    for body in ({}, {"name": ""}, {"name": "one", "memory": "yes"}, {"name": "one", "other": 1}):
        ask(tidy, "POST", path_of(server), {"snapshot_point": body}, status=400)
