"""Maxima of flavors, and the changes that running guests can get."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import hotplug
from nova_lite.objects import Flavor

SPECS = {"hw:max_vcpus": "4", "hw:max_memory": "1024"}


def flavor(vcpus: int, memory_mb: int, **changes: Any) -> Flavor:
    fields = {"flavorid": "1", "name": "f", "root_gb": 1, "extra_specs": SPECS, **changes}
    return Flavor(vcpus=vcpus, memory_mb=memory_mb, **fields)


def test_maxima_are_part_of_the_hardware() -> None:
    resolved = hardware.resolve(flavor(2, 512), None)
    assert (resolved.max_vcpus, resolved.max_memory_mb, tuple(resolved.topology)) == (4, 1024, (4, 1, 1))


@pytest.mark.parametrize(
    ("vcpus", "memory_mb", "specs", "reason"),
    [
        (5, 512, SPECS, "hw:max_vcpus is 4, and the flavor has 5 vCPUs"),
        (1, 1025, SPECS, "hw:max_memory is 1024, and the flavor has 1025 MB"),
        (1, 512, SPECS | {"hw:cpu_policy": "dedicated"}, "hw:max_vcpus excludes NUMA nodes"),
        (1, 512, {"hw:max_memory": "1024", "hw:mem_page_size": "large"}, "hw:max_memory excludes NUMA nodes"),
    ],
)
def test_unsuitable_maximum_is_refused(vcpus: int, memory_mb: int, specs: dict[str, str], reason: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=reason):
        hardware.resolve(flavor(vcpus, memory_mb, extra_specs=specs), None)


@pytest.mark.parametrize(
    ("new", "can"),
    [
        (flavor(4, 1024), True),
        (flavor(4, 512), True),
        (flavor(1, 256), True),
        (flavor(2, 514), True),
        (flavor(2, 513), False),
        (flavor(2, 512), False),
        (flavor(4, 256), False),
        (flavor(5, 512), False),
        (flavor(2, 1026), False),
        (flavor(4, 1024, root_gb=2), False),
        (flavor(4, 1024, swap=64), False),
        (flavor(4, 1024, ephemeral_gb=1), False),
        (flavor(4, 1024, extra_specs=SPECS | {"hw:cpu_sockets": "1"}), False),
    ],
)
def test_running_guest_can_get_only_more_or_less_within_its_maximum(new: Flavor, can: bool) -> None:
    assert hotplug.can_change(flavor(2, 512), new) is can


@pytest.mark.parametrize(("spec", "new"), [("hw:max_vcpus", (2, 1024)), ("hw:max_memory", (4, 512))])
def test_running_guest_keeps_what_has_no_maximum(spec: str, new: tuple[int, int]) -> None:
    specs = {spec: SPECS[spec]}
    assert not hotplug.can_change(flavor(2, 512, extra_specs=specs), flavor(*new, extra_specs=specs))
