"""Servers with encrypted memory in the conductor: their contexts, and the operations that need their memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.db.servers import flavors
from nova_lite.hardware import mem_encryption
from nova_lite.objects import Flavor, Image
from tests.support.conductor_world import World
from tests.support.device_world import Devices

SPECS = {"hw:mem_encryption": "yes"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = Devices(tmp_path)
    for host in ("host1", "host2"):
        made.offer(host, mem_encryption.contexts([("sev", 1), ("sev-es", 1)]))
    uefi = {"hw_firmware_type": "uefi"}
    for name, properties in (("uefi", uefi), ("other", uefi | {"hw_mem_encryption_model": "amd-sev-es"})):
        made.db.write(images.create, Image(id=name, name=name, properties=properties))
    for name, specs in (("sev", SPECS), ("tdx", SPECS | {"hw:mem_encryption_model": "intel-tdx"})):
        made.db.write(
            flavors.create, Flavor(flavorid=name, name=name, vcpus=1, memory_mb=64, root_gb=1, extra_specs=specs)
        )
    return made


def test_server_claims_a_context_and_gives_it_back(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id="sev", image_ref="uefi")
    assert world.used()["host1"] == ["sev#0"]
    assert [device.resource_class for device in world.instance(uuid).pci or ()] == ["MEM_ENCRYPTION_CONTEXT"]
    world.finish(world.lifecycle.accept_action(world.context(), uuid, "delete", {}))
    assert world.used()["host1"] == []


def test_server_with_tdx_claims_nothing(world: Devices) -> None:
    world.built(flavor_id="tdx", image_ref="uefi")
    assert world.count(models.PCIClaim) == 0


@pytest.mark.parametrize("flavor", ["sev", "tdx"])
@pytest.mark.parametrize("operation", ["suspend", "live-migration"])
def test_operation_that_needs_the_memory_is_refused(world: Devices, operation: str, flavor: str) -> None:
    uuid, *_ = world.built(flavor_id=flavor, image_ref="uefi")
    with pytest.raises(exceptions.OperationNotSupportedForEncryptedMemory) as refused:
        world.lifecycle.accept_action(world.context(admin=True), uuid, operation, {})
    assert (refused.value.code, world.instance(uuid).task_state) == (409, None)


def test_rebuild_with_another_model_is_refused(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id="sev", image_ref="uefi")
    payload = {"image_ref": "other", "images": {}, "changes": {}, "injected_files": {}}
    with pytest.raises(exceptions.HardwareRefused, match="a rebuild cannot change that"):
        world.lifecycle.accept_action(world.context(), uuid, "rebuild", payload)
    assert world.lifecycle.accept_action(world.context(), uuid, "migrate", {})
