"""A server with a volume and a floating address by Apache Libcloud: libcloud_flow.py URL PASSWORD"""

from __future__ import annotations

import sys
import time

from libcloud.compute.providers import get_driver
from libcloud.compute.types import Provider

url, password = sys.argv[1:]
driver = get_driver(Provider.OPENSTACK)(
    "demo",
    password,
    ex_force_auth_url=url + "/identity",
    ex_force_auth_version="3.x_password",
    ex_tenant_name="demo",
    ex_force_service_region="RegionOne",
)
size = next(size for size in driver.list_sizes() if size.name == "m1.nano")
image = next(image for image in driver.list_images() if image.name == "nova-lite-guest")
network = next(network for network in driver.ex_list_networks() if network.name == "private")
key = driver.import_key_pair_from_string(
    "libcloud", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF libcloud"
)
group = driver.ex_create_security_group("libcloud", "made by libcloud")
rule = driver.ex_create_security_group_rule(group, "tcp", 22, 22, "0.0.0.0/0")
node = driver.create_node(
    name="libcloud", size=size, image=image, networks=[network], ex_keyname=key.name, ex_security_groups=[group]
)
((node, addresses),) = driver.wait_until_running([node], wait_period=0.5, timeout=60, ssh_interface="private_ips")
print("server", addresses)
volume = driver.create_volume(1, "libcloud")
while driver.ex_get_volume(volume.id).extra["state"] == "creating":
    time.sleep(0.2)
assert driver.attach_volume(node, volume)
(pool,) = driver.ex_list_floating_ip_pools()
floating = pool.create_floating_ip()
assert driver.ex_attach_floating_ip_to_node(node, floating)
details = driver.ex_get_node_details(node.id)
assert floating.ip_address in details.public_ips + details.private_ips
snapshot = driver.create_volume_snapshot(volume, "libcloud")
assert driver.reboot_node(node)
assert driver.ex_detach_floating_ip_from_node(node, floating)
assert driver.ex_delete_floating_ip(floating)
assert driver.destroy_node(node)
