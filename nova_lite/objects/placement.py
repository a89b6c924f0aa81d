"""Compute nodes, their devices and allocations in the terms of the Placement API."""

from __future__ import annotations

import datetime

import msgspec

VCPU, PCPU, MEMORY_MB, DISK_GB = "VCPU", "PCPU", "MEMORY_MB", "DISK_GB"


class ResourceInventory(msgspec.Struct, kw_only=True):
    """Amount of one resource class at a provider. ``capacity``: (total - reserved) * allocation ratio, rounded down."""

    total: int
    used: int
    capacity: int
    reserved: int = 0
    allocation_ratio: float = 1.0


class ResourceProvider(msgspec.Struct, kw_only=True):
    """Compute node, or a device of one. ``up``: claims of its resources are accepted.

    ``aggregates``: uuids of aggregates of a node's host. ``devices``: of a node. ``parent``: uuid of a device's node.
    """

    uuid: str
    name: str
    generation: int
    up: bool
    inventories: dict[str, ResourceInventory]
    traits: list[str]
    aggregates: list[str]
    changed_at: datetime.datetime | None = None
    parent: str | None = None
    devices: list[ResourceProvider] = msgspec.field(default_factory=list)

    @property
    def tree(self) -> list[ResourceProvider]:
        """Return a node and its devices."""
        return [self, *self.devices]


class ResourceAllocation(msgspec.Struct, kw_only=True):
    """Resources of a provider that the server ``consumer`` uses. Its generation grows with each placement.

    ``devices``: resources of the provider's devices, by uuid.
    """

    id: int
    provider: str
    provider_generation: int
    consumer: str
    consumer_generation: int
    project_id: str
    user_id: str
    resources: dict[str, int]
    created_at: datetime.datetime | None = None
    devices: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
