"""Instances, which the REST API calls servers."""

from __future__ import annotations

import datetime
import enum
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite.objects.block_device import BlockDevice
from nova_lite.objects.flavor import Flavor
from nova_lite.objects.guest_device import GuestDevices
from nova_lite.objects.network import Network
from nova_lite.objects.numa import InstanceNUMATopology
from nova_lite.objects.pci import HOSTDEV_PHYSICAL, HW_VEB, NORMAL, OF_PORT, PCIDevice
from nova_lite.objects.point import SnapshotPoint
from nova_lite.objects.share import ShareMapping

#: Key in an instance's ``system_metadata``: the password that the guest posted, encrypted with the key pair, in base64.
POSTED_PASSWORD = "password"  # noqa: S105 a key


class InstanceFault(msgspec.Struct, kw_only=True):
    """Cause of the state ERROR. ``message`` is for the owner of the instance, ``details`` for admins."""

    code: int
    message: str
    details: str = ""
    created_at: datetime.datetime | None = None


def version_of(address: str) -> int:
    """Return the version of the Internet Protocol: 4 or 6."""
    return 6 if ":" in address else 4


class AddressMode(enum.StrEnum):
    """Way in which a guest gets an address of a subnet."""

    STATIC = "static"
    DHCP = "dhcp"
    SLAAC = "slaac"
    DHCPV6_STATEFUL = "dhcpv6-stateful"
    DHCPV6_STATELESS = "dhcpv6-stateless"


class FixedIp(msgspec.Struct, kw_only=True):
    """Further address of a port, with its subnet. ``address_mode``: an `AddressMode`; "": unknown.

    ``is_further``: a built-in network has given the port another address of this IP version already.
    """

    address: str
    subnet_id: str
    cidr: str
    gateway: str | None = None
    dns: list[str] = msgspec.field(default_factory=list)
    address_mode: str = ""
    is_further: bool = False


class VIF(msgspec.Struct, kw_only=True):
    """Network interface of an instance, with its address and network.

    ``position``: index among the interfaces of the instance. ``state``: "attaching", "detaching" or None.
    ``floating_address``: the address that leads to it from outside. ``port_security_enabled``: the host enforces
    security groups. ``unguarded``: a user has turned port security off, so the guest may send what it wants.
    ``address_pairs``: objects with ``ip_address`` (or a range of addresses) and ``mac_address``, which the guest
    has, too. ``security_groups``: their names; None: those of the instance. ``more``: further addresses, for
    example that of IPv6. ``dhcp_options``: see `nova_lite.objects.Port`.

    ``vnic_type``: see `nova_lite.objects.pci.PORT_DEVICES`. ``device``: what a port of that kind has on its host; set
    on the host only.

    The other fields describe a port of Neutron. The host plugs it according to ``vif_type`` and ``vif_details``, and
    enforces nothing itself. ``vif_type`` is None for a port of the built-in network service without a device.
    ``subnet_id``: of ``address``.
    ``kept``: a user made the port, so it outlives the instance. ``active``: the network is connected.
    ``security_group_ids``: ids, because names need not be unique in Neutron.
    """

    id: str
    mac_address: str
    address: str
    network: Network
    version: int = 4
    tag: str | None = None
    port_security_enabled: bool = False
    unguarded: bool = False
    address_pairs: list[dict[str, str]] | None = None
    security_groups: list[str] | None = None
    position: int = 0
    state: str | None = None
    floating_address: str | None = None
    vif_type: str | None = None
    vif_details: dict[str, Any] = msgspec.field(default_factory=dict)
    subnet_id: str | None = None
    more: list[FixedIp] = msgspec.field(default_factory=list)
    kept: bool = False
    active: bool = True
    security_group_ids: list[str] = msgspec.field(default_factory=list)
    vnic_type: str = NORMAL
    device: PCIDevice | None = None
    dhcp_options: list[dict[str, Any]] | None = None

    @property
    def is_remote(self) -> bool:
        """True for a port of another network service."""
        return self.vif_type is not None and (not self.is_device or self.subnet_id is not None)

    @property
    def is_device(self) -> bool:
        """True for a device of the host. The host has no part in its packets."""
        return self.vif_type in (HW_VEB, HOSTDEV_PHYSICAL)

    def with_device(self, devices: Iterable[PCIDevice] | None) -> VIF:
        """Return the interface with its device among those of its instance."""
        alias = f"{OF_PORT}{self.id}"
        return msgspec.structs.replace(self, device=next((one for one in devices or () if one.alias == alias), None))


def domain_name(instance_uuid: str) -> str:
    """Return the name of an instance's domain on the hypervisor."""
    return f"instance-{instance_uuid}"


class Instance(msgspec.Struct, kw_only=True):
    """Instance with all that belongs to it.

    ``flavor`` is a copy from the time of the create. ``image_ref`` is "" without an image. ``generation`` counts build
    attempts: it is the fencing token of host and domain. ``task_state`` is None unless an action is open.
    ``system_metadata``: properties of the image (``image_*``), and what the guest posted (`POSTED_PASSWORD`).
    ``protected``: its policy restarts it; set in commands to hosts only. ``server_group``: uuid of its group.
    ``numa``: its place in the NUMA cells of the host; None: anywhere. ``pci``: its devices there. ``shares``: see
    `ShareMapping`. ``points``: its snapshot points. ``site_role``: its role at this site
    (`nova_lite.objects.replication.SiteRole`); None: it is not replicated. ``guest_devices``: as the host has last
    reported them.
    """

    uuid: str
    project_id: str
    user_id: str
    display_name: str
    display_description: str | None = None
    hostname: str
    reservation_id: str = ""
    launch_index: int = 0
    vm_state: str
    task_state: str | None = None
    power_state: int = 0
    progress: int = 0
    host: str | None = None
    node: str | None = None
    generation: int = 0
    availability_zone: str | None = None
    requested_availability_zone: str | None = None
    image_ref: str = ""
    kernel_id: str = ""
    ramdisk_id: str = ""
    root_device_name: str | None = None
    flavor: Flavor
    key_name: str | None = None
    key_data: str | None = None
    user_data: str | None = None
    config_drive: bool = False
    auto_disk_config: bool = False
    locked: bool = False
    locked_by: str | None = None
    locked_reason: str | None = None
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    system_metadata: dict[str, str] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    security_groups: list[str] = msgspec.field(default_factory=list)
    scheduler_hints: dict[str, list[str] | str] = msgspec.field(default_factory=dict)
    server_group: str | None = None
    vifs: list[VIF] = msgspec.field(default_factory=list)
    block_devices: list[BlockDevice] = msgspec.field(default_factory=list)
    numa: InstanceNUMATopology | None = None
    pci: list[PCIDevice] | None = None
    shares: list[ShareMapping] = msgspec.field(default_factory=list)
    points: list[SnapshotPoint] = msgspec.field(default_factory=list)
    guest_devices: GuestDevices | None = None
    fault: InstanceFault | None = None
    host_status: str | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    launched_at: datetime.datetime | None = None
    terminated_at: datetime.datetime | None = None
    deleted: bool = False
    protected: bool = False
    site_role: str | None = None

    @property
    def name(self) -> str:
        """Name of its domain on the hypervisor."""
        return domain_name(self.uuid)

    def interface_groups(self) -> list[str]:
        """Return the names of the security groups of its interfaces, or of its future interfaces."""
        if not self.vifs:
            return self.security_groups
        own = [self.security_groups if vif.security_groups is None else vif.security_groups for vif in self.vifs]
        return list(dict.fromkeys(own[0] if len(own) == 1 else itertools.chain.from_iterable(own)))


class InstanceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Request to read an instance, for a caller of ``project_id`` or for an admin."""

    uuid: str
    project_id: str | None = None
    is_admin: bool = False

    def may_see(self, instance: Instance) -> bool:
        return self.is_admin or instance.project_id == self.project_id


class HostedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """Instance as a list of hypervisors shows it."""

    uuid: str
    host: str
    node: str

    @property
    def name(self) -> str:
        return domain_name(self.uuid)


class InstanceFilters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Filters of a list of instances. ``project_id`` None: all projects, which the API allows to admins only.

    ``name``, ``ip`` and ``ip6`` are regular expressions, as in Nova. All others match exactly. ``with_user_data``
    False: the instances are listed without user data, which may be most of their size.
    """

    project_id: str | None = None
    uuids: list[str] | None = None
    user_id: str | None = None
    name: str | None = None
    vm_states: list[str] | None = None
    task_states: list[str] | None = None
    power_state: int | None = None
    host: str | None = None
    node: str | None = None
    flavorid: str | None = None
    image_ref: str | None = None
    reservation_id: str | None = None
    availability_zone: str | None = None
    key_name: str | None = None
    description: str | None = None
    locked: bool | None = None
    config_drive: bool | None = None
    metadata: dict[str, str] | None = None
    ip: str | None = None
    ip6: str | None = None
    changes_since: datetime.datetime | None = None
    changes_before: datetime.datetime | None = None
    created_at: datetime.datetime | None = None
    launched_at: datetime.datetime | None = None
    terminated_at: datetime.datetime | None = None
    progress: int | None = None
    tags: list[str] | None = None
    tags_any: list[str] | None = None
    not_tags: list[str] | None = None
    not_tags_any: list[str] | None = None
    deleted: bool = False
    soft_deleted: bool = False
    with_user_data: bool = True
