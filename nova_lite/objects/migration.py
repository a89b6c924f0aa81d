"""Moving an instance to another host: where its disks can be fetched, and the record of it."""

from __future__ import annotations

import datetime

import msgspec


class DiskFile(msgspec.Struct, kw_only=True, frozen=True):
    """One file of an instance's directory. ``size`` in bytes, as it is to be copied; ``checksum``: its driver's."""

    name: str
    size: int
    checksum: str = ""


class DiskSource(msgspec.Struct, kw_only=True, frozen=True):
    """The disks of an instance that is off: ``files`` at ``location`` (a path or a URL, the driver's) of ``host``,
    which is an address that the destination reaches. ``driver``: whose language that is."""

    driver: str
    host: str
    location: str
    files: list[DiskFile] = msgspec.field(default_factory=list)


class ServerMigration(msgspec.Struct, kw_only=True):
    """One move of an instance. ``dest_host`` is the address of ``dest_compute``; ``progress``: of a live migration, in
    bytes by Nova's names (``memory_total_bytes``, ...). Flavors by the ids of their rows."""

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
    """Which migrations a list is to have: one of the values of each that is given. ``host``: at either end."""

    host: list[str] | None = None
    instance_uuid: list[str] | None = None
    status: list[str] | None = None
    migration_type: list[str] | None = None
    source_compute: list[str] | None = None
    user_id: list[str] | None = None
    project_id: list[str] | None = None
    changes_since: datetime.datetime | None = None
    changes_before: datetime.datetime | None = None
