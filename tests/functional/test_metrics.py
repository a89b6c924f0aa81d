"""Metrics and health of real daemons: metrics count completed work, and /readyz names what is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nova_lite.base import metrics
from tests.functional import cloud
from tests.support.ports import free_port
from tests.support.waiting import wait_for, wait_for_none

DAEMONS = ("conductor", "scheduler", "compute", "api")


class Site:
    def __init__(self, running: cloud.Cloud, ports: dict[str, int]) -> None:
        self.cloud = running
        self.ports = ports

    def get(self, daemon: str, path: str) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self.ports[daemon]}{path}", timeout=60)

    def metrics(self, daemon: str) -> dict[str, float]:
        lines = self.get(daemon, "/metrics").text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def reasons(self, daemon: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(daemon, "/readyz").json()
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ports = {name: free_port() for name in DAEMONS}
    lines = [f"{name}_port = {port}" for name, port in ports.items()]
    config = "\n".join(
        ["", "[metrics]", "enabled = true", "servers = 10", *lines, "[compute]", "hypervisor_timeout = 2", ""]
    )
    path: Path = tmp_path_factory.mktemp("metrics")
    with cloud.running(path, extra_config=config, quota=-1) as running:
        yield Site(running, ports)


#: A conductor repeats this call if the reply is late, so a busy machine counts more than one.
SELECTED = 'nova_lite_rpc_seconds_count{method="select_destinations"}'
DONE = {
    "conductor": {
        'nova_lite_builds_total{outcome="built"}': 1,
        'nova_lite_actions_ended_total{action="create",result="done"}': 1,
        'nova_lite_actions_ended_total{action="delete",result="done"}': 1,
        'nova_lite_rpc_seconds_count{method="create_instances"}': 1,
        'nova_lite_hosts{state="up"}': 1,
        "nova_lite_action_oldest_due_seconds": 0,
        'nova_lite_queue_messages{queue="conductor"}': 0,
        "nova_lite_rpc_waiting": 0,
    },
    "api": {
        'nova_lite_api_request_seconds_count{method="POST",route="/servers",status="202"}': 1,
        "nova_lite_api_waiting": 0,
    },
    "compute": {
        'nova_lite_rpc_seconds_count{method="build_and_run_instance"}': 1,
        "nova_lite_hypervisor_up": 1,
        'nova_lite_jobs{kind="build"}': 0,
    },
    "scheduler": {
        "nova_lite_scheduler_hosts": 1,
        SELECTED: 1,
    },
}


def test_metrics_count_completed_work(site: Site) -> None:
    """A little later: what a user sees is in the database before it is counted, and reports may be on their way."""
    # A scheduler that starts before its conductor loads its hosts after a second, and is queried again then.
    wait_for("the scheduler knows the host", lambda: site.metrics("scheduler").get("nova_lite_scheduler_hosts") == 1)
    (uuid,) = site.cloud.create()
    site.cloud.wait_active([uuid])
    name = metrics.SERVER_MEMORY_LIMIT
    wait_for(
        "the server has metrics",
        lambda: any(line.startswith(name) and f'server="{uuid}"' in line for line in site.metrics("compute")),
    )
    site.cloud.delete_all()
    for daemon, wanted in DONE.items():
        wait_for_none(f"what the {daemon} tells otherwise", lambda: differences(site.metrics(daemon), wanted))  # noqa: B023
    conductor = site.metrics("conductor")
    assert conductor["nova_lite_reconcile_duration_seconds_count"] > 0
    assert conductor["nova_lite_db_pool_wait_seconds_count"] > 0
    assert conductor['nova_lite_heartbeat_oldest_seconds{binary="nova-compute"}'] < 30


def differences(told: dict[str, float], wanted: dict[str, int]) -> dict[str, float | None]:
    found = {name: told.get(name) for name, value in wanted.items() if told.get(name) != value}
    return {name: value for name, value in found.items() if name != SELECTED or not value}


def test_every_state_is_told_by_a_daemon_that_it_is_said_of(site: Site) -> None:
    told = {daemon: {name.partition("{")[0] for name in site.metrics(daemon)} for daemon in DAEMONS}
    for name in metrics.GAUGES.keys() - {metrics.ACTIONS}:
        wanted = DAEMONS if metrics.DAEMONS_OF[name] == "all" else metrics.DAEMONS_OF[name].split(", ")
        # No certificates, notifications, hosts that are down or have a problem, protected servers, policies of backups,
        # servers, database of several nodes, and no balancing.
        absent = (metrics.CERTIFICATE_END, metrics.NOTIFICATIONS_WAITING, metrics.HOST_DOWN, metrics.HOST_UNFENCED)
        absent += (metrics.DATABASE_NODE,)
        balancing = (metrics.HOST_PRESSURE, metrics.PRESSURE_SPREAD, metrics.SURVIVE_NO_ROOM, metrics.HOST_PROBLEMS)
        if name in absent + balancing or "_server_" in name or "_backup_policy_" in name:
            continue
        assert [daemon for daemon in wanted if name not in told[daemon]] == [], name


def test_all_live_and_are_ready(site: Site) -> None:
    for daemon in DAEMONS:
        assert site.get(daemon, "/healthz").json() == {"alive": "ok"}
        wait_for(f"{daemon} is ready", lambda: site.get(daemon, "/readyz").status_code == 200)  # noqa: B023
    assert site.reasons("compute").keys() == {"started", "broker", "hypervisor", "registration"}
    assert site.reasons("conductor").keys() == {"started", "broker", "database"}


def test_conductor_lists_the_pages_of_hosts(site: Site) -> None:
    (target,) = site.get("conductor", "/targets").json()
    assert target["labels"] == {"daemon": "compute", "machine": "compute-1"}
    assert target["targets"] == [f"127.0.0.1:{site.ports['compute']}"]
    assert site.get("compute", "/targets").status_code == 404


def test_a_host_that_was_forced_down_says_so(site: Site) -> None:
    site.cloud.force_down("compute-1")
    try:
        wait_for("it says so", lambda: site.get("compute", "/readyz").status_code == 503)
        assert site.reasons("compute")["registration"] != "ok"
        assert site.reasons("compute")["broker"] == "ok"
        wait_for("it is counted", lambda: site.metrics("conductor")['nova_lite_hosts{state="forced_down"}'] == 1)
        assert site.get("compute", "/healthz").status_code == 200
    finally:
        site.cloud.force_down("compute-1", False)
    wait_for("it is ready again", lambda: site.get("compute", "/readyz").status_code == 200)


def test_a_create_that_no_host_takes_is_counted(site: Site) -> None:
    (uuid,) = site.cloud.create(flavor="9")
    wait_for("it failed", lambda: (site.cloud.show(uuid) or {})["status"] == "ERROR")
    assert site.metrics("conductor")['nova_lite_builds_failed_total{reason="not_placed"}'] == 1
    site.cloud.delete_all()


def test_request_is_traced_from_the_api_to_the_host_and_top_shows_the_cloud(site: Site) -> None:
    body = {"server": {"name": "vm", "imageRef": site.cloud.image_id, "flavorRef": "1", "networks": "auto"}}
    answer = site.cloud.request("POST", "/servers", body, version="2.37")
    server, request_id = answer.json()["server"]["id"], answer.headers["X-OpenStack-Request-Id"]
    site.cloud.wait_active([server])

    def traced() -> list[Any] | None:
        """Return the entries once the API has sent its event, a little later."""
        found = json.loads(site.cloud.manage("trace", request_id, "--format", "json"))
        return found if any(row["source"] == "compute API" for row in found) else None

    found = wait_for("the request is in the audit log", traced)
    where = {(row["source"], row["machine"]) for row in found}
    assert {("compute API", "controller"), ("operation", None), ("step", "compute-1")} <= where
    assert {row["about"] for row in found if row["source"] != "compute API"} == {server}
    top = json.loads(site.cloud.manage("top", "--once", "--format", "json"))
    assert top["hosts"]["up"] == 1 and top["host_list"][0]["servers"] == 1
    assert top["queues"].keys() == {"conductor", "scheduler"} and None not in top["queues"].values()
    site.cloud.delete_all()
