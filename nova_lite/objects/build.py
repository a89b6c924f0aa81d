"""Creating instances: the user's request, the order to a host, and the host's reports."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite.objects.block_device import BlockDevice
from nova_lite.objects.image import Image
from nova_lite.objects.instance import VIF, Instance
from nova_lite.objects.request_spec import RequestedDestination
from nova_lite.objects.security_group import PortFilters
from nova_lite.objects.volume import Volume


class NetworkRequest(msgspec.Struct, kw_only=True):
    """One requested interface: a network by id or a port, with an optional fixed address."""

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None


class CreateRequest(msgspec.Struct, kw_only=True):
    """A validated ``POST /servers``. ``networks``: "auto", "none" or a list. ``injected_files``: path to base64.

    ``may_have_zero_disk``: whether the image's size may decide how large the disk is.
    ``images``: by id, the image, its kernel and ramdisk, where the conductor cannot look them up itself.
    ``volumes``: by id, volumes and snapshots that are Cinder's, likewise.
    ``request_id`` of the context makes a repeated call return the instances of the first one; so does
    ``idempotency_key``, a client's own name for its wish, with ``fingerprint``, which tells one wish from another.
    """

    name: str
    flavor_id: str
    image_ref: str = ""
    images: dict[str, Image] = msgspec.field(default_factory=dict)
    min_count: int = 1
    max_count: int = 1
    description: str | None = None
    hostname: str | None = None
    networks: str | list[NetworkRequest] = "auto"
    availability_zone: str | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    requested_destination: RequestedDestination | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    key_name: str | None = None
    security_groups: list[str] = msgspec.field(default_factory=list)
    user_data: str | None = None
    config_drive: bool = False
    auto_disk_config: bool = False
    admin_password: str | None = None
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    scheduler_hints: dict[str, list[str] | str] = msgspec.field(default_factory=dict)
    injected_files: dict[str, str] = msgspec.field(default_factory=dict)
    block_devices: list[BlockDevice] = msgspec.field(default_factory=list)
    volumes: dict[str, Volume] = msgspec.field(default_factory=dict)
    idempotency_key: str | None = None
    fingerprint: str = ""
    may_have_zero_disk: bool = True


class BatchedCreate(msgspec.Struct, kw_only=True):
    """One create of a batch: the caller's context (`nova_lite.base.context.RequestContext.to_rpc`) and the request."""

    context: dict[str, Any]
    request: CreateRequest


class CreateResult(msgspec.Struct, kw_only=True):
    """``earlier``: an earlier request with the same idempotency key made them. ``driven``: whoever has accepted them
    goes on with them by itself."""

    reservation_id: str
    instances: list[Instance]
    earlier: bool = False
    dispatched: bool = msgspec.field(default=False, name="driven")


class Reimage(msgspec.Struct, kw_only=True):
    """A volume that is to be made of an image, whatever it is now. ``size``: GB that it has."""

    volume_id: str
    size: int
    image: Image


class BuildRequest(msgspec.Struct, kw_only=True):
    """The order to a host: make ``instance`` exist at ``generation``. Casting it twice is harmless.

    ``limits`` are the scheduler's (memory_mb, vcpus, disk_gb); ``images`` holds the image and, AMI style, its kernel
    and ramdisk by id. ``connected``: the instance has got its interfaces, and this is the registration of its host that
    it was claimed under (`nova_lite.objects.host.admission`). A host of any other asks `start_build`: since then it was
    forced down, and the instance may have been built elsewhere. ``volume_images``: by id, those that volumes are to be
    made of. ``reimage``: the volume that it boots from is made anew. ``filters``: what the host has to filter of the
    projects of all builds in this message; None: it asks.
    """

    instance: Instance
    generation: int
    action_id: int
    request_id: str
    image: Image | None = None
    images: dict[str, Image] = msgspec.field(default_factory=dict)
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    injected_files: dict[str, str] = msgspec.field(default_factory=dict)
    admin_password: str | None = None
    connected: str = ""
    volume_images: dict[str, Image] = msgspec.field(default_factory=dict)
    reimage: Reimage | None = None
    filters: PortFilters | None = None


class BuildNetworks(msgspec.Struct, kw_only=True):
    """Answer to `start_build`: the interfaces that were allocated for the instance."""

    vifs: list[VIF] = msgspec.field(default_factory=list)


class BuildOutcome(enum.StrEnum):
    """How a build ended: built; failed here but another host may do (rescheduled); failed for good (aborted)."""

    BUILT = "built"
    RESCHEDULED = "rescheduled"
    ABORTED = "aborted"


class BuildResult(msgspec.Struct, kw_only=True):
    """A host's report. With any outcome but BUILT the host has removed all traces and fenced the generation.
    ``action_id``: of the order; 0 from hosts that do not tell."""

    instance_uuid: str
    generation: int
    host: str
    outcome: BuildOutcome
    power_state: int = 0
    message: str = ""
    details: str = ""
    root_device_name: str | None = None
    action_id: int = 0


class DomainReport(msgspec.Struct, kw_only=True):
    """A domain of ours on a hypervisor. ``last_action_id`` and ``last_position``: the newest order for it that its host
    had taken by then, its action and its place in that (None: not said).
    ``lost_power``: its machine has booted since it was last reported, and it is to run again if it ran before.
    """

    uuid: str
    generation: int
    power_state: int
    last_action_id: int | None = None
    last_position: int | None = None
    lost_power: bool = False


def digest_of_domains(domains: Iterable[tuple[str, int, int]]) -> str:
    """Of domains, each with its uuid, generation and power state: the same for the same ones, in whatever order."""
    lines = sorted(f"{uuid} {generation} {power_state}\n" for uuid, generation, power_state in domains)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class ExpectedDomain(msgspec.Struct, kw_only=True):
    """A domain that a host has to have, as nothing is being done to its instance. ``last_action_id``: of the newest
    action that the instance had, then."""

    uuid: str
    generation: int
    last_action_id: int = 0


class Verdict(enum.StrEnum):
    """KEEP: it is right. DESTROY: not (any more) meant to be here."""

    KEEP = "keep"
    DESTROY = "destroy"


class DomainVerdict(msgspec.Struct, kw_only=True):
    uuid: str
    generation: int
    verdict: Verdict
