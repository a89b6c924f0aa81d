"""Networks of the built-in ``local`` backend."""

from __future__ import annotations

import datetime

import msgspec


class Network(msgspec.Struct, kw_only=True):
    """A network that instances get addresses from. ``project_id`` None: shared by all projects. ``cidr`` "": it has no
    subnet (yet), and no instance may use it.

    ``bridge`` names the host's bridge, which the virt driver makes if it can; ``start``/``end`` bound the pool.
    ``vni``: hosts connect their bridges by VXLAN of this number; None: each host's guests are alone. ``cidr6``: an IPv6
    prefix of 64 bits, in which each interface has the address that follows from its MAC address; "": none.
    """

    id: str
    name: str
    cidr: str
    gateway: str | None = None
    dns: list[str] = msgspec.field(default_factory=list)
    bridge: str = ""
    mtu: int = 1500
    start: str | None = None
    end: str | None = None
    project_id: str | None = None
    is_default: bool = False
    vni: int | None = None
    cidr6: str = ""


class NetworkRecord(Network, kw_only=True):
    """A network with what only people read of it."""

    description: str = ""
    subnet_name: str = ""
    subnet_description: str = ""
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class Port(msgspec.Struct, kw_only=True):
    """An interface as a thing of its own. ``kept``: a user made it, it outlives its instance.

    ``security_groups``: ids; when one is made, ids or names, None for the default one. ``power_state``,
    ``host`` and ``availability_zone`` are its instance's, None without one.
    """

    id: str
    network_id: str
    address: str = ""
    address6: str | None = None
    mac_address: str = ""
    project_id: str = ""
    name: str = ""
    description: str = ""
    security_groups: list[str] | None = None
    instance_uuid: str | None = None
    kept: bool = True
    tag: str | None = None
    state: str | None = None
    host: str | None = None
    availability_zone: str | None = None
    power_state: int | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
