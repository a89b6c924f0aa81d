"""A pair of amphorae by Octavia's drivers of compute, images and volumes: octavia_flow.py URL PASSWORD VOLUME_DRIVER"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import openstack
from novaclient import exceptions
from octavia.common import config

url, password, volume_driver = sys.argv[1:]
user = f"username = admin\nproject_name = admin\npassword = {password}\n"
Path("octavia.conf").write_text(
    f"[service_auth]\nauth_type = password\nauth_url = {url}/identity/v3\n{user}"
    "user_domain_id = default\nproject_domain_id = default\n"
    "[nova]\nregion_name = RegionOne\n[glance]\nregion_name = RegionOne\n"
    "[cinder]\nregion_name = RegionOne\nvolume_size = 1\nvolume_create_retry_interval = 1\n"
    f"[controller_worker]\nimage_driver = image_glance_driver\nvolume_driver = {volume_driver}\n"
)
Path("octavia.conf").chmod(0o600)
config.init(["--config-file", "octavia.conf"])

from octavia.common.exceptions import ImageGetException  # noqa: E402 the drivers read options when they are imported
from octavia.compute.drivers.nova_driver import VirtualMachineManager  # noqa: E402
from octavia.image.drivers.glance_driver import ImageManager  # noqa: E402
from octavia.volume.drivers.cinder_driver import VolumeManager  # noqa: E402

SECONDS = 60
cloud = openstack.connect(cloud="admin")
network = cloud.network.find_network("private", ignore_missing=False)
flavor = cloud.compute.find_flavor("m1.nano", ignore_missing=False)
image = cloud.image.find_image("nova-lite-guest", ignore_missing=False)
cloud.image.add_tag(image, "amphora")
group = cloud.network.create_security_group(name="amphorae")


def wait_for(what: str, is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, f"{what}: not within {SECONDS} s"
        time.sleep(0.3)
    print(what)


def is_gone(server_id: str) -> bool:
    try:
        compute.manager.get(server_id)
    except exceptions.NotFound:
        return True
    return False


images, volumes, compute = ImageManager(), VolumeManager(), VirtualMachineManager()
assert images.get_image_id_by_tag("amphora") == images.get_image_id_by_tag("amphora", image.owner) == image.id
try:
    images.get_image_id_by_tag("missing")
except ImageGetException:
    print("image found by its tag, and none without it")
else:
    raise AssertionError("an image was found by a tag that none has")
volume_id = volumes.create_volume_from_image(image.id)
assert volumes.get_image_from_volume(volume_id) == image.id
volumes.delete_volume(volume_id)
wait_for("volume made and deleted", lambda: cloud.block_storage.find_volume(volume_id) is None)
volumes.delete_volume(volume_id)

compute.validate_flavor(flavor.id)
compute.validate_availability_zone("nova")
pair = compute.create_server_group("pair", "soft-anti-affinity")
amphorae = [
    compute.build(
        name=f"amphora-{number}",
        amphora_flavor=flavor.id,
        image_tag="amphora",
        image_owner=image.owner,
        sec_groups=[group.id],
        network_ids=[network.id],
        config_drive_files={"/etc/octavia/amphora-agent.conf": "[DEFAULT]\n"},
        user_data="#cloud-config\n",
        server_group_id=pair.id,
    )
    for number in range(2)
]
for amphora in amphorae:
    wait_for("amphora is up", lambda: compute.status(amphora) == "UP")  # noqa: B023 called at once
    found, fault = compute.get_amphora(amphora, network.id)
    assert (found.compute_id, found.image_id, found.cached_zone, fault) == (amphora, image.id, "nova", None)
    assert found.lb_network_ip
port = cloud.network.create_port(network_id=network.id, name="octavia-lb-vrrp", device_owner="Octavia")
attached = compute.attach_network_or_port(amphorae[0], port_id=port.id)
assert attached.port_id == port.id
compute.detach_port(amphorae[0], port.id)
for amphora in amphorae:
    compute.delete(amphora)
wait_for("amphorae deleted", lambda: all(map(is_gone, amphorae)))
compute.delete(amphorae[0])
compute.delete_server_group(pair.id)
cloud.network.delete_port(port.id)
cloud.network.delete_security_group(group.id)
cloud.image.remove_tag(image, "amphora")
wait_for("no volume is left", lambda: not list(cloud.block_storage.volumes()))
