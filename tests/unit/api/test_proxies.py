"""What old clients ask here of the network and volume services."""

from __future__ import annotations

import uuid

import pytest

from nova_lite.objects import security_group
from tests.unit.api.conftest import Client, fault
from tests.unit.api.fakes import NETWORK_ID

NETWORK = {"id": NETWORK_ID, "cidr": "10.0.0.0/24", "label": "private"}
GROUP = {
    "id": security_group.default_id("demo"),
    "name": "default",
    "description": "Default security group",
    "rules": [],
    "tenant_id": "demo",
}

#: URL and its answer.
ANSWERS = {
    "/os-tenant-networks": {"networks": [NETWORK]},
    f"/os-tenant-networks/{NETWORK_ID}": {"network": NETWORK},
    "/os-security-groups": {"security_groups": [GROUP]},
    f"/os-security-groups/{GROUP['id']}": {"security_group": GROUP},
    "/os-security-groups/default": {"security_group": GROUP},
    "/os-floating-ips": {"floating_ips": []},
    "/os-floating-ip-pools": {"floating_ip_pools": []},
    "/os-volumes": {"volumes": []},
    "/os-volumes/detail": {"volumes": []},
    "/os-snapshots": {"snapshots": []},
    "/os-snapshots/detail": {"snapshots": []},
}


@pytest.mark.parametrize("path", ANSWERS)
def test_what_there_is(api: Client, path: str) -> None:
    assert api.json("GET", path, version="2.35") == ANSWERS[path]
    assert api.json("GET", path, base="/v2") == ANSWERS[path]
    fault(api("GET", path, version="2.36"), "itemNotFound", 404)


@pytest.mark.parametrize("name", ["tenant-networks", "security-groups", "floating-ips", "volumes", "snapshots"])
def test_what_there_is_not(api: Client, name: str) -> None:
    fault(api("GET", f"/os-{name}/nosuch"), "itemNotFound", 404)


def test_a_group_has_a_uuid_of_its_project() -> None:
    ids = {security_group.default_id(project) for project in ("demo", "other", None)}
    assert len(ids) == 3
    assert {str(uuid.UUID(each)) for each in ids} == ids
    assert not security_group.is_default(security_group.default_id("other"), "demo")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/os-floating-ips"),
        ("DELETE", "/os-floating-ips/1"),
        ("POST", "/os-security-groups"),
        ("PUT", "/os-security-groups/default"),
        ("POST", "/os-security-group-rules"),
        ("POST", "/os-volumes"),
        ("DELETE", "/os-snapshots/1"),
    ],
)
def test_what_cannot_be_made(api: Client, method: str, path: str) -> None:
    assert " is not supported by this cloud. " in fault(api(method, path, {}), "notImplemented", 501)
    fault(api(method, path, {}, version="2.36"), "itemNotFound", 404)
