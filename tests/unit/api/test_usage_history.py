"""Histories of use: who may read them, and their form."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client, fault


def path(api: Client, **changes: Any) -> str:
    return f"/servers/{api.conductor.add(**changes).uuid}/os-usage-history"


def test_history_of_a_server_is_for_its_project(api: Client) -> None:
    found = api.json("GET", path(api))["usage_history"]
    series = found.pop("series")
    assert found == {"start": "2027-01-15T08:00:00Z", "step": 30, "vcpus": 1, "memory_mb": 512}
    assert set(series) == {"cpu", "memory_mb", "disk_read_rate", "disk_write_rate", "rx_rate", "tx_rate"}
    assert {name: values[-1] for name, values in series.items() if values[-1] is not None} == {
        "cpu": 0.123,
        "memory_mb": 100,
        "disk_read_rate": 5,
        "rx_rate": 0,
    }
    assert [len(values) for values in series.values()] == [120] * 6
    assert series["cpu"][0] is None


@pytest.mark.parametrize(("span", "step"), [("hour", 30), ("day", 600), ("week", 3600)])
def test_span_chooses_the_steps(api: Client, span: str, step: int) -> None:
    assert api.json("GET", path(api) + f"?span={span}")["usage_history"]["step"] == step


def test_history_of_another_projects_server_is_not_found(api: Client) -> None:
    fault(api("GET", path(api, project_id="other")), "itemNotFound", 404)
    fault(api("GET", "/servers/nosuch/os-usage-history"), "itemNotFound", 404)
    assert api.json("GET", path(api, project_id="other"), token=ADMIN)["usage_history"]


def test_unknown_span_is_refused(api: Client) -> None:
    fault(api("GET", path(api) + "?span=year"), "badRequest", 400)


@pytest.mark.parametrize(
    ("changes", "error", "name", "code"),
    [
        ({"host": None}, None, "conflictingRequest", 409),
        ({"host_status": "DOWN"}, None, "serviceUnavailable", 503),
        ({}, exceptions.MessagingUnavailable(what="x", reason="no reply"), "serviceUnavailable", 503),
    ],
)
def test_history_without_a_host_that_replies_is_an_error(
    api: Client, changes: dict[str, Any], error: Exception | None, name: str, code: int
) -> None:
    api.compute.error = error
    fault(api("GET", path(api, **changes)), name, code)


def test_history_of_a_hypervisor_is_for_admins(api: Client) -> None:
    node = f"/os-hypervisors/{api.conductor.node.uuid}/os-usage-history"
    found = api.json("GET", node + "?span=week", version="2.53", token=ADMIN)["usage_history"]
    assert (found["step"], found["series"]["cpu"][-1]) == (3600, 3.0)
    assert (found["vcpus"], found["memory_mb"]) == (
        api.conductor.node.inventory.vcpus,
        api.conductor.node.inventory.memory_mb,
    )
    fault(api("GET", node), "forbidden", 403)
    fault(api("GET", "/os-hypervisors/99/os-usage-history", token=ADMIN), "itemNotFound", 404)
    api.compute.error = exceptions.MessagingUnavailable(what="x", reason="no reply")
    fault(api("GET", node, token=ADMIN), "serviceUnavailable", 503)
    api.compute.error = None
    api.conductor.node.service.up = False
    fault(api("GET", node, token=ADMIN), "serviceUnavailable", 503)
