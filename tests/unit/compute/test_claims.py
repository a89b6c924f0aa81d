from __future__ import annotations

import threading

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.compute.claims import Claims, Resources
from nova_lite.objects import Flavor, InstanceNUMACell, InstanceNUMATopology, PCIDevice
from tests.support.guests import make_instance


def claims(vcpus: int = 4, memory_mb: int = 1000, disk_gb: int = 10) -> Claims:
    return Claims(lambda: Resources(vcpus=vcpus, memory_mb=memory_mb, disk_gb=disk_gb))


def test_flavor_claims_its_resources() -> None:
    flavor = Flavor(flavorid="1", name="x", vcpus=2, memory_mb=64, root_gb=3, ephemeral_gb=1, swap=1025)
    assert Resources.of(make_instance(flavor=flavor)) == Resources(vcpus=2, memory_mb=64, disk_gb=6)


def test_dedicated_cpus_are_not_claimed_as_shared() -> None:
    flavor = Flavor(flavorid="1", name="x", vcpus=2, memory_mb=64, root_gb=3)
    cell = InstanceNUMACell(id=0, cell=0, cpus=[0, 1], memory_mb=64, pins=[4, 6], held=[5])
    pinned = InstanceNUMATopology(cells=[cell])
    assert Resources.of(make_instance(flavor=flavor, numa=pinned)) == Resources(memory_mb=64, disk_gb=3, cpus=(4, 5, 6))
    mixed = InstanceNUMATopology(cells=[msgspec.structs.replace(cell, pins=[4], floating=[0])])
    some = Resources.of(make_instance(flavor=flavor, numa=mixed))
    assert some == Resources(vcpus=1, memory_mb=64, disk_gb=3, cpus=(4, 5))
    floating = InstanceNUMATopology(cells=[msgspec.structs.replace(cell, pins=[], held=[])])
    shared = Resources.of(make_instance(flavor=flavor, numa=floating))
    assert shared == Resources(vcpus=2, memory_mb=64, disk_gb=3)


def test_device_is_claimed_once_and_only_if_it_is_offered() -> None:
    gpu, card = (PCIDevice(address=f"0000:{bus}:00.0", vendor_id="1", product_id="2") for bus in ("41", "81"))
    host = Claims(lambda: Resources(vcpus=9, memory_mb=9999, disk_gb=99, pci=(gpu.address,)))
    first = Resources.of(make_instance(pci=[gpu]))
    assert first.pci == (gpu.address,)
    host.instance_claim("a", first, {})
    host.instance_claim("a", first, {})
    with pytest.raises(
        exceptions.ComputeResourcesUnavailable, match=r"PCI device 0000:41:00.0 requested, but .* another guest has it"
    ):
        host.instance_claim("b", first, {})
    with pytest.raises(exceptions.ComputeResourcesUnavailable, match=r"PCI device 0000:81:00.0 .* it is not offered"):
        host.instance_claim("b", Resources.of(make_instance(pci=[card])), {})
    host.release("a")
    host.instance_claim("b", first, {})


def test_dedicated_cpu_is_claimed_once_and_only_if_configured() -> None:
    host = Claims(lambda: Resources(cpus=(4, 5, 6)))
    host.instance_claim("a", Resources(cpus=(4, 5)), {})
    host.instance_claim("a", Resources(cpus=(4, 5)), {})
    with pytest.raises(
        exceptions.ComputeResourcesUnavailable, match="CPU 5 requested, but on this host another guest has it"
    ):
        host.instance_claim("b", Resources(cpus=(5, 6)), {})
    with pytest.raises(
        exceptions.ComputeResourcesUnavailable, match="CPU 7 requested, but on this host it is not in cpu_dedicated_set"
    ):
        host.instance_claim("b", Resources(cpus=(6, 7)), {})
    host.release("a")
    host.instance_claim("b", Resources(cpus=(5, 6)), {})


def test_claims_are_limited_by_the_capacity_until_a_release() -> None:
    host = claims()
    host.instance_claim("a", Resources(memory_mb=600), {})
    host.instance_claim("a", Resources(memory_mb=1000), {})
    with pytest.raises(exceptions.ComputeResourcesUnavailable, match="1 MB of memory requested, 0 of 1000 left"):
        host.instance_claim("b", Resources(memory_mb=1), {})
    host.release("a")
    host.release("a")
    host.instance_claim("b", Resources(memory_mb=1000), {})
    assert host.used() == Resources(memory_mb=1000)


@pytest.mark.parametrize("name", ["vcpus", "memory_mb", "disk_gb"])
def test_claim_is_limited_by_the_smaller_of_limit_and_capacity(name: str) -> None:
    resources = Resources(**{name: 5})
    with pytest.raises(exceptions.ComputeResourcesUnavailable):
        claims(**{name: 9}).instance_claim("a", resources, {name: 4})
    with pytest.raises(exceptions.ComputeResourcesUnavailable):
        claims(**{name: 4}).instance_claim("a", resources, {name: 9})
    claims(**{name: 5}).instance_claim("a", resources, {name: 5})


def test_concurrent_claims_do_not_exceed_the_host() -> None:
    host = claims(memory_mb=100)
    granted: list[int] = []

    def claim(number: int) -> None:
        try:
            host.instance_claim(str(number), Resources(memory_mb=10), {})
        except exceptions.ComputeResourcesUnavailable:
            return
        granted.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 10
