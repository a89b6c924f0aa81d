"""Changes that may make a refused request fit: of the request itself, or of one host."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from nova_lite import hardware
from nova_lite.objects import Flavor, HostState, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import CapacityFilter, shared_vcpus
from nova_lite.scheduler.filters.compute import ComputeFilter

replace = msgspec.structs.replace

#: Words for an amount of each resource.
_AMOUNTS = {"memory_mb": "{} MB of memory", "vcpus": "{} vCPUs", "disk_gb": "{} GB of disk"}


@dataclass(frozen=True)
class Change(abc.ABC):
    """Change of a request or of a host. `str` returns it as a command."""

    #: True if it is of the request: then it names no host, and the owner may know it.
    of_request: ClassVar[bool]

    @property
    def kind(self) -> tuple[str, ...]:
        """Return what it does, without amounts and hosts: advice has one change of a kind."""
        return (type(self).__name__,)

    @property
    def loss(self) -> float:
        """Return how much it takes or demands: the smallest of a kind is the best."""
        return 0.0

    @abc.abstractmethod
    def apply(self, hosts: Sequence[HostState], spec: RequestSpec) -> tuple[Sequence[HostState], RequestSpec]:
        """Return hosts and request after the change. The arguments stay as they are."""


# --- of the request


@dataclass(frozen=True)
class Drop(Change):
    """The request without one of its demands: a ``field`` of it, or the entry ``key`` of this field."""

    field: str
    key: str = ""
    of_request = True

    @property
    def kind(self) -> tuple[str, ...]:
        return ("Drop", self.field, self.key)

    def apply(self, hosts: Sequence[HostState], spec: RequestSpec) -> tuple[Sequence[HostState], RequestSpec]:
        return hosts, self._without(spec)

    def _without(self, spec: RequestSpec) -> RequestSpec:
        match self.field:
            case "extra_specs":
                return replace(spec, flavor=replace(spec.flavor, extra_specs=self._rest(spec.flavor.extra_specs)))
            case "properties" if spec.image is not None:
                return replace(spec, image=replace(spec.image, properties=self._rest(spec.image.properties)))
            case "scheduler_hints":
                return replace(spec, scheduler_hints=self._rest(spec.scheduler_hints))
            case "traits":
                return replace(spec, traits=[name for name in spec.traits if name != self.key])
            case "pci":
                return replace(spec, pci=[request for request in spec.pci if request.alias != self.key])
            case "forced_host":
                return replace(spec, forced_host=None, forced_node=None)
            case _:
                return replace(spec, **{self.field: None})

    def _rest(self, entries: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in entries.items() if key != self.key}

    def __str__(self) -> str:
        return _DROPS[self.field].format(self.key)


_DROPS = {
    "extra_specs": "drop extra spec {} of the flavor",
    "properties": "drop property {} of the image",
    "scheduler_hints": "drop hint {}",
    "traits": "drop the volumes and shares that need {}",
    "pci": "drop the devices for {}",
    "availability_zone": "drop the availability zone",
    "instance_group": "drop the server group",
    "requested_destination": "drop the requested host",
    "forced_host": "drop the forced host",
    "guest_cpu": "move the server while it is off",
}


def drops(spec: RequestSpec) -> list[Drop]:
    """Return a change for each demand of the request. A server that stays on its host can get another image only."""
    properties = [Drop("properties", key) for key in (spec.image.properties if spec.image is not None else ())]
    if spec.stays:
        return properties
    fields = ["availability_zone", "instance_group", "requested_destination", "guest_cpu"]
    return [
        *(Drop(field) for field in fields if getattr(spec, field)),
        *([Drop("forced_host")] if spec.forced_host or spec.forced_node else []),
        *(Drop("scheduler_hints", key) for key in spec.scheduler_hints if key != "group"),
        *(Drop("pci", alias) for alias in dict.fromkeys(request.alias for request in spec.pci)),
        *(Drop("traits", name) for name in dict.fromkeys(spec.traits)),
        *(Drop("extra_specs", key) for key in spec.flavor.extra_specs),
        *properties,
    ]


@dataclass(frozen=True)
class Shrink(Change):
    """A flavor with at most this ``amount`` of ``resource``, of which ``requested`` are too many."""

    resource: str
    amount: int
    requested: int
    of_request = True

    @property
    def kind(self) -> tuple[str, ...]:
        return ("Shrink", self.resource)

    @property
    def loss(self) -> float:
        return 1 - self.amount / self.requested

    def apply(self, hosts: Sequence[HostState], spec: RequestSpec) -> tuple[Sequence[HostState], RequestSpec]:
        if self.resource == "disk_gb":
            return hosts, replace(spec, flavor=_with_disk(spec.flavor, self.amount))
        return hosts, replace(spec, flavor=replace(spec.flavor, **{self.resource: self.amount}))

    def __str__(self) -> str:
        return f"take at most {_AMOUNTS[self.resource].format(self.amount)}"


def _with_disk(flavor: Flavor, amount: int) -> Flavor:
    """Return the flavor with at most ``amount`` GB: the root disk shrinks last."""
    root = min(flavor.root_gb, amount)
    ephemeral = min(flavor.ephemeral_gb, amount - root)
    swap = min(flavor.swap, (amount - root - ephemeral) * 1024)
    return replace(flavor, root_gb=root, ephemeral_gb=ephemeral, swap=swap)


@dataclass(frozen=True)
class Fewer(Change):
    """A request for ``count`` servers instead of ``requested``."""

    count: int
    requested: int
    of_request = True

    @property
    def loss(self) -> float:
        return 1 - self.count / self.requested

    def apply(self, hosts: Sequence[HostState], spec: RequestSpec) -> tuple[Sequence[HostState], RequestSpec]:
        return hosts, replace(spec, instance_uuids=spec.instance_uuids[: self.count])

    def __str__(self) -> str:
        return f"ask for {self.count} instead of {self.requested} servers"


# --- of a host


@dataclass(frozen=True)
class HostChange(Change):
    """Change of the host ``host`` with the node ``node``."""

    host: str
    node: str
    of_request = False

    @abc.abstractmethod
    def on(self, state: HostState) -> HostState:
        """Return a changed copy of the host."""

    def apply(self, hosts: Sequence[HostState], spec: RequestSpec) -> tuple[Sequence[HostState], RequestSpec]:
        place = (self.host, self.node)
        return [self.on(state) if (state.host, state.node) == place else state for state in hosts], spec

    @property
    def name(self) -> str:
        return self.host if self.node == self.host else f"{self.host}/{self.node}"


@dataclass(frozen=True)
class Enable(HostChange):
    def on(self, state: HostState) -> HostState:
        return replace(state, disabled=False)

    def __str__(self) -> str:
        return f"enable {self.name}"


@dataclass(frozen=True)
class Start(HostChange):
    def on(self, state: HostState) -> HostState:
        return replace(state, up=True)

    def __str__(self) -> str:
        return f"bring {self.name} up"


@dataclass(frozen=True)
class Add(HostChange):
    """More of a resource: capacity of the host, as its allocation ratios count it."""

    resource: str
    amount: int

    @property
    def kind(self) -> tuple[str, ...]:
        return ("Add", self.resource)

    @property
    def loss(self) -> float:
        return float(self.amount)

    def on(self, state: HostState) -> HostState:
        after = copy.copy(state)
        setattr(after, self.resource, getattr(state, self.resource) + self.amount)
        if self.resource == "disk_gb" and state.disk_available_least is not None:
            after.disk_available_least = state.disk_available_least + self.amount
        return after

    def __str__(self) -> str:
        return f"add {_AMOUNTS[self.resource].format(self.amount)} to {self.name}"


@dataclass(frozen=True)
class Free(HostChange):
    """The host without one of its servers, of which ``server`` is a request."""

    server: RequestSpec

    @property
    def loss(self) -> float:
        return float(self.server.flavor.memory_mb)

    def on(self, state: HostState) -> HostState:
        return core.without(state, self.server)

    def __str__(self) -> str:
        return f"delete server {self.server.instance_uuids[0]} on {self.name} or move it"


def repairs(
    state: HostState, spec: RequestSpec, filters: Sequence[HostFilter], failed: Sequence[HostFilter], may_shrink: bool
) -> list[tuple[Change, ...]]:
    """Return the least sets of changes by which the host passes the ``failed`` ones of ``filters``, with room for all
    instances of ``spec``.

    At most two: the host gets more of what it lacks, or the flavor takes less (``may_shrink``). They are made for the
    filters by capacity and by state. Whether they help against others that failed has to be seen.
    """
    place, last = (state.host, state.node), _with_others(state, spec)
    changes: list[Change] = []
    added: list[Change] = []
    shrunk: list[Change] = []
    for item in filters:
        if isinstance(item, CapacityFilter):
            free, requested = item.free(last), item.requested(spec)
            if item in failed or not item.host_passes(last, spec):
                added.append(Add(*place, item.resource, requested - free))
                shrunk.append(Shrink(item.resource, free, requested))
                may_shrink = may_shrink and free >= (item.resource != "disk_gb")
        elif item in failed and isinstance(item, ComputeFilter):
            changes += [] if state.up else [Start(*place)]
            changes += [Enable(*place)] if state.disabled else []
    sets = [(*changes, *added), *([(*changes, *shrunk)] if shrunk and may_shrink else [])]
    return [found for found in sets if found or not failed]


def _with_others(state: HostState, spec: RequestSpec) -> HostState:
    """Return the host with the capacity taken that all instances but the last need."""
    others = len(spec.instance_uuids) - 1
    if not others:
        return state
    after = copy.copy(state)
    after.memory_mb_used += others * spec.flavor.memory_mb
    after.vcpus_used += others * shared_vcpus(spec)
    after.disk_gb_used += others * spec.flavor.disk_gb
    return after


def may_shrink(spec: RequestSpec) -> bool:
    """Check whether a smaller flavor is an answer: for one instance that may be anywhere in its host."""
    return len(spec.instance_uuids) == 1 and hardware.numa_of(spec.flavor, spec.image) is None
