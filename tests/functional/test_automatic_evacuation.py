"""A protected server of a lost host runs again elsewhere, without a request: the host is switched off by a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults import guards
from tests.functional import cloud
from tests.support.waiting import polls, wait_for

#: Switches off once the test has cut the power, as a card would.
PROGRAM = """#!/bin/sh
case $1 in
off) touch {path}/asked ;;
status) if test -e {path}/dead; then echo off; else echo on; fi ;;
esac
"""

PROTECTED = {"ha:restart": "always", "ha:local-disk": "rebuild"}


def test_protected_server_of_a_dead_host_runs_elsewhere_and_another_stays(tmp_path: Path) -> None:
    program, file = tmp_path / "fence", tmp_path / "fencing.yaml"
    program.write_text(PROGRAM.format(path=tmp_path))
    program.chmod(0o700)
    hosts = ("compute-1", "compute-2")
    file.write_text("".join(f"{host}: [{{agent: script, program: {program}, target: {host}}}]\n" for host in hosts))
    file.chmod(0o600)
    extra = f"[conductor]\nfencing_file = {file}\n"
    with cloud.running(tmp_path, computes=2, extra_config=extra) as running:
        answer = running.request("POST", "/servers", {"server": server_of(running, {"ha:restart": "yes"})})
        assert answer.status_code == 400
        assert "always or never" in answer.text
        (protected,) = running.create(metadata=PROTECTED)
        host = running.wait_active([protected])[protected]["OS-EXT-SRV-ATTR:host"]
        plain = another_on(running, host)
        running.kill(host)
        (tmp_path / "dead").touch()
        running.fenced.add(host)

        def moved() -> bool:
            found = running.show(protected)
            return found is not None and found["OS-EXT-SRV-ATTR:host"] not in (None, host)

        wait_for("the server runs elsewhere", moved, 120)
        running.wait_active([protected])
        found = running.show(plain)
        assert found is not None
        assert found["OS-EXT-SRV-ATTR:host"] == host
        (state,) = json.loads(running.manage("--format", "json", "host", "fence", host, "--status"))
        assert (state["fenced"], state["by"]) == ("off", "1. script")
        actions = running.request("GET", f"/servers/{protected}/os-instance-actions").json()["instanceActions"]
        action = next(item for item in actions if item["action"] == "evacuate")
        path = f"/os-migrations?migration_type=evacuation&source_compute={host}"
        (row,) = running.request("GET", path, version="2.80").json()["migrations"]
        assert (row["instance_uuid"], row["status"], row["user_id"]) == (protected, "done", None)
        path = f"/servers/{protected}/os-instance-actions/{action['request_id']}"
        events = running.request("GET", path, version="2.84").json()["instanceAction"]["events"]
        assert any(f"Host {host} is lost (1. script)" in str(event["details"]) for event in events)


def test_guests_and_daemon_go_on_without_conductors_while_leases_are_suspended(tmp_path: Path) -> None:
    """The conductors stay away until the guard would have acted: later than the end of the lease."""
    try:
        with cloud.running(
            tmp_path, extra_config="[compute]\nself_fencing = true\nself_fencing_lease = 30\n"
        ) as running:
            (protected,) = running.create(metadata=PROTECTED)
            host = running.wait_active([protected])[protected]["OS-EXT-SRV-ATTR:host"]

            def fencing() -> dict[str, Any]:
                (state,) = json.loads(running.manage("--format", "json", "host", "fence", "--status"))
                return dict(state)

            wait_for("the guest is confirmed", lambda: fencing()["confirmed"] == 1)
            daemon = running.processes[host].pid
            assert "No host fences itself for 60 minutes" in running.manage("host", "fence", "--suspend", "60")
            running.kill("conductor")
            for _ in polls(31, 0.5):
                assert running.holders(protected) == {host}
                assert running.processes[host].poll() is None
            running.start("conductor")
            running.manage("host", "fence", "--suspend", "0")
            wait_for("the guest is confirmed again", lambda: fencing()["confirmed"] == 1)
            assert (running.processes[host].pid, running.holders(protected)) == (daemon, {host})
    finally:
        guards.end(tmp_path)


def server_of(running: cloud.Cloud, metadata: dict[str, str]) -> dict[str, Any]:
    return {"name": "vm", "imageRef": running.image_id, "flavorRef": "1", "metadata": metadata}


def another_on(running: cloud.Cloud, host: str) -> str:
    """Return an unprotected server on this host."""
    (found,) = running.create(availability_zone=f"nova:{host}")
    running.wait_active([found])
    return found
