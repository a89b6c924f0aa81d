"""Creating servers: the request, the build command to a host, and the reports of hosts."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite.objects.block_device import BlockDevice
from nova_lite.objects.guest_device import GuestReport
from nova_lite.objects.image import Image
from nova_lite.objects.incident import Incident
from nova_lite.objects.instance import VIF, Instance
from nova_lite.objects.pci import NORMAL
from nova_lite.objects.request_spec import RequestedDestination
from nova_lite.objects.security_group import PortFilters
from nova_lite.objects.storage import LeftDisks
from nova_lite.objects.volume import Volume


class NetworkRequest(msgspec.Struct, kw_only=True):
    """Requested interface: a network or a port by id, with an optional fixed address.

    ``vnic_type`` and ``physical_network``: of a resolved port that has a device of its host.
    """

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None
    vnic_type: str = NORMAL
    physical_network: str | None = None


class CreateRequest(msgspec.Struct, kw_only=True):
    """Validated request of ``POST /servers``.

    ``networks``: "auto", "none" or a list. ``injected_files``: path to base64. ``may_have_zero_disk``: the user may use
    a flavor without a root disk size. ``images``: by id, the images that only the API can read (Glance), with kernel
    and ramdisk. ``volumes``: by id, volumes and snapshots of Cinder. ``names_image``: ``imageRef`` named an image, even
    if the root disk is a volume. That volume need not be marked as bootable then. ``multiattach``: the API version
    permits volumes that other servers may have, too. ``clone_of``: the server of which this one is a clone.

    A call with the same request id, or with the same ``idempotency_key``, returns the instances of the first call.
    ``fingerprint`` identifies the request that the client's key stands for.
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
    names_image: bool = False
    multiattach: bool = False
    clone_of: str | None = None


class BatchedCreate(msgspec.Struct, kw_only=True):
    """Create request in a batch, with its caller's context (`nova_lite.base.context.RequestContext.to_rpc`)."""

    context: dict[str, Any]
    request: CreateRequest


class BatchedDelete(msgspec.Struct, kw_only=True):
    """Delete request in a batch, with its caller's context."""

    context: dict[str, Any]
    instance_uuid: str


class CreateResult(msgspec.Struct, kw_only=True):
    """Instances of an accepted create. ``earlier``: an earlier request with the same idempotency key made them."""

    reservation_id: str
    instances: list[Instance]
    earlier: bool = False


class Reimage(msgspec.Struct, kw_only=True):
    """Volume that is overwritten with an image. ``size``: GB of the volume."""

    volume_id: str
    size: int
    image: Image


class BuildRequest(msgspec.Struct, kw_only=True):
    """Command to a host: build ``instance`` at ``generation``. It may be sent twice.

    ``limits`` are those of the scheduler (memory_mb, vcpus, disk_gb). ``images``: by id, the image with its kernel and
    ramdisk. ``volume_images``: by id, images that volumes are made of. ``reimage``: the boot volume is overwritten.
    ``filters``: packet filters of the projects of all builds in this message; None: the host asks for them.

    ``connected``: if the instance has its interfaces, the registration of the host at the time of the claim
    (`nova_lite.objects.host.admission`). A host with another registration calls `start_build` first, because it was
    forced down since then, and the instance may run elsewhere.

    ``disks``: those of an evacuated server, which the host may see. ``clone_of``: the disk lies on the layer that was
    made of this server's.
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
    disks: LeftDisks | None = None
    clone_of: str | None = None


class BuildNetworks(msgspec.Struct, kw_only=True):
    """Reply to `start_build`: the interfaces of the instance."""

    vifs: list[VIF] = msgspec.field(default_factory=list)


class BuildOutcome(enum.StrEnum):
    """Outcome of a build: built; failed here, another host may succeed (rescheduled); failed permanently (aborted)."""

    BUILT = "built"
    RESCHEDULED = "rescheduled"
    ABORTED = "aborted"


class BuildResult(msgspec.Struct, kw_only=True):
    """Report of a host about a build.

    With any outcome but BUILT, the host has removed all traces of the build and fenced the generation. ``action_id``:
    of the command. ``blames_host`` False: a failure that says nothing about the host, because the
    connection to its hypervisor broke. ``devices``: the guest's devices and processor; None: unknown.
    """

    instance_uuid: str
    generation: int
    host: str
    outcome: BuildOutcome
    power_state: int = 0
    message: str = ""
    details: str = ""
    root_device_name: str | None = None
    action_id: int = 0
    blames_host: bool = True
    devices: GuestReport | None = None


class DomainReport(msgspec.Struct, kw_only=True):
    """Domain of nova_lite that a host has found on its hypervisor.

    ``last_action_id`` and ``last_position``: action and sequence number of the newest command for it that the host had
    received; None: unknown. ``lost_power``: the host has rebooted since its last report, so a domain that ran is to be
    started. ``booted``: it has rebooted, and leaves it to the conductor which domains are to be started. ``incidents``:
    no comparison has reported them yet. A domain that is off because of a crash always has one. ``halted``: its
    watchdog has paused it, also if no incident says so any more. ``lacks_disks``: files of its disks are missing.
    """

    uuid: str
    generation: int
    power_state: int
    last_action_id: int | None = None
    last_position: int | None = None
    lost_power: bool = False
    booted: bool = False
    incidents: list[Incident] = []
    halted: bool = False
    lacks_disks: bool = False


def digest_of_domains(domains: Iterable[tuple[str, int, int]]) -> str:
    """Return a digest of domains, each with uuid, generation and power state. Their order does not matter."""
    lines = sorted(f"{uuid} {generation} {power_state}\n" for uuid, generation, power_state in domains)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class ExpectedDomain(msgspec.Struct, kw_only=True):
    """Domain that a host has to have. No operation on its instance is open.

    ``last_action_id``: of the newest action of the instance at that time.
    """

    uuid: str
    generation: int
    last_action_id: int = 0


class SettledRecords(msgspec.Struct, kw_only=True):
    """Instances whose fencing record a host may remove. ``last_action_id``: none of their actions has a higher id."""

    instance_uuids: list[str] = msgspec.field(default_factory=list)
    last_action_id: int = 0


class Verdict(enum.StrEnum):
    """Decision about a domain on a host. DESTROY: the domain does not, or no longer, belong there."""

    KEEP = "keep"
    DESTROY = "destroy"


class DomainVerdict(msgspec.Struct, kw_only=True):
    """Decision about one domain. ``keeps_disks``: the host destroys the domain, but another host may need its disks.

    ``undecided``: the server has a task, and it is decided later whether the guest, which its host has lost or stopped,
    starts again.
    """

    uuid: str
    generation: int
    verdict: Verdict
    keeps_disks: bool = False
    undecided: bool = False
