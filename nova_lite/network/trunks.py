"""Trunks: a server reaches the networks of further ports, the subports, by VLANs on one of its interfaces."""

from __future__ import annotations

import datetime

import msgspec

from nova_lite.objects import VIF

#: Name of the wing, in ``[DEFAULT] wings`` and in messages.
WING = "trunks"
#: Owner of the ports that are subports. Their ``device_id`` is the id of their trunk.
SUBPORT = "trunk:subport"
#: The only segmentation type.
VLAN = "vlan"
#: Numbers of VLANs.
LOWEST, HIGHEST = 1, 4094

#: States of a subport that its host reports. Before that it is "".
UP, FAILED = "up", "failed"
#: States of a trunk.
ACTIVE, BUILD, DEGRADED, DOWN = "ACTIVE", "BUILD", "DEGRADED", "DOWN"


class Subport(msgspec.Struct, kw_only=True):
    """Port of a trunk, and the VLAN by which the server reaches it. ``state``: `UP`, `FAILED` or ""."""

    port_id: str
    segmentation_id: int
    mac_address: str = ""
    state: str = ""


class Trunk(msgspec.Struct, kw_only=True):
    """Trunk with its subports, in the order of their VLANs. ``port_id``: the parent port. ``status``: as `ACTIVE`."""

    id: str
    project_id: str
    port_id: str
    name: str = ""
    description: str = ""
    admin_state_up: bool = True
    status: str = DOWN
    sub_ports: list[Subport] = msgspec.field(default_factory=list)
    tags: list[str] | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class PortDetails(msgspec.Struct, kw_only=True):
    """Trunks of ports. ``parents``: trunks by parent port. ``active``: subports that work."""

    parents: dict[str, Trunk] = msgspec.field(default_factory=dict)
    active: list[str] = msgspec.field(default_factory=list)


class Assignment(msgspec.Struct, kw_only=True):
    """Subport that a host connects. ``parent_id``: port whose interface has the VLAN."""

    vif: VIF
    project_id: str
    parent_id: str
    segmentation_id: int

    def place(self) -> object:
        """Return what the connection of the subport depends on. Hosts learn of all else with the packet filters."""
        network = self.vif.network
        return self.parent_id, self.segmentation_id, self.vif.mac_address, self.vif.address, network.id, network.mtu


class HostReport(msgspec.Struct, kw_only=True):
    """Report of a host. ``states``: `UP` or `FAILED`, by subport that it has connected, or cannot connect."""

    states: dict[str, str] = msgspec.field(default_factory=dict)


class Assignments(msgspec.Struct, kw_only=True):
    """All subports of a host. ``is_moving``: a server with some of them is moving, so that their host changes soon."""

    subports: list[Assignment] = msgspec.field(default_factory=list)
    is_moving: bool = False
