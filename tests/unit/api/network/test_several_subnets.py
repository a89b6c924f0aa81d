"""Networks with several subnets of one IP version: their ports, routers, quotas and deletion."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.network import builtin_networks, router_hosts
from nova_lite.network import factory
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import NetworkRequest
from tests.support import make
from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api

ME = make.context("demo")
FIRST, SECOND = "10.64.1.0/30", "10.64.2.0/24"


class Cloud:
    """A network with two IPv4 subnets. The first one has a single address for ports."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.id: str = api.make("/networks", "network", name="wide", mtu=1400)["id"]
        self.first, self.second = (self.subnet(cidr) for cidr in (FIRST, SECOND))

    def subnet(self, cidr: str, **values: Any) -> dict[str, Any]:
        fields = {"network_id": self.id, "cidr": cidr, "ip_version": 4, **values}
        return self.api.make("/subnets", "subnet", **fields)

    def port(self, *fixed_ips: dict[str, str], **values: Any) -> dict[str, Any]:
        values |= {"fixed_ips": list(fixed_ips)} if fixed_ips else {}
        return self.api.make("/ports", "port", network_id=self.id, **values)

    def subnets_of(self, port: dict[str, Any]) -> list[str]:
        assert port["network_id"] == self.id
        return [item["subnet_id"] for item in port["fixed_ips"]]

    def unused_address(self) -> str:
        """Return an address of the second subnet. Ports without a wish have random ones."""
        ports = self.api.get(f"/ports?network_id={self.id}")["ports"]
        used = {item["ip_address"] for port in ports for item in port["fixed_ips"]}
        return next(address for address in (f"10.64.2.{number}" for number in range(9, 99)) if address not in used)

    def shown(self) -> list[str]:
        found: list[str] = self.api.get(f"/networks/{self.id}")["network"]["subnets"]
        return found


@pytest.fixture
def cloud(api: Api) -> Cloud:
    return Cloud(api)


def test_refusal_of_an_overlapping_subnet_names_the_network_and_no_segment(api: Api, cloud: Cloud) -> None:
    fields = {"subnet": {"network_id": cloud.id, "cidr": "10.64.2.128/25", "ip_version": 4}}
    sentence = f"for network: {cloud.id} overlaps with another subnet"
    api.refused("POST", "/subnets", fields, 400, "InvalidInput", sentence)


def test_network_shows_both_subnets_and_no_segment(api: Api, cloud: Cloud) -> None:
    ids = [cloud.first["id"], cloud.second["id"]]
    assert cloud.shown() == ids and ids[0] == api.subnet_of(cloud.id)
    assert {item["network_id"] for item in (cloud.first, cloud.second)} == {cloud.id}
    found = api.get(f"/subnets?network_id={cloud.id}")["subnets"]
    assert [item["id"] for item in found] == ids and found[1]["cidr"] == SECOND
    assert api.get(f"/subnets/{ids[1]}")["subnet"] == api.get(f"/subnets?id={ids[1]}")["subnets"][0]
    assert [item["id"] for item in api.get(f"/subnets?limit=1&marker={ids[0]}")["subnets"]] == ids[1:]
    assert [item["name"] for item in api.get("/networks", ADMIN)["networks"]].count("wide") == 1
    for path in (f"/networks/{ids[1]}", f"/network-ip-availabilities/{ids[1]}"):
        api.refused("GET", path, None, 404, "NetworkNotFound", ids[1], ADMIN)
    api.refused("GET", f"/subnets/{ids[1]}", None, 404, "SubnetNotFound", ids[1], STRANGER)
    for body in ({"network_id": ids[1]}, {"network_id": ids[1], "fixed_ips": [{"ip_address": "10.64.2.9"}]}):
        api.refused("POST", "/ports", {"port": body}, 404, "NetworkNotFound", ids[1], ADMIN)
    of_segment = {"subnet": {"network_id": ids[1], "cidr": "10.64.3.0/24"}}
    api.refused("POST", "/subnets", of_segment, 404, "NetworkNotFound", ids[1], ADMIN)
    policy = {"object_type": "network", "object_id": ids[1], "action": "access_as_shared", "target_tenant": "x"}
    api.refused("POST", "/rbac-policies", {"rbac_policy": policy}, 400, "RbacPolicyInitError", ids[1], ADMIN)


def test_second_subnet_is_changed_tagged_and_deleted(api: Api, cloud: Cloud) -> None:
    path = f"/subnets/{cloud.second['id']}"
    wanted = {"name": "b", "host_routes": [], "dns_nameservers": ["9.9.9.9"], "enable_dhcp": False}
    changed = api("PUT", path, {"subnet": wanted}).json["subnet"]
    assert {name: changed[name] for name in wanted} == wanted and changed["network_id"] == cloud.id
    assert api("PUT", f"{path}/tags", {"tags": ["blue"]}).status_code == 200
    assert [item["id"] for item in api.get("/subnets?tags=blue")["subnets"]] == [cloud.second["id"]]
    assert api.get(f"/subnets/{cloud.first['id']}")["subnet"]["tags"] == []
    cloud.port({"subnet_id": cloud.second["id"]})
    api.refused("DELETE", path, None, 409, "NetworkInUse", "in use")
    for port in api.get(f"/ports?network_id={cloud.id}")["ports"]:
        assert api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": []}}).json["port"]["fixed_ips"] == []
    assert api("DELETE", path).status_code == 204
    assert cloud.shown() == [cloud.first["id"]]
    assert cloud.subnets_of(api.get(f"/ports?network_id={cloud.id}")["ports"][0]) == []
    assert cloud.subnet(SECOND)["id"] != cloud.second["id"] and len(cloud.shown()) == 2


def test_port_takes_an_address_of_the_requested_subnet_or_the_first_with_room(api: Api, cloud: Cloud) -> None:
    first, second = cloud.first["id"], cloud.second["id"]
    assert cloud.subnets_of(cloud.port({"subnet_id": second})) == [second]
    chosen = {"subnet_id": second, "ip_address": cloud.unused_address()}
    assert cloud.port({"ip_address": chosen["ip_address"]})["fixed_ips"] == [chosen]
    moving = cloud.port()
    assert cloud.subnets_of(moving) == [first]
    assert cloud.subnets_of(cloud.port()) == [second], "the first subnet is full"
    path = f"/ports/{moving['id']}"
    for wanted in (
        {"subnet_id": second},
        {"ip_address": "10.64.1.2"},
        {"subnet_id": second, "ip_address": cloud.unused_address()},
    ):
        moved = api("PUT", path, {"port": {"fixed_ips": [wanted]}}).json["port"]
        assert wanted.items() <= moved["fixed_ips"][0].items() and cloud.subnets_of(moved) != []
    assert len(api.get(f"/ports?network_id={cloud.id}&fields=id")["ports"]) == 4
    assert len(api.get(f"/ports?fixed_ips=subnet_id={second}")["ports"]) == 4
    used = api.get(f"/network-ip-availabilities/{cloud.id}", ADMIN)["network_ip_availability"]
    assert [item["used_ips"] for item in used["subnet_ip_availability"]] == [0, 4]
    api.refused("DELETE", f"/networks/{cloud.id}", None, 409, "NetworkInUse", "in use")
    for port in api.get("/ports")["ports"]:
        api("DELETE", f"/ports/{port['id']}")
    assert api("DELETE", f"/networks/{cloud.id}").status_code == 204
    assert api.get("/subnets?ip_version=4")["subnets"] == api.get(f"/subnets?network_id={api.shared.id}")["subnets"]


@pytest.mark.parametrize(
    ("wanted", "status", "kind", "text"),
    [
        ([("first", ""), ("second", "")], 400, "HTTPBadRequest", "links of their own"),
        ([("", "10.65.0.9")], 400, "InvalidIpForSubnet", "10.65.0.9"),
        ([("second", "10.64.1.2")], 400, "InvalidIpForSubnet", "10.64.1.2"),
        ([("other", "")], 404, "SubnetNotFound", "could not be found"),
    ],
)
def test_port_with_addresses_that_the_subnets_do_not_have_is_refused(
    api: Api, cloud: Cloud, wanted: list[tuple[str, str]], status: int, kind: str, text: str
) -> None:
    ids = {"first": cloud.first["id"], "second": cloud.second["id"], "other": api.shared.id}
    items = [
        {"subnet_id": ids[name]} | ({"ip_address": address} if address else {}) if name else {"ip_address": address}
        for name, address in wanted
    ]
    body = {"port": {"network_id": cloud.id, "fixed_ips": items}}
    api.refused("POST", "/ports", body, status, kind, text)


def test_router_connects_both_subnets_and_another_router_neither(api: Api, cloud: Cloud) -> None:
    gateway = {"network_id": api.pool.id}
    one, other = (api.make("/routers", "router", name=name, external_gateway_info=gateway) for name in "ab")
    ids = [cloud.first["id"], cloud.second["id"]]
    for item in ids:
        added = api("PUT", f"/routers/{one['id']}/add_router_interface", {"subnet_id": item}).json
        assert (added["subnet_ids"], added["network_id"]) == ([item], cloud.id)
        again = {"subnet_id": item}
        api.refused(
            "PUT", f"/routers/{other['id']}/add_router_interface", again, 409, "IpAddressAlreadyAllocated", cloud.id
        )
    of_links = sa.select(models.Network.id).where(models.Network.subnet_id.in_(ids))
    links = api.manager.db.read(lambda uow: uow.session.scalars(of_links).all())
    (routers,) = api.manager.db.read(router_hosts.for_hosts, {"h": {one["id"]: links}}).values()
    assert sorted(network.cidr for network in routers[0].networks) == [FIRST, SECOND]
    port = cloud.port({"subnet_id": ids[1]})
    address = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id, port_id=port["id"])
    assert address["fixed_ip_address"] == port["fixed_ips"][0]["ip_address"]
    api.refused(
        "PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": [{"subnet_id": ids[0]}]}}, 409, "Conflict", "Floa"
    )
    path = f"/routers/{one['id']}/remove_router_interface"
    api.refused("PUT", path, {"subnet_id": ids[1]}, 409, "RouterInterfaceInUseByFloatingIP", ids[1])
    api.refused("DELETE", f"/subnets/{ids[1]}", None, 409, "NetworkInUse", "in use")
    assert api("PUT", path, {"subnet_id": ids[0]}).json["subnet_id"] == ids[0]


def test_further_subnets_count_against_the_quota(api: Api, cloud: Cloud) -> None:
    cloud.subnet("10.64.3.0/24")
    fourth = {"subnet": {"network_id": cloud.id, "cidr": "10.64.4.0/24"}}
    api.refused("POST", "/subnets", fourth, 409, "OverQuota", "subnet")
    used = api.get("/quotas/demo/details.json")["quota"]
    assert (used["network"]["used"], used["subnet"]["used"]) == (1, 3)


def test_second_ipv6_subnet_is_on_the_link_of_the_second_ipv4_subnet(api: Api, cloud: Cloud) -> None:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd00::/16"], "network")
    api.manager.conf.set_override("networks_per_project", -1, "network")
    six = [cloud.subnet(f"fd00:{number}::/64", ip_version=6, ipv6_address_mode="slaac")["id"] for number in (1, 2)]
    assert cloud.shown() == [cloud.first["id"], six[0], cloud.second["id"], six[1]]
    port = cloud.port({"subnet_id": cloud.second["id"]}, mac_address="fa:16:3e:00:00:01")
    assert cloud.subnets_of(port) == [cloud.second["id"], six[1]]
    apart = {"port": {"network_id": cloud.id, "fixed_ips": [{"subnet_id": cloud.second["id"]}, {"subnet_id": six[0]}]}}
    api.refused("POST", "/ports", apart, 400, "HTTPBadRequest", "links of their own")
    moved = api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": [{"subnet_id": cloud.first["id"]}]}}).json["port"]
    assert moved["fixed_ips"][1] == {"subnet_id": six[0], "ip_address": "fd00:1::f816:3eff:fe00:1"}
    assert api("DELETE", f"/subnets/{cloud.second['id']}").status_code == 204
    assert cloud.shown() == [cloud.first["id"], *six], "the second IPv6 subnet stays without the IPv4 subnet"
    again = cloud.subnet("10.64.9.0/24")["id"]
    assert cloud.shown() == [cloud.first["id"], six[0], again, six[1]], "it is on the same link again"


def test_network_without_its_first_subnet_is_usable_by_the_second(api: Api, cloud: Cloud) -> None:
    assert api("DELETE", f"/subnets/{cloud.first['id']}").status_code == 204
    assert cloud.subnets_of(cloud.port()) == [cloud.second["id"]]
    (usable,) = api.manager.db.read(builtin_networks.list_, ME, cloud.id)
    assert (usable.id, usable.cidr) == (cloud.id, SECOND)
    assert cloud.subnet(FIRST)["id"] not in (cloud.id, *cloud.shown()[1:])


def test_segments_of_a_network_across_hosts_have_vnis_of_their_own(api: Api) -> None:
    api.manager.conf.set_override("project_vnis", ["100-102"], "network")
    made = Cloud(api)
    query = sa.select(models.Network).where(models.Network.name == "wide")
    rows = api.manager.db.read(
        lambda uow: [(row.vni, row.mtu, row.bridge, row.needs_router) for row in uow.session.scalars(query)]
    )
    assert len({row[0] for row in rows}) == 2 and len({row[2] for row in rows}) == 2
    assert {row[1] for row in rows} == {1400} and {row[3] for row in rows} == {True}
    renamed = {"network": {"name": "new", "admin_state_up": False}}
    assert api("PUT", f"/networks/{made.id}", renamed).status_code == 200
    segments = sa.select(models.Network.name, models.Network.admin_state_up)
    segments = segments.where(models.Network.parent_id == made.id)
    assert api.manager.db.read(lambda uow: uow.session.execute(segments).all()) == [("new", False)]


def test_server_gets_the_requested_address_or_one_of_the_first_subnet_with_room(api: Api, cloud: Cloud) -> None:
    backend = LocalNetworks(api.manager.conf)

    def boot(uow: Any, **wanted: str) -> tuple[str, str, str]:
        store = builtin_networks.Store(uow)
        request = backend.resolve(store, ME, [NetworkRequest(network_id=cloud.id, **wanted)])
        (vif,) = backend.allocate(store, make.instance(uow), request)
        assert vif.network.public_id == cloud.id and vif.network.name == "wide"
        return vif.network.subnet_id, vif.address, vif.network.cidr

    write, on_first = api.manager.db.write, cloud.first["id"]
    assert write(boot, fixed_ip="10.64.2.7") == (cloud.second["id"], "10.64.2.7", SECOND)
    assert write(boot) == (cloud.first["id"], "10.64.1.2", FIRST)
    assert write(boot)[2] == SECOND
    ports = api.get(f"/ports?network_id={cloud.id}", ADMIN)["ports"]
    assert sorted(item["fixed_ips"][0]["subnet_id"] for item in ports) == sorted(
        [cloud.first["id"]] + [cloud.second["id"]] * 2
    )
    port = cloud.port({"subnet_id": cloud.second["id"]})
    assert write(boot, port_id=port["id"])[1] == port["fixed_ips"][0]["ip_address"]
    api.refused(
        "PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": [{"subnet_id": on_first}]}}, 409, "PortInUse", "use"
    )


def test_operators_bridge_has_one_subnet(api: Api) -> None:
    own = factory.new_network("br", "10.9.0.0/24", bridge="br0")
    api.manager.db.write(builtin_networks.create, own)
    body = {"subnet": {"network_id": own.id, "cidr": "10.9.1.0/24"}}
    api.refused("POST", "/subnets", body, 409, "Conflict", "operator's bridge br0", ADMIN)


def test_mtu_changes_for_all_links_and_their_hosts(api: Api, cloud: Cloud) -> None:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd00::/16"], "network")
    assert api("PUT", f"/networks/{cloud.id}", {"network": {"mtu": 1300}}).json["network"]["mtu"] == 1300
    query = sa.select(models.Network.mtu, models.Network.revised).where(models.Network.name == "wide")
    assert api.manager.db.read(lambda uow: uow.session.execute(query).all()) == [(1300, True)] * 2
    api.refused("PUT", f"/networks/{cloud.id}", {"network": {"mtu": 9217}}, 400, "HTTPBadRequest", "from 68 to 9216")
    assert api("PUT", f"/networks/{cloud.id}", {"network": {"mtu": factory.MAX_MTU}}).status_code == 200
    cloud.subnet("fd00:1::/64", ip_version=6)
    api.refused("PUT", f"/networks/{cloud.id}", {"network": {"mtu": 1200}}, 400, "InvalidInput", "IPv6 needs an MTU")
    wide = factory.new_network("tunnel", "10.1.0.0/24", vni=77, project_id="demo")
    api.manager.db.write(builtin_networks.create, wide)
    api.refused("PUT", f"/networks/{wide.id}", {"network": {"mtu": 1500}}, 400, "InvalidInput", "maximum is 1450")
