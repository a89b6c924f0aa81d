"""Groups and interfaces of servers by the unmodified ``openstack`` command, which finds no network service here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.standalone_client import Client
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("interfaces"), computes=1, standalone=True) as running:
        yield running


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Client:
    return Client(cloud, "demo")


def test_groups_and_interfaces_of_a_server(cloud: Cloud, demo: Client) -> None:
    token = cloud.token_of("demo")
    body = {"security_group": {"name": "web", "description": "HTTP"}}
    assert cloud.request("POST", "/os-security-groups", body, token=token).status_code == 200
    made = demo.one("server create --image cirros --flavor m1.nano --security-group web --wait vm1")
    assert demo.one("server show vm1")["security_groups"] == [{"name": "web"}]
    demo("server add security group vm1 default")
    assert demo.one("server show vm1")["security_groups"] == [{"name": "web"}, {"name": "default"}]
    demo("server remove security group vm1 web")
    assert demo.one("server show vm1")["security_groups"] == [{"name": "default"}]
    network = cloud.request("GET", "/os-networks", token=token).json()["networks"][0]["id"]
    demo(f"server add network vm1 {network}")

    def addresses() -> list[str]:
        found: list[str] = demo.one("server show vm1")["addresses"]["private"]
        return found

    wait_for("it has two addresses", lambda: len(addresses()) == 2)
    path = f"/servers/{made['id']}/os-interface"
    ports = cloud.request("GET", path, token=token).json()["interfaceAttachments"]
    demo(f"server remove port vm1 {ports[0]['port_id']}")
    wait_for("it has one", lambda: len(addresses()) == 1)
