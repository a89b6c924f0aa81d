"""Volumes and snapshots, the commands to hosts about their files, and connections to volumes of Cinder."""

from __future__ import annotations

import datetime
import enum
import hashlib
import re
import uuid
from typing import Any

import msgspec

from nova_lite.base.ids import derived_id
from nova_lite.objects.image import Image


class VolumeAttachment(msgspec.Struct, kw_only=True):
    """Server, host or other client that has a volume. ``status``: reserved, attaching, attached or detaching.

    ``recorded``: the volume API has made it for a client. Otherwise it is a server's.
    """

    id: str
    recorded: bool = True
    instance_uuid: str | None = None
    host: str | None = None
    device: str | None = None
    mode: str = "rw"
    status: str = "reserved"
    attached_at: datetime.datetime | None = None


class Volume(msgspec.Struct, kw_only=True):
    """Volume. ``size``: GB. ``image``: the image that it was made of. ``image_metadata``: what users made of its
    metadata, None for unchanged. ``instance_uuid``, ``attachment_id`` and
    ``device`` describe its server, also while it is being attached. With ``multiattach`` several may have it, and they
    are in ``attachments``; in a request it says whether the user may have such a volume. ``encryption_key_id``: names
    its key, which only conductors read. ``read_only``: servers only read it."""

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
    image_metadata: dict[str, str] | None = None
    attachment: VolumeAttachment | None = None
    encryption_key_id: str | None = None
    read_only: bool = False
    attachments: list[VolumeAttachment] = msgspec.field(default_factory=list)
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None

    def all_attachments(self) -> list[VolumeAttachment]:
        """Return the servers and clients that have the volume. A server's status is the volume's, if it has one."""
        if self.multiattach:
            return self.attachments
        if self.attachment is not None:
            return [self.attachment]
        if self.attachment_id is None:
            return []
        server = VolumeAttachment(
            id=self.attachment_id,
            recorded=False,
            instance_uuid=self.instance_uuid,
            host=self.host,
            device=self.device,
            mode="ro" if self.read_only else "rw",
            status="attached" if self.status == "in-use" else self.status,
            attached_at=self.attached_at,
        )
        return [server]

    def shown_image_metadata(self) -> dict[str, str]:
        """Return the image that the volume was made of, as it was then, or what users made of it."""
        if self.image_metadata is not None:
            return self.image_metadata
        image = self.image
        if image is None:
            return {}
        known: dict[str, object] = {
            "image_id": image.id,
            "image_name": image.name,
            "disk_format": image.disk_format,
            "container_format": image.container_format,
            "min_disk": image.min_disk,
            "min_ram": image.min_ram,
            "size": image.size,
            "checksum": image.md5 or image.checksum,
        }
        return {**{name: str(value) for name, value in known.items()}, **image.properties}


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
    progress: str | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class BackedUpVolume(msgspec.Struct, kw_only=True):
    """Volume as it was when it was backed up. A volume that is restored gets these values."""

    name: str = ""
    description: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    bootable: bool = False
    image: Image | None = None
    image_metadata: dict[str, str] | None = None
    volume_type: str = ""


class VolumeBackup(msgspec.Struct, kw_only=True):
    """Backup of a volume, or of a snapshot of it (``snapshot_id``). ``size``: GB. ``data_id``: the name of its file.
    ``data_timestamp``: time of the content."""

    id: str
    volume_id: str
    data_id: str = ""
    snapshot_id: str | None = None
    project_id: str = ""
    user_id: str = ""
    name: str = ""
    description: str | None = None
    size: int = 0
    status: str = "creating"
    fail_reason: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    volume: BackedUpVolume = msgspec.field(default_factory=BackedUpVolume)
    data_timestamp: datetime.datetime | None = None
    encryption_key_id: str | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class VolumeTransfer(msgspec.Struct, kw_only=True):
    """Offer of a volume to another project."""

    id: str
    volume_id: str
    project_id: str = ""
    name: str = ""
    created_at: datetime.datetime | None = None


class VolumeType(msgspec.Struct, kw_only=True):
    """``projects``: the ids of projects that may use a private type. ``encryption``: fields of Cinder's encryption
    type, None for none."""

    id: str
    name: str
    description: str | None = None
    is_public: bool = True
    extra_specs: dict[str, str] = msgspec.field(default_factory=dict)
    projects: list[str] = msgspec.field(default_factory=list)
    qos_specs_id: str | None = None
    encryption: dict[str, Any] | None = None


class VolumeEncryption(msgspec.Struct, kw_only=True):
    """Encryption of a volume, in Cinder's words. ``encryption_key_id``: names the key, None for a plain volume."""

    encryption_key_id: str | None = None
    provider: str = ""
    cipher: str = ""
    key_size: int = 0
    control_location: str = ""


#: Roles of the disks that a server has on its host, as the requests for their keys name them.
DISK_ROLES = ("root", "ephemeral0", "ephemeral1", "ephemeral2", "swap", "rescue")
_DISK_KEYS = uuid.UUID("5a0a1c1f-4d55-4a5e-9f39-1f0c33a3b7de")


def disk_key_id(instance_uuid: str, role: str) -> str:
    """Return the id of the key of a server's encrypted disk. The disk's libvirt secret has it, too."""
    return derived_id(_DISK_KEYS, f"{instance_uuid}/{role}")


class VolumeKey(msgspec.Struct, kw_only=True):
    """Key of an encrypted volume or disk. It exists in the memory of conductors and of the hosts that need it now.

    ``key_size``: of the cipher, in bits.
    """

    passphrase: str
    key_size: int = 256

    def __repr__(self) -> str:
        return "VolumeKey(...)"


class VolumeQosSpecs(msgspec.Struct, kw_only=True):
    """Quality of service. ``types``: names of the types that have it, by id."""

    id: str
    name: str
    consumer: str = "back-end"
    specs: dict[str, str] = msgspec.field(default_factory=dict)
    types: dict[str, str] = msgspec.field(default_factory=dict)


_TYPES = uuid.UUID("5f1b6d0a-43f4-4b6b-9d7b-1b5bd3a0a0d1")


def default_type(name: str) -> VolumeType:
    """Return the operator's type of this name. Its id follows from the name."""
    return VolumeType(id=derived_id(_TYPES, name), name=name, description="Volumes that all hosts reach")


def is_default_type(reference: str, name: str) -> bool:
    """Check whether a reference is the name of the operator's type, or its id."""
    return reference in (name, default_type(name).id)


def transfer_digest(salt: str, key: str) -> str:
    """Return the digest of a transfer's key. The key is random, so no slow digest is needed."""
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


class VolumeFilters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Filters of a list of volumes. ``project_id`` None: all projects, for an admin. ``metadata``: all pairs have to
    match."""

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
    UPLOAD = "upload"
    BACKUP = "backup"
    DELETE_BACKUP = "delete_backup"
    VERIFY_BACKUP = "verify_backup"
    RESTORE = "restore"


class VolumeWork(msgspec.Struct, kw_only=True):
    """Command to a host about the file of a volume. It may be carried out twice.

    ``size``: the new size in GB. The source is ``image``, ``source_snapshot`` or ``source_volume``; none for a blank
    volume. For UPLOAD, ``image`` is the image to make. ``instance_uuid``: the instance on this host that has the
    volume. ``backup_id``: the backup to make. ``data_id``: the file of an existing backup. ``is_new``: the volume does
    not exist before it is restored. ``encrypted``: the volume is, and so is its source, unless that is an image.
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
    backup_id: str | None = None
    data_id: str | None = None
    is_new: bool = False
    encrypted: bool = False


class VolumeUse(msgspec.Struct, kw_only=True):
    """Limits and use of a project's volumes; -1 means unlimited. ``gigabytes`` counts volumes and snapshots."""

    limits: dict[str, int]
    used: dict[str, int]


class VolumeConnection(msgspec.Struct, kw_only=True):
    """Connection of one host to a volume. ``info`` is the reply of Cinder with its secrets, and is stored on that host
    only. ``multiattach``: several servers may have the volume."""

    volume_id: str
    size: int
    info: dict[str, Any]
    multiattach: bool = False

    @property
    def read_only(self) -> bool:
        """Check whether the server may only read the volume."""
        return self.info.get("access_mode") == "ro"

    def __repr__(self) -> str:
        return f"VolumeConnection(volume_id={self.volume_id!r}, size={self.size!r})"


class NetworkDisk(msgspec.Struct, kw_only=True, frozen=True):
    """Volume that the hypervisor reaches over the network. ``hosts``: pairs of address and port. ``secret``: uuid of
    the libvirt secret of ``user``; None without authentication. ``config``: path of a file that names the hosts.
    ``encrypted``: its data have the format LUKS."""

    protocol: str
    name: str
    hosts: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    secret: str | None = None
    config: str | None = None
    encrypted: bool = False


class EncryptedDisk(msgspec.Struct, kw_only=True, frozen=True):
    """Volume in a file with the format LUKS, which the hypervisor decrypts."""

    path: str


#: Kinds of connections of Cinder to files that lie on top of each other.
FILE_CONNECTIONS = frozenset({"nfs"})

#: Pattern of the names of Cinder's files. They are parts of paths and of qemu's own names of files.
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$"
_FILE_NAME = re.compile(FILE_NAME.removesuffix("$"))


def is_file_name(text: object) -> bool:
    """Check whether this is the plain name of a file of Cinder."""
    return isinstance(text, str) and _FILE_NAME.fullmatch(text) is not None


class FileMerge(msgspec.Struct, kw_only=True, frozen=True):
    """Request to merge two of a volume's files, by their names, in Cinder's words.

    With ``target``, the data of ``source`` go into ``target``, which lies below it, and ``source`` has no use then.
    Without, the file in use gets the data of all files between it and ``source``; None: of all files below it.
    """

    source: str | None
    target: str | None

    def is_done(self, chain: list[str]) -> bool:
        """Check whether a volume with these files, that in use first, needs no merge any more."""
        if self.target is not None:
            return self.source not in chain
        return chain[1:2] == ([] if self.source is None else [self.source])


class Qcow2Disk(msgspec.Struct, kw_only=True, frozen=True):
    """Volume in a file with the format qcow2, perhaps on top of other files in the same directory."""

    path: str


#: Source of a volume's disk for a hypervisor: the path of a raw file or device, a file with another format, or a place
#: in the network.
VolumeSource = str | EncryptedDisk | Qcow2Disk | NetworkDisk


def is_encrypted(source: VolumeSource) -> bool:
    """Check whether the hypervisor decrypts a volume."""
    return isinstance(source, EncryptedDisk) or (isinstance(source, NetworkDisk) and source.encrypted)
