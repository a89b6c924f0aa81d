"""Servers leave a host under pressure: nothing moves in a dry run, and the loop keeps its budget and says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.functional import cloud
from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for

CONFIG = """
[conductor]
rebalance = {mode}
[balance]
interval = 2
window = 6
min_gain = 1
moves_per_hour = 1
"""
HOT, COOL = "compute-1", "compute-2"


def balance(running: Cloud, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(running.manage("--format", "json", "host", "balance", *options))
    return found


def hosts_of(running: Cloud) -> list[str]:
    return sorted(server["OS-EXT-SRV-ATTR:host"] for server in running.servers())


def set_mode(running: Cloud, mode: str) -> None:
    running.stop("conductor")
    running.extra_config = CONFIG.format(mode=mode)
    running._write_config("conductor")
    running.start("conductor")
    running.wait_until_ready()


def test_loaded_host_gives_a_server_away_once_the_loop_is_on(tmp_path: Path) -> None:
    with cloud.running(tmp_path, computes=2, vcpus=4, extra_config=CONFIG.format(mode="dry_run")) as running:
        ids = running.create(count=4, availability_zone=f"nova:{HOT}")
        running.wait_active(ids)
        running.control_host(HOT, guest_use=0.9)
        (planned,) = wait_for("a plan", lambda: balance(running))
        assert (planned["from"], planned["to"], planned["begun"]) == (HOT, COOL, False)
        assert f"Host {HOT} had " in planned["why"]
        verdicts = wait_for("an explanation", lambda: balance(running, "--explain"))
        assert sum(item["verdict"].startswith(f"moves to {COOL}") for item in verdicts) == 1
        assert len(verdicts) == len(ids)
        assert hosts_of(running) == [HOT] * 4, "a dry run moves nothing"

        set_mode(running, "on")
        wait_for("a server moves", lambda: hosts_of(running) == [HOT] * 3 + [COOL])
        wait_for("the end of the move", lambda: "has moved to" in running.log("conductor", 400))
        wait_for("the end of the budget", lambda: "moves of an hour are used" in running.manage("host", "balance"))
        assert hosts_of(running) == [HOT] * 3 + [COOL], "the budget is one move"
        moved = next(item["id"] for item in running.servers() if item["OS-EXT-SRV-ATTR:host"] == COOL)
        actions = running.request("GET", f"/servers/{moved}/os-instance-actions").json()["instanceActions"]
        action = next(item for item in actions if item["action"] == "live-migration")
        path = f"/servers/{moved}/os-instance-actions/{action['request_id']}"
        events = running.request("GET", path, version="2.84").json()["instanceAction"]["events"]
        (why,) = [event["details"] for event in events if event["event"] == "conductor_relieve_host"]
        assert f"Host {HOT} had " in why
        assert "% CPU pressure" in why
