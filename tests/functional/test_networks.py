"""A network that spans hosts, with IPv4 and IPv6, as users and hosts see it."""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.standalone_client import Client
from tests.support.waiting import wait_for

#: Hosts ask often, so that it is seen soon that a guest is gone.
OPTIONS = "[network]\nsecurity_group_refresh_interval = 1\nproject_vnis = 500-509\n"
WIDE = "create wide 10.98.0.0/24 --vxlan 77 --cidr6 fd00:98::/64"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("networks")
    with clouds.running(path, computes=2, standalone=True, extra_config=OPTIONS) as running:
        running.wide = running.manage("network", *shlex.split(WIDE)).strip()  # type: ignore[attr-defined]
        yield running


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Client:
    return Client(cloud, "demo")


@pytest.fixture(scope="module")
def admin(cloud: Cloud) -> Client:
    return Client(cloud, "admin")


def peers(cloud: Cloud, host: str) -> Any:
    """Return the peers that the host received last."""
    path = cloud.path / host / "instances" / f"fake-{host}" / "port-filters.json"
    return json.loads(path.read_text()).get("peers") if path.exists() else None


def test_a_server_has_an_address_of_each_kind(cloud: Cloud, admin: Client) -> None:
    made = admin.one("server create --image cirros --flavor m1.nano --network wide --wait dual")
    v4, v6 = admin.one("server show dual")["addresses"]["wide"]
    (port,) = admin.one(f"port list --server {made['id']}")
    assert [item["ip_address"] for item in port["Fixed IP Addresses"]] == [v4, v6]
    octets = bytes.fromhex(port["MAC Address"].replace(":", ""))
    identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    assert ipaddress.IPv6Address(v6).packed == ipaddress.IPv6Address("fd00:98::").packed[:8] + identifier
    shown = cloud.request("GET", f"/servers/{made['id']}").json()["server"]["addresses"]["wide"]
    assert [(item["version"], item["addr"]) for item in shown] == [(4, v4), (6, v6)]
    (interface,) = cloud.request("GET", f"/servers/{made['id']}/os-interface").json()["interfaceAttachments"]
    assert [item["ip_address"] for item in interface["fixed_ips"]] == [v4, v6]
    subnets = {item["ID"]: item for item in admin.one("subnet list --network wide")}
    assert {item["subnet_id"] for item in interface["fixed_ips"]} == subnets.keys()
    assert sorted(subnet["Subnet"] for subnet in subnets.values()) == ["10.98.0.0/24", "fd00:98::/64"]
    assert [row["Name"] for row in admin.one(f"server list --ip6 {v6}")] == ["dual"]
    assert admin.one("server list --ip6 fd00:99") == []
    admin("server delete --wait dual")
    assert admin.one("server list --ip6 fd00") == []
    cloud.audit()


def test_a_port_has_both_from_the_first(cloud: Cloud, demo: Client, admin: Client) -> None:
    (v6,) = (row["ID"] for row in demo.one("subnet list --network wide --ip-version 6"))
    subnet = demo.one(f"subnet show {v6}")
    assert (subnet["ipv6_ra_mode"], subnet["ipv6_address_mode"], subnet["gateway_ip"]) == (
        "slaac",
        "slaac",
        "fd00:98::1",
    )
    mac_address = "fa:16:3e:12:34:56"
    port = admin.one(f"port create --network wide --mac-address {mac_address} both")
    assert [item["ip_address"] for item in port["fixed_ips"]][1:] == ["fd00:98::f816:3eff:fe12:3456"]
    refused = admin("port create --network wide --fixed-ip ip-address=fd00:98::5 chosen", status=1)
    assert "fd00:98::5 can not be directly assigned" in refused
    demo(f"subnet delete {v6}", status=1)
    assert "create_port:mac_address" in demo("port create --network wide --mac-address fa:16:3e:00:00:01 x", status=1)
    admin("port delete both")


def test_each_host_is_told_where_the_others_are(cloud: Cloud, admin: Client) -> None:
    wide: str = cloud.wide  # type: ignore[attr-defined]

    def boot(host: str) -> str:
        (made,) = cloud.create(networks=[{"uuid": wide}], availability_zone=f"nova:{host}")
        return made

    boot("compute-1")
    wait_for("compute-1 is told", lambda: peers(cloud, "compute-1") == {wide: []})
    second = boot("compute-2")
    for host in ("compute-1", "compute-2"):
        wait_for(f"{host} is told", lambda host=host: peers(cloud, host) == {wide: ["127.0.0.1"]})
    assert admin.one("network show wide")["provider:network_type"] == "vxlan"
    assert cloud.request("DELETE", f"/servers/{second}").status_code == 204
    wait_for("compute-1 is told", lambda: peers(cloud, "compute-1") == {wide: []})
    cloud.delete_all()


def test_networks_of_projects_span_hosts(cloud: Cloud, demo: Client, admin: Client) -> None:
    demo("network create own")
    shown = admin.one("network list --long")
    (own,) = (row for row in shown if row["Name"] == "own")
    assert own["Network Type"] == "vxlan"
    found = admin.one(f"network show {own['ID']}")
    assert 500 <= found["provider:segmentation_id"] <= 509
    assert found["mtu"] == 1450
    demo("network delete own")


def test_network_invalid_definitions_are_refused(cloud: Cloud) -> None:
    for wrong, why in (
        ("create n 10.1.0.0/24 --vxlan 77", "VNI 77 is that of network wide"),
        ("create n 10.1.0.0/24 --vxlan 16777216", "16777216 is not a valid VNI (1 to 16777215)"),
        ("create n 10.1.0.0/24 --cidr6 fd00:99::/56", "not a /64"),
        ("create n 10.1.0.0/24 --cidr6 fe80::/64", "which are for single links"),
        ("create n 10.1.0.0/24 --cidr6 fd00:99::/64 --mtu 1000", "MTU of at least 1280"),
    ):
        said = cloud.try_manage("network", *shlex.split(wrong))
        assert said.returncode == 1 and why in said.stderr, said.stderr
