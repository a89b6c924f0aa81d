"""Volumes, their snapshots, the work on their files that hosts do, and how a host gets at those of Cinder."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import msgspec

from nova_lite.objects.image import Image


class Volume(msgspec.Struct, kw_only=True):
    """``size``: GB. ``image``: what it was made of; ``instance_uuid``, ``attachment_id`` and ``device``: of the server
    that has it, or is to have it."""

    id: str
    project_id: str
    user_id: str = ""
    name: str = ""
    description: str | None = None
    size: int
    status: str = "creating"
    availability_zone: str = ""
    volume_type: str = ""
    bootable: bool = False
    multiattach: bool = False
    encrypted: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    image: Image | None = None
    snapshot_id: str | None = None
    source_volid: str | None = None
    instance_uuid: str | None = None
    attachment_id: str | None = None
    device: str | None = None
    host: str | None = None
    attached_at: datetime.datetime | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class VolumeSnapshot(msgspec.Struct, kw_only=True):
    id: str
    volume_id: str
    project_id: str
    user_id: str = ""
    name: str = ""
    description: str | None = None
    size: int = 0
    status: str = "creating"
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    image: Image | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class VolumeFilters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``project_id`` None: of all projects, for an admin. ``metadata``: pairs that all have to be there."""

    project_id: str | None = None
    name: str | None = None
    status: str | None = None
    bootable: bool | None = None
    volume_id: str | None = None
    metadata: dict[str, str] | None = None


class VolumeVerb(enum.StrEnum):
    CREATE = "create"
    DELETE = "delete"
    EXTEND = "extend"
    SNAPSHOT = "snapshot"
    DELETE_SNAPSHOT = "delete_snapshot"


class VolumeWork(msgspec.Struct, kw_only=True):
    """The order to a host to do something to a volume's file; doing it twice is harmless.

    ``size``: GB that it is to have. Made of ``image``, of ``source_snapshot`` or ``source_volume``, else blank.
    ``instance_uuid``: whose guest has it, on this host.
    """

    id: int
    verb: VolumeVerb
    volume_id: str
    snapshot_id: str | None = None
    size: int = 0
    image: Image | None = None
    source_snapshot: str | None = None
    source_volume: str | None = None
    instance_uuid: str | None = None


class VolumeUse(msgspec.Struct, kw_only=True):
    """What a project may use of volumes, and uses; -1 is no limit. ``gigabytes`` are those of volumes and snapshots."""

    limits: dict[str, int]
    used: dict[str, int]


class VolumeConnection(msgspec.Struct, kw_only=True):
    """How one host gets at a volume: ``info`` is what Cinder says, secrets included, and is kept nowhere but there."""

    volume_id: str
    size: int
    info: dict[str, Any]

    def __repr__(self) -> str:
        return f"VolumeConnection(volume_id={self.volume_id!r}, size={self.size!r})"


class NetworkDisk(msgspec.Struct, kw_only=True, frozen=True):
    """A volume that the hypervisor itself reaches over the network. ``hosts``: pairs of address and port; ``secret``:
    uuid of the hypervisor's secret that ``user`` comes with, None where nobody has to say who they are."""

    protocol: str
    name: str
    hosts: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    secret: str | None = None


#: Where a volume is for a hypervisor: a path, or a place in the network.
VolumeSource = str | NetworkDisk
