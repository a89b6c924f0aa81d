"""What the conductor asks of the scheduler, and what it gets back."""

from __future__ import annotations

import msgspec

from nova_lite.objects.flavor import Flavor
from nova_lite.objects.image import Image


class InstanceGroup(msgspec.Struct, kw_only=True):
    """A server group. ``policy``: affinity, anti-affinity, soft-affinity, soft-anti-affinity."""

    id: str
    policy: str
    hosts: list[str] = msgspec.field(default_factory=list)
    max_server_per_host: int | None = None


class RequestedDestination(msgspec.Struct, kw_only=True):
    """The only place that a request wants: a host, a node, or a node of a host. The filters say whether it will do."""

    host: str | None = None
    node: str | None = None

    def covers(self, host: str, node: str) -> bool:
        return self.host in (None, host) and self.node in (None, node)


class RequestSpec(msgspec.Struct, kw_only=True):
    """One request for ``len(instance_uuids)`` like instances.

    ``ignore_hosts``: hosts already tried. ``attempt`` starts at 1. ``forced_host``/``forced_node`` skip the filters
    but not the claim; ``requested_destination`` skips nothing. ``current_zone``: of a server that is to be moved.
    ``stays``: the instance is on the requested host already and gets another image: only what looks at images has a
    say, and nothing is taken of the host.
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
    attempt: int = 1
    instance_group: InstanceGroup | None = None
    scheduler_hints: dict[str, list[str] | str] = msgspec.field(default_factory=dict)
    current_zone: str | None = None
    stays: bool = False


class Selection(msgspec.Struct, kw_only=True):
    """One place: ``limits`` are the host's capacities (memory_mb, vcpus, disk_gb) that compute re-checks."""

    host: str
    node: str
    limits: dict[str, int] = msgspec.field(default_factory=dict)


class Destination(msgspec.Struct, kw_only=True):
    """Where one instance is to go, and where else it could."""

    instance_uuid: str
    selected: Selection
    alternates: list[Selection] = msgspec.field(default_factory=list)


class Placement(msgspec.Struct, kw_only=True):
    """The answer to one of several questions: destinations, or (``reason`` is not None) why there are none."""

    destinations: list[Destination] = msgspec.field(default_factory=list)
    reason: str | None = None
    details: str = ""
