"""The scheduler's core with filters and weighers by name."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nova_lite.objects import Destination, HostState, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.availability_zone import AvailabilityZoneFilter
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import CoreFilter, DiskFilter, RamFilter
from nova_lite.scheduler.filters.compute import ComputeFilter
from nova_lite.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from nova_lite.scheduler.filters.image_properties import ImagePropertiesFilter
from nova_lite.scheduler.filters.live_migration import LiveMigrationFilter
from nova_lite.scheduler.filters.retry import RetryFilter
from nova_lite.scheduler.filters.server_group import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter
from nova_lite.scheduler.weights.base import HostWeigher
from nova_lite.scheduler.weights.resources import CPUWeigher, DiskWeigher, RAMWeigher

FILTERS: list[HostFilter] = [
    RetryFilter(),
    AvailabilityZoneFilter(),
    RamFilter(),
    DiskFilter(),
    CoreFilter(),
    ComputeFilter(),
    ComputeCapabilitiesFilter(),
    ImagePropertiesFilter(),
    ServerGroupAntiAffinityFilter(),
    ServerGroupAffinityFilter(),
    LiveMigrationFilter(),
]


WEIGHERS: list[HostWeigher] = [RAMWeigher(), CPUWeigher(), DiskWeigher()]


def select(
    hosts: Sequence[HostState],
    request: RequestSpec,
    filters: Sequence[HostFilter] = tuple(FILTERS),
    weighers: Sequence[HostWeigher] = tuple(WEIGHERS),
    seed: int = 1,
    **options: int,
) -> list[Destination]:
    return core.select_destinations(hosts, request, filters, weighers, core.Options(**options), random.Random(seed))


def names(destinations: list[Destination]) -> list[str]:
    return [item.selected.host for item in destinations]
