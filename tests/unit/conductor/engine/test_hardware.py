"""Hardware that flavor and image request is supported or refused: at a create, a rebuild, a resize and a rescue."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.image import images
from nova_lite.db.servers import flavors
from tests.support.conductor_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)

    def flavor(flavorid: str, **extra_specs: str) -> None:
        size = {"vcpus": 1, "memory_mb": 256, "root_gb": 2}
        made.db.write(flavors.create, objects.Flavor(flavorid=flavorid, name=flavorid, extra_specs=extra_specs, **size))

    def image(image_id: str, **properties: str) -> None:
        made.db.write(images.create, objects.Image(id=image_id, name=image_id, properties=properties))

    flavor("mask", **{"hw:cpu_dedicated_mask": "0"})
    flavor("pmu", **{"hw:pmu": "yes"})
    flavor("fine", **{"hw:cpu_sockets": "1", "quota:cpu_shares": "100"})
    image("plain")
    image("iommu", hw_viommu_model="intel")
    image("no-pmu", hw_pmu="no")
    image("floppy", hw_rescue_device="floppy")
    return made


def refused(world: World, message: str, **request: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=message):
        world.create(**request)


def test_create_with_unsupported_hardware_is_refused_with_the_reason(world: World) -> None:
    refused(world, "hw:cpu_dedicated_mask needs hw:cpu_policy=mixed", flavor_id="mask", image_ref="plain")
    refused(world, "'hw_viommu_model'", flavor_id="fine", image_ref="iommu")
    refused(world, "contradict each other", flavor_id="pmu", image_ref="no-pmu")
    refused(world, "hw:cpu_dedicated_mask", flavor_id="mask", image_ref="")
    assert world.create(flavor_id="fine", image_ref="plain")


def test_rebuild_with_unsupported_hardware_is_refused(world: World) -> None:
    uuid, _, _ = world.built(flavor_id="pmu", image_ref="plain")
    payload = {"image_ref": "no-pmu", "images": {}, "changes": {}, "injected_files": {}}
    with pytest.raises(exceptions.HardwareRefused, match="contradict each other"):
        world.lifecycle.accept_action(world.context(), uuid, "rebuild", payload)
    assert world.instance(uuid).task_state is None


def test_resize_with_unsupported_hardware_is_refused(world: World) -> None:
    uuid, _, _ = world.built(image_ref="no-pmu")
    with pytest.raises(exceptions.HardwareRefused, match="contradict each other"):
        world.lifecycle.accept_action(world.context(), uuid, "resize", {"flavor_id": "pmu"})
    assert world.instance(uuid).task_state is None


def test_rescue_with_unsupported_hardware_is_refused(world: World) -> None:
    uuid, _, _ = world.built(image_ref="plain")
    with pytest.raises(exceptions.HardwareRefused, match="'hw_rescue_device' cannot be 'floppy'"):
        world.lifecycle.accept_action(world.context(), uuid, "rescue", {"image_ref": "floppy", "images": {}})
    assert world.instance(uuid).task_state is None
