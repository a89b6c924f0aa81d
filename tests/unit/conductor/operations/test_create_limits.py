"""Limits that protect shared resources: addresses of shared networks, and disks of flavors without a size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.image import images
from nova_lite.db.servers import flavors
from nova_lite.objects import NetworkRequest
from tests.support.conductor_world import World

NETWORK = "11111111-1111-4111-8111-111111111111"
IMAGE = "22222222-2222-4222-8222-222222222222"


def many(count: int) -> list[NetworkRequest]:
    return [NetworkRequest(network_id=NETWORK)] * count


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def bounded(world: World) -> World:
    world.conf.set_override("fixed_ips_per_project", 10, "network")
    return world


def test_quota_counts_addresses_of_present_and_future_servers(bounded: World) -> None:
    (built, *_) = bounded.built(networks=many(4))
    bounded.create(networks=many(4))
    with pytest.raises(exceptions.PortLimitExceeded) as refused:
        bounded.create(networks=many(3))
    assert refused.value.message == ("Maximum number of ports exceeded: Requested 3, but already used 8 of 10 ports")
    assert bounded.instances_used() == 2, "the quota of servers was given back"
    with pytest.raises(exceptions.PortLimitExceeded, match="Requested 4"):
        bounded.create(networks=many(2), min_count=2, max_count=2)
    bounded.create(networks=many(2))
    assert built


def test_deleted_server_releases_its_addresses(bounded: World) -> None:
    (uuid,) = bounded.create(networks=many(10))
    with pytest.raises(exceptions.PortLimitExceeded):
        bounded.create(networks=many(2))
    bounded.lifecycle.accept_action(bounded.context(), uuid, "delete", {})
    bounded.create(networks=many(10))


def test_quota_of_addresses_ignores_other_projects(bounded: World) -> None:
    bounded.create(networks=many(10))
    bounded.create(bounded.context(project="p2"), networks=many(10))


@pytest.mark.parametrize(("own", "fits"), [(20, True), (-1, True), (4, False)])
def test_limit_of_a_project_takes_precedence(bounded: World, own: int, fits: bool) -> None:
    bounded.db.write(quotas.set_limit, "p1", "fixed_ips", own)
    request: dict[str, Any] = {"networks": many(12 if fits else 5)}
    if fits:
        bounded.create(**request)
        return
    with pytest.raises(exceptions.PortLimitExceeded, match="of 4 ports"):
        bounded.create(**request)


@pytest.mark.parametrize("may", [True, False])
def test_flavor_without_disk_needs_a_right(world: World, may: bool) -> None:
    world.db.write(flavors.create, objects.Flavor(flavorid="0", name="m0", vcpus=1, memory_mb=64, root_gb=0))
    world.db.write(images.create, objects.Image(id=IMAGE, name="i", disk_format="raw", size=1))
    request: dict[str, Any] = {"flavor_id": "0", "image_ref": IMAGE, "may_have_zero_disk": may}
    if may:
        world.create(**request)
        return
    with pytest.raises(exceptions.BootFromVolumeRequiredForZeroDiskFlavor) as refused:
        world.create(**request)
    assert refused.value.code == 403
    world.create(flavor_id="1", image_ref=IMAGE, may_have_zero_disk=False)
