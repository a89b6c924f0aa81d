"""Requests of the conductor to the scheduler, and the replies."""

from __future__ import annotations

import msgspec

from nova_lite.objects.cpu import GuestCpu
from nova_lite.objects.flavor import Flavor
from nova_lite.objects.image import Image
from nova_lite.objects.pci import PCIRequest


class InstanceGroup(msgspec.Struct, kw_only=True):
    """Server group, as the scheduler sees it. ``policy``: affinity, anti-affinity, soft-affinity, soft-anti-affinity.
    ``hosts``: the host of each member."""

    id: str
    policy: str
    hosts: list[str] = msgspec.field(default_factory=list)
    max_server_per_host: int | None = None


class RequestedDestination(msgspec.Struct, kw_only=True):
    """Required destination: a host, a node, or a node of a host. The filters still apply."""

    host: str | None = None
    node: str | None = None

    def covers(self, host: str, node: str) -> bool:
        return self.host in (None, host) and self.node in (None, node)


class RequestSpec(msgspec.Struct, kw_only=True):
    """Request for hosts for ``len(instance_uuids)`` equal instances.

    ``ignore_hosts``: hosts that were tried, or are left out for the reasons in ``left_out``. ``attempt`` starts at 1.
    ``forced_host`` and ``forced_node`` skip the filters but not the claim; ``requested_destination`` skips nothing.
    ``current_zone``: zone of a server that moves. ``stays``: the instance is on the requested host and gets another
    image; only filters that judge images apply, and nothing is consumed. ``pci``: requested devices of the host.
    ``guest_cpu``: of a guest that is to move while it runs; None: the guest starts again there, or its host has not
    reported it. ``traits``: of the host, which the server's volumes need. ``known``: sum of the hosts' generations that
    a scheduler has to know before it refuses.
    """

    instance_uuids: list[str]
    project_id: str
    user_id: str
    flavor: Flavor
    image: Image | None = None
    availability_zone: str | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    requested_destination: RequestedDestination | None = None
    ignore_hosts: list[str] = msgspec.field(default_factory=list)
    left_out: dict[str, str] = msgspec.field(default_factory=dict)
    attempt: int = 1
    instance_group: InstanceGroup | None = None
    scheduler_hints: dict[str, list[str] | str] = msgspec.field(default_factory=dict)
    current_zone: str | None = None
    stays: bool = False
    pci: list[PCIRequest] = msgspec.field(default_factory=list)
    guest_cpu: GuestCpu | None = None
    traits: list[str] = msgspec.field(default_factory=list)
    known: int = 0

    def why_ignored(self, host: str) -> str:
        """Return why a host of ``ignore_hosts`` is left out."""
        return self.left_out.get(host, "already tried")


class Selection(msgspec.Struct, kw_only=True):
    """Chosen place: ``limits`` are the capacities of the host (memory_mb, vcpus, disk_gb), which the compute daemon
    checks again."""

    host: str
    node: str
    limits: dict[str, int] = msgspec.field(default_factory=dict)


class Destination(msgspec.Struct, kw_only=True):
    """Selected place of one instance, and alternates for the case that it is full by now."""

    instance_uuid: str
    selected: Selection
    alternates: list[Selection] = msgspec.field(default_factory=list)


class Placement(msgspec.Struct, kw_only=True):
    """Reply to one of several specs: destinations, or the reason (not None) why there are none."""

    destinations: list[Destination] = msgspec.field(default_factory=list)
    reason: str | None = None
    details: str = ""
