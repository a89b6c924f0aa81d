"""Usage by project, and usage audits."""

from __future__ import annotations

import datetime

import pytest

from nova_lite.objects import InstanceUsage
from tests.support.api_client import ADMIN, Client, fault

PATH = "/os-simple-tenant-usage"
PERIOD = "start=2026-11-01T00:00:00&end=2026-11-02T00:00:00"
TOTALS = {"total_hours", "total_vcpus_usage", "total_memory_mb_usage", "total_local_gb_usage"}
PROJECT = TOTALS | {"tenant_id", "start", "stop"}
SERVER = {
    "instance_id",
    "name",
    "tenant_id",
    "flavor",
    "vcpus",
    "memory_mb",
    "local_gb",
    "hours",
    "state",
    "started_at",
    "ended_at",
    "uptime",
}


@pytest.fixture(autouse=True)
def used(api: Client) -> None:
    began = datetime.datetime(2026, 11, 1)
    shape = {"vcpus": 2, "memory_mb": 64, "local_gb": 3, "hours": 1.5, "vm_state": "active", "started_at": began}
    api.conductor.usages = [
        InstanceUsage(uuid="u1", name="vm", project_id="demo", flavor="m1", **shape),
        InstanceUsage(uuid="u2", name="vm", project_id="demo", flavor="m1", ended_at=began, **shape),
        InstanceUsage(uuid="u3", name="vm", project_id="other", flavor="m1", **shape),
    ]


def test_usage_of_all_projects_is_listed(api: Client) -> None:
    usages = api.json("GET", f"{PATH}?{PERIOD}", token=ADMIN)["tenant_usages"]
    assert [usage["tenant_id"] for usage in usages] == ["demo", "other"]
    assert set(usages[0]) == PROJECT
    assert (usages[0]["total_hours"], usages[0]["total_memory_mb_usage"]) == (3.0, 192.0)
    assert (usages[0]["start"], usages[0]["stop"]) == ("2026-11-01T00:00:00.000000", "2026-11-02T00:00:00.000000")
    detailed = api.json("GET", f"{PATH}?{PERIOD}&detailed=1", token=ADMIN)["tenant_usages"]
    assert set(detailed[0]) == PROJECT | {"server_usages"}
    fault(api("GET", PATH), "forbidden", 403)


def test_usage_of_one_project_is_shown(api: Client) -> None:
    usage = api.json("GET", f"{PATH}/demo?{PERIOD}")["tenant_usage"]
    assert set(usage) == PROJECT | {"server_usages"}
    assert [set(server) for server in usage["server_usages"]] == [SERVER, SERVER]
    assert [server["state"] for server in usage["server_usages"]] == ["active", "terminated"]
    assert api.last_call("usage_list")[:3] == ("demo", datetime.datetime(2026, 11, 1), datetime.datetime(2026, 11, 2))
    fault(api("GET", f"{PATH}/other"), "forbidden", 403)
    assert api.json("GET", f"{PATH}/nobody", token=ADMIN) == {"tenant_usage": {}}


def test_usage_has_pages_since_2_40(api: Client) -> None:
    assert "tenant_usages_links" not in api.json("GET", f"{PATH}?limit=1", token=ADMIN, version="2.39")
    assert api.last_call("usage_list")[3:] == (None, None)
    page = api.json("GET", f"{PATH}/demo?limit=1", version="2.40")
    assert page["tenant_usage_links"][0]["href"].endswith(f"{PATH}/demo?limit=1&marker=u1")
    api("GET", f"{PATH}?limit=2&marker=u1", token=ADMIN, version="2.40")
    assert api.last_call("usage_list")[3:] == (2, "u1")


def test_invalid_usage_parameters_are_refused(api: Client) -> None:
    for query in ("start=x", "end=2026-13-01", "start=2026-11-02T00:00:00&end=2026-11-01T00:00:00"):
        fault(api("GET", f"{PATH}/demo?{query}"), "badRequest", 400)
    assert api("GET", f"{PATH}/demo?more=1", version="2.74").status_code == 200
    assert api("GET", f"{PATH}/demo?more=1", version="2.75").status_code == 400


def test_usage_with_empty_project_id_is_404(api: Client) -> None:
    assert api("GET", f"{PATH}/?{PERIOD}", token=ADMIN).status_code == 404


# --- audits


def test_usage_audit_log_is_empty(api: Client) -> None:
    path = "/os-instance_usage_audit_log"
    log = api.json("GET", path, token=ADMIN)["instance_usage_audit_logs"]
    assert (log["hosts_not_run"], log["num_hosts"], log["num_hosts_not_run"]) == (["compute1"], 1, 1)
    assert (log["overall_status"], log["log"], log["total_instances"]) == ("0 of 1 hosts done. 0 errors.", {}, 0)
    assert api.last_call("service_list") == (None, "nova-compute")
    log = api.json("GET", f"{path}/2026-01-21%2008:20:32", token=ADMIN)["instance_usage_audit_log"]
    assert (log["period_beginning"], log["period_ending"]) == ("2025-12-01 00:00:00", "2026-01-01 00:00:00")
    assert api("GET", f"{path}/2026-01-21%2008:20:32.123", token=ADMIN).status_code == 200
    for wrong in ("yesterday", "2026-13-01%2000:00:00", "0001-01-05%2000:00:00"):
        fault(api("GET", f"{path}/{wrong}", token=ADMIN), "badRequest", 400)
    fault(api("GET", path), "forbidden", 403)
    fault(api("GET", f"{path}/2026-01-21%2008:20:32"), "forbidden", 403)
