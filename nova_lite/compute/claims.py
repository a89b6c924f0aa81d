"""Claims: resources of this host that its instances hold, in memory.

The conductor's allocations are authoritative. Claims are a last check on the host itself. Its capacity may be smaller
than reported, or it may hold more than the conductor knew. A build that does not fit is rescheduled.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import Instance

UNITS = {"vcpus": "vCPUs", "memory_mb": "MB of memory", "disk_gb": "GB of disk"}


class Resources(msgspec.Struct, frozen=True):
    """Amount of a host's resources: memory in MB, disk in GB.

    ``vcpus``: vCPUs that share CPUs. ``cpus``: CPUs that are dedicated to one vCPU each. ``pci``: addresses of devices.
    """

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    cpus: tuple[int, ...] = ()
    pci: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: Instance) -> Resources:
        """Return the resources of an instance."""
        flavor, numa = instance.flavor, instance.numa
        devices = tuple(device.address for device in instance.pci or ())
        cpus = () if numa is None else tuple(numa.host_cpus)
        vcpus = flavor.vcpus if numa is None else numa.shared_vcpus
        return cls(vcpus=vcpus, memory_mb=flavor.memory_mb, disk_gb=flavor.disk_gb, cpus=cpus, pci=devices)


class Claims:
    """Claims by instance uuid. ``capacity()`` returns the current capacity of this host."""

    def __init__(self, capacity: Callable[[], Resources]) -> None:
        self._capacity = capacity
        self._held: dict[str, Resources] = {}
        self._mutex = threading.Lock()

    def instance_claim(self, instance_uuid: str, resources: Resources, limits: Mapping[str, int]) -> None:
        """Claim ``resources`` for the instance until `release`, or raise `ComputeResourcesUnavailable` with the missing
        resource.

        ``limits`` is the capacity that the scheduler used; the smaller of ``limits`` and `capacity` counts. A new claim
        of an instance replaces its old one.
        """
        capacity = self._capacity()
        with self._mutex:
            others = [held for uuid, held in self._held.items() if uuid != instance_uuid]
            for name, unit in UNITS.items():
                used = sum(getattr(held, name) for held in others)
                total = min(getattr(capacity, name), limits.get(name, getattr(capacity, name)))
                need = getattr(resources, name)
                if used + need > total:
                    raise exceptions.ComputeResourcesUnavailable(
                        reason=f"{need} {unit} requested, {max(0, total - used)} of {total} left on this host"
                    )
            self._check_each(resources, others, capacity)
            self._held[instance_uuid] = resources

    @staticmethod
    def _check_each(resources: Resources, others: list[Resources], capacity: Resources) -> None:
        """Raise `ComputeResourcesUnavailable` unless each CPU and each device is available and free."""
        taken = {*itertools.chain.from_iterable((*held.cpus, *held.pci) for held in others)}
        for cpu in resources.cpus:
            if cpu not in capacity.cpus or cpu in taken:
                why = "another guest has it" if cpu in capacity.cpus else "it is not in cpu_dedicated_set"
                raise exceptions.ComputeResourcesUnavailable(reason=f"CPU {cpu} requested, but on this host {why}")
        for device in resources.pci:
            if device not in capacity.pci or device in taken:
                why = "another guest has it" if device in capacity.pci else "it is not offered"
                raise exceptions.ComputeResourcesUnavailable(
                    reason=f"PCI device {device} requested, but on this host {why}"
                )

    def restore(self, held: Mapping[str, Resources]) -> None:
        """Take over the claims of domains that existed before this daemon started."""
        with self._mutex:
            self._held.update(held)

    def release(self, instance_uuid: str) -> None:
        """Release the instance's claim. May be called repeatedly."""
        with self._mutex:
            self._held.pop(instance_uuid, None)

    def used(self) -> Resources:
        with self._mutex:
            held = list(self._held.values())
        return Resources(**{name: sum(getattr(item, name) for item in held) for name in UNITS})
