"""PCI devices and vGPUs of hosts, and requests of servers for them. Names and values are Nova's."""

from __future__ import annotations

import msgspec

#: Types of devices: an ordinary one, a physical function with SR-IOV, and a virtual function of one.
TYPE_PCI, TYPE_PF, TYPE_VF = "type-PCI", "type-PF", "type-VF"

#: Types of the devices that ports have, by their ``binding:vnic_type``. A `NORMAL` port has none.
MACVTAP = "macvtap"
PORT_DEVICES = {"direct": TYPE_VF, MACVTAP: TYPE_VF, "direct-physical": TYPE_PF}
NORMAL = "normal"
#: Types of their interfaces: on a virtual function, and on a whole card.
HW_VEB, HOSTDEV_PHYSICAL = "hw_veb", "hostdev_physical"
VIF_TYPES = {kind: HW_VEB if device == TYPE_VF else HOSTDEV_PHYSICAL for kind, device in PORT_DEVICES.items()}

#: Beginning of the aliases that stand for ports.
OF_PORT = "port:"

#: Policies of the NUMA cell of a device. They concern guests that are placed in NUMA cells.
NUMA_REQUIRED, NUMA_PREFERRED, NUMA_LEGACY = "required", "preferred", "legacy"

#: Resource class of the places of a processor for keys of encrypted memory.
MEM_ENCRYPTION_CONTEXT = "MEM_ENCRYPTION_CONTEXT"


class PCIDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PCI device that a host offers to guests, or a place for a vGPU. Ids are four hexadecimal digits.

    ``address``: as ``0000:81:00.0``. ``numa_cell``: None if the machine does not say. ``parent``: address of the
    physical function of a virtual one. ``managed``: libvirt binds the device to its driver for guests. ``alias``: of a
    claimed device, the alias that requested it, or `OF_PORT` with the id of its port.

    A vGPU has a ``resource_class`` and no ids. Its address is that of its ``parent`` with a number: ``0000:84:00.0#2``.
    So has a context of encrypted memory, ``sev#2``, whose pool is its ``parent`` and ``product_id``.
    """

    address: str
    vendor_id: str
    product_id: str
    dev_type: str = TYPE_PCI
    numa_cell: int | None = None
    parent: str | None = None
    physical_network: str | None = None
    managed: bool = True
    live_migratable: bool = False
    alias: str = ""
    resource_class: str = ""

    @property
    def is_of_port(self) -> bool:
        """True for the device of a port."""
        return self.alias.startswith(OF_PORT)


class PCIKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kind of devices that an alias stands for. None matches any value, but a physical function has to be named.

    vGPUs have their ``resource_class`` only, and contexts of encrypted memory also the pool as ``product_id``.
    Devices of ports have their type and ``physical_network``.
    """

    vendor_id: str
    product_id: str
    dev_type: str | None = None
    live_migratable: bool | None = None
    resource_class: str = ""
    physical_network: str | None = None

    def matches(self, device: PCIDevice) -> bool:
        if self.physical_network is not None:
            return (device.physical_network, device.dev_type) == (self.physical_network, self.dev_type)
        if (device.vendor_id, device.product_id) != (self.vendor_id, self.product_id):
            return False
        if device.resource_class != self.resource_class:
            return False
        if self.live_migratable not in (None, device.live_migratable):
            return False
        return device.dev_type != TYPE_PF if self.dev_type is None else device.dev_type == self.dev_type


class PCIRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request for ``count`` devices, each of any of the ``kinds``. No kinds: the alias is not configured any more.

    ``alias``: of vGPUs, the extra spec that requests them. Of a port, see `PCIDevice`.
    """

    alias: str
    count: int
    kinds: list[PCIKind] = msgspec.field(default_factory=list)
    numa_policy: str = NUMA_LEGACY

    def matches(self, device: PCIDevice) -> bool:
        return any(kind.matches(device) for kind in self.kinds)

    @property
    def may_migrate_live(self) -> bool:
        """True if each device that fits can be migrated while its guest runs."""
        return bool(self.kinds) and all(kind.live_migratable for kind in self.kinds)
