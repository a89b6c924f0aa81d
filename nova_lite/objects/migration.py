"""Migrations: where the destination fetches the disks, and the record of the move."""

from __future__ import annotations

import datetime

import msgspec


class DiskFile(msgspec.Struct, kw_only=True, frozen=True):
    """File of an instance's directory. ``size``: bytes to copy. ``checksum``: in the driver's own format."""

    name: str
    size: int
    checksum: str = ""


class PooledDisks(msgspec.Struct, kw_only=True, frozen=True):
    """Disks in a pool of Ceph that both hosts of a move use. ``key``: the uuid and the generation in their names.
    ``images``: Ceph's id of each, by the disk's name."""

    key: str
    images: dict[str, str]


class DiskSource(msgspec.Struct, kw_only=True, frozen=True):
    """Disks of a stopped instance. ``location``: path or URL, as the driver understands it. ``host``: an address that
    the destination reaches. ``driver``: the kind of driver that wrote this. ``token``: opens these files, and nothing
    else, for this move alone. ``port``: the host sends them there by TLS; 0: by SSH alone. ``pooled``: its
    disks that are not files."""

    driver: str
    host: str
    location: str
    files: list[DiskFile] = msgspec.field(default_factory=list)
    token: str = ""
    port: int = 0
    pooled: PooledDisks | None = None


class ServerMigration(msgspec.Struct, kw_only=True):
    """Record of one move of an instance. ``dest_host`` is the address of ``dest_compute``. ``progress``: of a live
    migration, in bytes, by the names of Nova (``memory_total_bytes``, ...). Flavors go by the ids of their rows."""

    id: int
    uuid: str
    instance_uuid: str
    migration_type: str
    status: str
    user_id: str | None = None
    project_id: str | None = None
    source_compute: str
    source_node: str | None = None
    dest_compute: str | None = None
    dest_node: str | None = None
    dest_host: str | None = None
    old_flavor_id: int = 0
    new_flavor_id: int = 0
    created_at: datetime.datetime
    updated_at: datetime.datetime | None = None
    progress: dict[str, int] = msgspec.field(default_factory=dict)


class MigrationFilters(msgspec.Struct, kw_only=True):
    """Filters of a list of migrations. Each filter matches any of its values. ``host``: source or destination."""

    host: list[str] | None = None
    instance_uuid: list[str] | None = None
    status: list[str] | None = None
    migration_type: list[str] | None = None
    source_compute: list[str] | None = None
    user_id: list[str] | None = None
    project_id: list[str] | None = None
    changes_since: datetime.datetime | None = None
    changes_before: datetime.datetime | None = None
