"""Hosts are emptied, evened out and retired by the operator's tool, with all daemons."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.functional.hosts import enable, kinds, lose, on, places
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud.running(tmp_path_factory.mktemp("upkeep"), computes=3, more=("conductor-2",)) as ready:
        yield ready


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    for host in running.computes:
        running.control_host(host)
        if service(running, host) is not None:
            running.force_down(host, False)
            enable(running, host)
        if host not in running.processes:
            running.start(host)
    running.fenced.clear()
    running.wait_until_ready()
    running.delete_all()
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def service(running: Cloud, host: str) -> dict[str, Any] | None:
    found = running.request("GET", f"/os-services?host={host}&binary=nova-compute", version="2.53").json()["services"]
    return found[0] if found else None


def delete_service(running: Cloud, host: str) -> Any:
    found = service(running, host)
    assert found is not None
    return running.request("DELETE", f"/os-services/{found['id']}", version="2.53")


def retire(running: Cloud, host: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Retire a host as soon as it counts as silent."""

    def tried() -> subprocess.CompletedProcess[str] | None:
        done = running.try_manage("host", "retire", host, *options, "--format", "json")
        return None if "Stop its daemon" in done.stderr else done

    result: subprocess.CompletedProcess[str] = wait_for(f"{host} is silent", tried)
    return result


def test_a_host_is_drained(tidy: Cloud) -> None:
    runs, more, off = on(tidy, "compute-1", 3)
    assert tidy.action(off, {"os-stop": None}).status_code == 202
    tidy.wait_settled([off])
    done = tidy.try_manage("host", "drain", "compute-1", "--at-once", "2", "--format", "json")
    assert done.returncode == 0, done
    assert {(load["server"], load["how"]) for load in json.loads(done.stdout)} == {
        (runs, "live"),
        (more, "live"),
        (off, "cold"),
    }
    assert "3 of 3 server(s) moved." in done.stderr
    found = places(tidy, [runs, more, off])
    assert [found[key][0] for key in (runs, more, off)] == ["ACTIVE", "ACTIVE", "SHUTOFF"]
    assert all(host != "compute-1" for _, host in found.values())
    assert (kinds(tidy, runs), kinds(tidy, off)) == (["live-migration"], ["stop", "migrate", "confirmResize"])
    disabled = service(tidy, "compute-1")
    assert disabled is not None and disabled["status"] == "disabled"
    assert delete_service(tidy, "compute-1").status_code == 204, "with a history of migrations"
    wait_for("its daemon registers it again", lambda: service(tidy, "compute-1") is not None)


def test_servers_return_after_maintenance_of_their_host_also_if_it_was_interrupted(tidy: Cloud) -> None:
    runs, moves_on, off = on(tidy, "compute-1", 3)
    assert tidy.action(off, {"os-stop": None}).status_code == 202
    tidy.wait_settled([off])
    tidy.control_host("compute-1", fail_at=["check_can_live_migrate"])
    assert tidy.try_manage("host", "maintenance", "compute-1", "--live").returncode == 1
    tidy.control_host("compute-1")
    done = tidy.try_manage("host", "maintenance", "compute-1", "--at-once", "3")
    assert done.returncode == 0, done
    found = places(tidy, [runs, moves_on, off])
    assert "compute-1" not in {host for _, host in found.values()}
    elsewhere = ({"compute-2", "compute-3"} - {found[moves_on][1]}).pop()
    body = {"os-migrateLive": {"host": elsewhere, "block_migration": "auto"}}
    assert tidy.request("POST", f"/servers/{moves_on}/action", body, version="2.30").status_code == 202
    assert places(tidy, [moves_on]) == {moves_on: ("ACTIVE", elsewhere)}

    tidy.control_host(found[runs][1], fail_at=["check_can_live_migrate"])
    done = tidy.try_manage("host", "maintenance", "compute-1", "--end", "--live")
    assert done.returncode == 1, done
    shown = service(tidy, "compute-1")
    assert shown is not None and (shown["status"], "--end" in shown["disabled_reason"]) == ("enabled", True)
    tidy.control_host(found[runs][1])
    done = tidy.try_manage("host", "maintenance", "compute-1", "--end", "--format", "json")
    assert done.returncode == 0, done
    found = places(tidy, [runs, moves_on, off])
    assert found == {runs: ("ACTIVE", "compute-1"), moves_on: ("ACTIVE", elsewhere), off: ("SHUTOFF", "compute-1")}
    shown = service(tidy, "compute-1")
    assert shown is not None and (shown["status"], shown["disabled_reason"]) == ("enabled", None)
    assert "is not in maintenance" in tidy.try_manage("host", "maintenance", "compute-1", "--end").stderr


def test_drained_server_that_cannot_move_live_is_moved_off_or_stays(tidy: Cloud) -> None:
    (server_id,) = on(tidy, "compute-1", 1)
    tidy.control_host("compute-1", fail_at=["check_can_live_migrate"])
    done = tidy.try_manage("host", "drain", "compute-1", "--live")
    assert done.returncode == 1
    assert "configured to fail at check_can_live_migrate" in done.stdout
    assert places(tidy, [server_id]) == {server_id: ("ACTIVE", "compute-1")}
    done = tidy.try_manage("host", "drain", "compute-1")
    assert done.returncode == 0, done
    assert "cannot be moved while it runs" in done.stdout
    assert places(tidy, [server_id])[server_id][1] != "compute-1"
    assert kinds(tidy, server_id) == ["live-migration", "live-migration", "migrate", "confirmResize"]


def test_drain_stops_at_a_signal(tidy: Cloud) -> None:
    ids = on(tidy, "compute-1", 3)
    tidy.control_host("compute-1", live_migration_delay=3.0)
    command = tidy.manage_command("host", "drain", "compute-1")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = ""
    while ": live to" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=60)[0]
    assert process.returncode == 1, said
    assert "Stopping" in said and "1 of 3 server(s) moved." in said
    assert said.count("not begun: stopped") == 2
    moved = [key for key, (status, host) in places(tidy, ids).items() if host != "compute-1" and status == "ACTIVE"]
    assert len(moved) == 1
    assert [kinds(tidy, key) for key in ids if key not in moved] == [[], []]


def test_hosts_are_evened_out(tidy: Cloud) -> None:
    ids = on(tidy, "compute-1", 3)
    tidy.manage("host", "rebalance", "--at-once", "2")
    assert len({host for _, host in places(tidy, ids).values()}) == 3
    assert "0 of 0 server(s) moved." in tidy.manage("host", "rebalance")


def test_a_host_is_retired_and_comes_back_as_a_new_one(tidy: Cloud) -> None:
    evacuated, lost, deleted = on(tidy, "compute-1", 3)
    assert "is not forced down" in tidy.try_manage("host", "retire", "compute-1").stderr
    lose(tidy, "compute-1")
    assert tidy.request("DELETE", f"/servers/{deleted}").status_code == 204
    wait_for("it is deleted for its owner", lambda: tidy.show(deleted) is None)
    assert tidy.evacuate(evacuated).status_code == 200
    tidy.wait_active([evacuated])
    refused = delete_service(tidy, "compute-1")
    assert refused.status_code == 409
    assert "is hosting instances. Migrate or delete the instances first." in refused.text
    done = retire(tidy, "compute-1")
    assert (done.returncode, [load["server"] for load in json.loads(done.stdout)]) == (1, [lost])
    assert done.stderr.strip().endswith("if they are lost with it: --with-instances")
    assert places(tidy, [lost])[lost] == ("ACTIVE", "compute-1")
    done = retire(tidy, "compute-1", "--with-instances")
    assert done.returncode == 0, done
    assert places(tidy, [lost])[lost] == ("ERROR", None)
    assert delete_service(tidy, "compute-1").status_code == 204
    assert service(tidy, "compute-1") is None
    tidy.audit()
    assert tidy.holders(lost) == {"compute-1"}

    tidy.start("compute-1")
    tidy.wait_until_ready()
    tidy.fenced.clear()
    assert tidy.holders(lost) == tidy.holders(deleted) == set()
    assert len(tidy.holders(evacuated)) == 1
    on(tidy, "compute-1", 1)
    assert tidy.evacuate(lost).status_code == 200
    tidy.wait_active([lost])


def test_a_host_is_retired_amid_what_it_is_at(tidy: Cloud) -> None:
    """A build, and moves from and to it."""
    stays, goes = on(tidy, "compute-1", 2)
    tidy.control_host("compute-2", delays={"finish_migration": 600.0, "image": 600.0, "live_migration": 600.0})
    for body in ({"migrate": {"host": "compute-2"}},):
        assert tidy.request("POST", f"/servers/{stays}/action", body, version="2.56").status_code == 202
    enable(tidy, "compute-1", False)
    enable(tidy, "compute-3", False)
    (built,) = tidy.create()
    wait_for("it is being built there", lambda: (tidy.show(built) or {}).get("OS-EXT-SRV-ATTR:host") == "compute-2")
    wait_for("it arrives", lambda: (tidy.show(stays) or {}).get("OS-EXT-STS:task_state") == "resize_finish")
    lose(tidy, "compute-2")
    done = retire(tidy, "compute-2")
    assert done.returncode == 0, done
    found = places(tidy, [stays, goes, built])
    assert found[stays] == found[goes] == ("ACTIVE", "compute-1")
    assert found[built] == ("ERROR", None)
    assert delete_service(tidy, "compute-2").status_code == 204
    tidy.audit()
