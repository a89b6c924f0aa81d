"""Traits, and the disk space that is really free."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.capacity import DiskFilter
from nova_lite.scheduler.filters.traits import TraitsFilter
from tests.unit.scheduler.builders import flavor, host, image, spec


def having(number: int, *traits: str) -> HostState:
    return host(number, capabilities={"traits": list(traits)})


def passing(request: RequestSpec, *hosts: HostState) -> list[str]:
    subject = TraitsFilter()
    assert subject.applies(request)
    found = subject.passing(hosts, request)
    assert [host for host in hosts if subject.host_passes(host, request)] == found
    return [host.host for host in found]


def asking(**specs: str) -> RequestSpec:
    return spec(flavor=flavor(extra_specs=specs))


HOSTS = (having(1, "A"), having(2, "A", "B"), having(3), host(4))


def test_traits_are_required_and_forbidden_by_flavor_and_image() -> None:
    assert passing(asking(**{"trait:A": "required"}), *HOSTS) == ["host1", "host2"]
    assert passing(asking(**{"trait:A": "required", "trait:B": "forbidden"}), *HOSTS) == ["host1"]
    assert passing(spec(image=image(**{"trait:B": "required"})), *HOSTS) == ["host2"]
    both = spec(flavor=flavor(extra_specs={"trait:A": "required"}), image=image(**{"trait:B": "forbidden"}))
    assert passing(both, *HOSTS) == ["host1"]


@pytest.mark.parametrize(
    ("properties", "trait"),
    [
        ({"hw_firmware_type": "uefi"}, "COMPUTE_FIRMWARE_UEFI"),
        ({"hw_video_model": "qxl"}, "COMPUTE_GRAPHICS_MODEL_QXL"),
        ({"hw_maxphysaddr_mode": "passthrough"}, "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"),
    ],
)
def test_guest_hardware_requires_its_trait(properties: dict[str, str], trait: str) -> None:
    assert passing(spec(image=image(**properties)), having(1), having(2, trait)) == ["host2"]


def test_traits_filter_ignores_requests_without_traits() -> None:
    for request in (spec(), asking(mine="1"), spec(image=image(hw_disk_bus="scsi"))):
        assert not TraitsFilter().applies(request)


def test_traits_reason_names_missing_traits() -> None:
    with pytest.raises(exceptions.NoValidHost, match=r"1 failed TraitsFilter \(traits A, not B\)"):
        core.select_destinations(
            [having(1, "B")],
            asking(**{"trait:A": "required", "trait:B": "forbidden"}),
            [TraitsFilter()],
            [],
            *options(),
        )


def options() -> tuple[Any, ...]:
    return core.Options(), random.Random(1)


# --- the disk that is really free


@pytest.mark.parametrize(
    ("free", "requested", "passes"),
    [(None, 50, True), (50, 50, True), (49, 50, False), (-3, 0, True), (200, 101, False)],
)
def test_disk_filter_respects_free_space(free: int | None, requested: int, passes: bool) -> None:
    subject, request = DiskFilter(), spec(flavor=flavor(root_gb=requested))
    one = host(1, disk_gb=100, disk_available_least=free)
    assert subject.host_passes(one, request) is passes
    assert subject.passing([one], request) == ([one] if passes else [])
    if not passes:
        assert subject.reason(one, request) == f"{requested} GB requested, {min(100, free or 100)} GB free"


def test_shared_volume_requires_its_trait() -> None:
    needs = "COMPUTE_VOLUME_MULTI_ATTACH"
    assert passing(spec(traits=[needs]), having(1), having(2, needs)) == ["host2"]
    with_flavor = spec(traits=[needs], flavor=flavor(extra_specs={"trait:A": "required"}))
    assert passing(with_flavor, having(1, needs), having(2, needs, "A"), having(3, "A")) == ["host2"]
