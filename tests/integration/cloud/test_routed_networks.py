"""Two networks, a router with a gateway, guests on two hosts, and a floating address: who reaches whom.

The requests and their bodies are those of Terraform's provider openstack 3.4 for a usual module, in an order in which
each of them can be seen.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.cloud import reachability
from tests.integration.cloud.conftest import PATIENCE, PREFIX, StackedCloud
from tests.integration.cloud.reachability import FROM_OUTSIDE, OUTSIDE, SECOND_LINK, Table
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(not os.environ.get("NOVA_LITE_LONG"), reason="takes minutes; NOVA_LITE_LONG=1")

POOL, FLOATING = "172.24.4.0/24", "172.24.4.77"
CIDRS = {"a": "10.66.1.0/24", "b": "10.66.2.0/24"}
ADDRESSES = {"a": "10.66.1.20", "b": "10.66.2.20"}
ALL = ("a→b", "a→outside", "b→a", "b→outside", "b→floating", FROM_OUTSIDE)
BOTH_WAYS = {"a→b": True, "b→a": True}


class Module:
    """Makes and removes the resources of the module."""

    def __init__(self, cloud: StackedCloud) -> None:
        self._networks = cloud.networks

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create something, and return it."""
        response = self._networks.post(path, json=body)
        assert response.ok, response.text
        (made,) = response.json().values()
        return made

    def put(self, path: str, body: dict[str, Any]) -> None:
        response = self._networks.put(path, json=body)
        assert response.ok, response.text

    def remove(self) -> None:
        """Delete everything that this module makes, also in a run that broke off."""
        for address in self._networks.ips(floating_ip_address=FLOATING):
            self._networks.delete_ip(address)
        for router in self._made("routers"):
            for port in self._networks.ports(device_id=router.id):
                self._networks.remove_interface_from_router(router, port_id=port.id)
            self._networks.delete_router(router)
        for network in self._made("networks"):
            for port in self._networks.ports(network_id=network.id):
                self._networks.delete_port(port)
            self._networks.delete_network(network)
        for group in self._made("security_groups"):
            self._networks.delete_security_group(group)

    def _made(self, plural: str) -> list[Any]:
        return [found for found in getattr(self._networks, plural)() if found.name.startswith(PREFIX)]


@pytest.fixture
def module(cloud: StackedCloud) -> Iterator[Module]:
    if len(cloud.entered) < 2:
        pytest.skip("this cloud has one compute host (COMPUTES=2 devstack/stack.sh)")
    made = Module(cloud)
    made.remove()
    yield made
    cloud.sweep()
    made.remove()


def guest(cloud: StackedCloud, name: str, port: dict[str, Any], host: str) -> Any:
    """Return a server on the host whose guest tries all others."""
    targets = {other: address for other, address in ADDRESSES.items() if other != name}
    targets |= {"outside": OUTSIDE} | ({"floating": FLOATING} if name == "b" else {})
    return cloud.create(
        name,
        networks=[{"port": port["id"]}],
        availability_zone=f"nova:{host}",
        config_drive=True,
        user_data=reachability.user_data(targets),
    )


def test_router_and_floating_address_connect_guests_of_two_hosts_also_after_one_is_lost(
    cloud: StackedCloud, module: Module
) -> None:
    first, second = list(cloud.entered)[:2]
    external = next(cloud.networks.networks(name="public"))
    group = module.post("/security-groups", {"security_group": {"name": PREFIX, "description": ""}})
    rule = {"direction": "ingress", "ethertype": "IPv4", "security_group_id": group["id"], "protocol": "icmp"}
    module.post("/security-group-rules", {"security_group_rule": {**rule, "remote_group_id": group["id"]}})
    subnets, servers = {}, {}
    for name, cidr in CIDRS.items():
        network = module.post("/networks", {"network": {"name": PREFIX + name, "admin_state_up": True}})
        subnet = {"network_id": network["id"], "cidr": cidr, "ip_version": 4, "enable_dhcp": True}
        subnets[name] = module.post("/subnets", {"subnet": subnet})
        fixed_ip = {"subnet_id": subnets[name]["id"], "ip_address": ADDRESSES[name]}
        port = {"network_id": network["id"], "fixed_ips": [fixed_ip], "security_groups": [group["id"]]}
        made = module.post("/ports", {"port": {**port, "admin_state_up": True}})
        servers[name] = guest(cloud, name, made, second if name == "a" else first), made
    floating = {"floating_network_id": external.id, "floating_ip_address": FLOATING}
    address = module.post("/floatingips", {"floatingip": floating})
    with reachability.outside(cloud, POOL) as reaches:
        table = Table(cloud, reaches, FLOATING)
        for name, (server, _) in servers.items():
            table.guests[name] = cloud.wait_status(server.id, "ACTIVE")
            cloud.guest_lines(server.id)
        try:
            router = connect(module, table, subnets, address, servers["a"][1], external.id, rule)
            lose(cloud, table, second)
            disconnect(module, table, router, subnets["b"], address)
        finally:
            print(f"\n{table.text()}")


def connect(
    module: Module,
    table: Table,
    subnets: dict[str, Any],
    address: dict[str, Any],
    port: dict[str, Any],
    external: str,
    rule: dict[str, Any],
) -> Any:
    """Make the router and what else connects the guests. Return the router."""
    expected = dict.fromkeys(ALL, False)
    table.after("networks, ports, servers", expected)
    gateway = {"network_id": external}
    router = module.post(
        "/routers", {"router": {"name": PREFIX, "admin_state_up": True, "external_gateway_info": gateway}}
    )
    table.after("POST routers (gateway)", expected)
    module.put(f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnets["a"]["id"]})
    expected["a→outside"] = True
    table.after("PUT add_router_interface (a)", expected)
    module.put(f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnets["b"]["id"]})
    expected |= {**BOTH_WAYS, "b→outside": True}
    table.after("PUT add_router_interface (b)", expected)
    module.put(f"/floatingips/{address['id']}", {"floatingip": {"port_id": port["id"]}})
    table.after("PUT floatingips (a)", {key: value for key, value in expected.items() if key != "b→floating"})
    module.post("/security-group-rules", {"security_group_rule": {**rule, "remote_ip_prefix": "0.0.0.0/0"}})
    table.after("POST security-group-rules (ICMP from everywhere)", dict.fromkeys(ALL, True))
    return router


def lose(cloud: StackedCloud, table: Table, host: str) -> None:
    """Cut the host of guest ``a`` off, have the guest on the other host, and connect the host again."""
    server = table.guests["a"]
    (lost,) = (service for service in cloud.compute.services(host=host) if service.binary == "nova-compute")
    subprocess.run(["ip", "link", "set", SECOND_LINK, "down"], check=True)
    try:
        gone = {"b→a": False, "b→floating": False, "b→outside": True, FROM_OUTSIDE: False}
        table.after("the host of a is lost", gone, without="a")
        cloud.compute.update_service(lost, is_forced_down=True)
        cloud.compute.evacuate_server(server.id)
        cloud.wait_status(server.id, "SHUTOFF")
        cloud.compute.start_server(server.id)
        cloud.wait_status(server.id, "ACTIVE")
        cloud.guest_lines(server.id)
        table.after("POST evacuate, os-start", dict.fromkeys(ALL, True))
    finally:
        subprocess.run(["ip", "link", "set", SECOND_LINK, "up"], check=True)
        cloud.compute.update_service(lost, is_forced_down=False)
    wait_for("what the host had is gone", lambda: host not in cloud.where(server.id), PATIENCE, 0.5)
    table.after("the host is back", dict.fromkeys(ALL, True))


def disconnect(module: Module, table: Table, router: Any, subnet: dict[str, Any], address: dict[str, Any]) -> None:
    module.put(f"/routers/{router['id']}/remove_router_interface", {"subnet_id": subnet["id"]})
    expected = {**dict.fromkeys(ALL, False), "a→outside": True, FROM_OUTSIDE: True}
    table.after("PUT remove_router_interface (b)", expected)
    module.put(f"/floatingips/{address['id']}", {"floatingip": {"port_id": None}})
    table.after("PUT floatingips (none)", {**expected, FROM_OUTSIDE: False})
