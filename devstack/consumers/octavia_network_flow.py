"""A virtual address on a pair of amphorae by Octavia's network driver: octavia_network_flow.py URL PASSWORD"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import openstack
from octavia.common import config, constants, data_models

url, password = sys.argv[1:]
Path("octavia.conf").write_text(
    f"[service_auth]\nauth_type = password\nauth_url = {url}/identity/v3\nusername = admin\nproject_name = admin\n"
    f"password = {password}\nuser_domain_id = default\nproject_domain_id = default\n"
    "[controller_worker]\ncompute_driver = compute_nova_driver\n"
    "[networking]\nmax_retries = 3\nretry_interval = 1\nport_detach_timeout = 60\n"
)
Path("octavia.conf").chmod(0o600)
config.init(["--config-file", "octavia.conf"])

from octavia.network.drivers.neutron.allowed_address_pairs import (  # noqa: E402 it reads options when it is imported
    AllowedAddressPairsDriver,
)

SECONDS = 60
cloud = openstack.connect(cloud="admin")


def wait_for(what: str, is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, f"{what}: not within {SECONDS} s"
        time.sleep(0.3)
    print(what)


driver = AllowedAddressPairsDriver()
public, management = (cloud.network.create_network(name=name) for name in ("octavia-vip", "octavia-management"))
subnet_id = cloud.network.create_subnet(network_id=public.id, ip_version=4, cidr="10.99.0.0/24").id
cloud.network.create_subnet(network_id=management.id, ip_version=4, cidr="10.98.0.0/24")
health = cloud.network.create_port(network_id=management.id, device_owner="Octavia:health-mgr")
balancer = data_models.LoadBalancer(
    id=str(uuid.uuid4()),
    project_id=cloud.identity.find_project("demo").id,
    topology=constants.TOPOLOGY_ACTIVE_STANDBY,
    listeners=[data_models.Listener(protocol="HTTP", protocol_port=80, peer_port=1025, allowed_cidrs=[])],
)
vip = balancer.vip = data_models.Vip(network_id=public.id, subnet_id=subnet_id, load_balancer=balancer, sg_ids=[])
allocated, _ = driver.allocate_vip(balancer)
port = driver.get_port(allocated.port_id)
found = (port.device_owner, port.device_id, port.project_id)
assert found == ("Octavia", f"lb-{balancer.id}", balancer.project_id), found
vip.ip_address, vip.port_id = allocated.ip_address, allocated.port_id
assert driver.allocate_vip(balancer)[0].port_id == port.id
group_id = driver.update_vip_sg(balancer, vip)
assert driver.update_vip_sg(balancer, vip) == group_id
rules = cloud.network.security_group_rules(security_group_id=group_id, direction="ingress")
ports = {(rule.protocol, rule.port_range_min) for rule in rules}
assert ports == {("tcp", 80), ("tcp", 1025), ("112", None), ("51", None)}, ports
print(f"virtual address {vip.ip_address} with its security group")

image = cloud.image.find_image("nova-lite-guest", ignore_missing=False)
flavor = cloud.compute.find_flavor("m1.nano", ignore_missing=False)
servers = [
    cloud.compute.create_server(
        name=f"amphora-{number}", image_id=image.id, flavor_id=flavor.id, networks=[{"uuid": management.id}]
    )
    for number in range(2)
]
for server in map(cloud.compute.wait_for_server, servers):
    (address,) = server.addresses["octavia-management"]
    amphora = data_models.Amphora(
        id=str(uuid.uuid4()),
        compute_id=server.id,
        status=constants.AMPHORA_ALLOCATED,
        lb_network_ip=address["addr"],
        load_balancer=balancer,
    )
    plugged = driver.plug_aap_port(balancer, vip, amphora, driver.get_subnet(subnet_id))
    amphora.vrrp_ip, amphora.vrrp_port_id = plugged.vrrp_ip, plugged.vrrp_port_id
    amphora.ha_ip, amphora.ha_port_id = plugged.ha_ip, plugged.ha_port_id
    base = cloud.network.get_port(amphora.vrrp_port_id)
    assert [pair["ip_address"] for pair in base.allowed_address_pairs] == [vip.ip_address], base
    assert (base.security_group_ids, base.device_id) == ([group_id], server.id), base
    balancer.amphorae.append(amphora)
    print(f"amphora with {amphora.vrrp_ip}")
assert set(driver.get_network_configs(balancer)) == {amphora.id for amphora in balancer.amphorae}
member = driver.create_port(public.id, fixed_ips=[{"subnet_id": subnet_id}], security_group_ids=[group_id])
driver.plug_port(balancer.amphorae[0], member)
driver.compute.detach_port(compute_id=servers[0].id, port_id=member.id)
wait_for(
    "port of a member plugged and unplugged",
    lambda: member.id not in {item.port_id for item in driver.get_plugged_networks(servers[0].id)},
)
driver.delete_port(member.id)

driver.unplug_vip(balancer, vip)
assert not any(cloud.network.find_port(amphora.vrrp_port_id) for amphora in balancer.amphorae)
driver.update_vip(balancer, for_delete=True)
driver.deallocate_vip(vip)
assert cloud.network.find_port(port.id) is None
assert cloud.network.find_security_group(group_id) is None
print("virtual address unplugged and deleted")
for server in servers:
    cloud.compute.delete_server(server)
for server in servers:
    cloud.compute.wait_for_delete(server)
cloud.network.delete_port(health.id)
for network in (public, management):
    cloud.network.delete_network(network.id)
