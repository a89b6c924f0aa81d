"""A server's diagnostics, in both forms."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nova_lite.base import exceptions, structured_logs
from nova_lite.base.context import RequestContext
from tests.support.api_client import ADMIN, Client, fault


def path(api: Client, **changes: Any) -> str:
    return f"/servers/{api.conductor.add(**changes).uuid}/diagnostics"


def test_diagnostics_have_the_standard_form_since_2_48(api: Client) -> None:
    diagnostics = api.json("GET", path(api), version="2.48", token=ADMIN)
    assert diagnostics.pop("uptime") > 0
    (nic,) = diagnostics.pop("nic_details")
    assert nic == {
        "mac_address": "fa:16:3e:00:00:01",
        "rx_octets": 2070139,
        "tx_packets": 662,
        **dict.fromkeys(("rx_packets", "rx_errors", "rx_drop", "rx_rate", "tx_octets")),
        **dict.fromkeys(("tx_errors", "tx_drop", "tx_rate")),
    }
    disk = {"read_bytes": 262144, "read_requests": 112, "write_bytes": 0, "write_requests": 0, "errors_count": None}
    assert diagnostics == {
        "state": "running",
        "driver": "libvirt",
        "hypervisor": "kvm",
        "hypervisor_os": "linux",
        "config_drive": True,
        "num_cpus": 1,
        "num_nics": 1,
        "num_disks": 1,
        "cpu_details": [{"id": 0, "time": 17300000000, "utilisation": None}],
        "disk_details": [disk],
        "memory_details": {"maximum": 512, "used": 256},
    }


def test_diagnostics_have_free_form_before_2_48(api: Client) -> None:
    assert api.json("GET", path(api), version="2.47", token=ADMIN) == {
        "cpu0_time": 17300000000,
        "vda_read_req": 112,
        "vda_read": 262144,
        "vda_write_req": 0,
        "vda_write": 0,
        "tap1_rx": 2070139,
        "tap1_tx_packets": 662,
        "memory": 524288,
        "memory-rss": 262144,
    }


@pytest.mark.parametrize(
    ("changes", "error", "name", "code"),
    [
        ({"host": None}, None, "conflictingRequest", 409),
        ({"host_status": "DOWN"}, None, "serviceUnavailable", 503),
        ({}, exceptions.NotImplementedByDriver(operation="diagnostics"), "notImplemented", 501),
        (
            {},
            exceptions.InstanceInvalidState(method="x", instance_id="x", attr="power state", state="shutdown"),
            "conflictingRequest",
            409,
        ),
    ],
)
def test_unavailable_diagnostics_are_an_error(
    api: Client, changes: dict[str, Any], error: Exception | None, name: str, code: int
) -> None:
    api.compute.error = error
    fault(api("GET", path(api, **changes), token=ADMIN), name, code)


def test_diagnostics_are_for_admins_only(api: Client) -> None:
    fault(api("GET", path(api)), "forbidden", 403)
    fault(api("GET", "/servers/nosuch/diagnostics", token=ADMIN), "itemNotFound", 404)
    fault(api("GET", path(api) + "?a=b", version="2.102", token=ADMIN), "badRequest", 400)


@pytest.mark.parametrize("path", ["/servers/{}", "/servers/{}/diagnostics"])
def test_records_of_a_request_name_the_server_of_its_url(
    api: Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    found: list[str | None] = []
    instance_get = api.conductor.instance_get

    def look(context: RequestContext, instance_uuid: str) -> Any:
        record = logging.LogRecord("x", logging.INFO, "", 0, "text", None, None)
        found.append(structured_logs.fields(record).get("instance"))
        return instance_get(context, instance_uuid)

    monkeypatch.setattr(api.conductor, "instance_get", look)
    server = api.conductor.add().uuid
    api.json("GET", path.format(server), version="2.48", token=ADMIN)
    assert set(found) == {server}
