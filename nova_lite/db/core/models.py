"""Tables. Times are naive UTC with microseconds, taken from the database's clock where leases depend on them.

The invariants between rows are listed in docs/reference/database.md and checked by ``nova-lite-manage audit``:
used counters equal the sum of allocations; a task state implies an open action; quota counts equal the rows.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from nova_lite.objects import Subnet6
from nova_lite.objects.pci import NORMAL

#: Microseconds on MariaDB, too.
Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
#: MariaDB's 64 KB are too little for a base64 user_data or an image's properties.
LongText = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Uuid = sa.String(36)
Name = sa.String(255)


class Base(DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Numbered:
    id: Mapped[int] = mapped_column(BigId, primary_key=True)


#: Option of tables whose ids leave the database: a deleted row's id is never reused. MariaDB and PostgreSQL never reuse
#: ids.
NEVER_AGAIN = {"sqlite_autoincrement": True}


class Created:
    created_at: Mapped[datetime.datetime] = mapped_column(Time)


class Changed(Created):
    updated_at: Mapped[datetime.datetime | None] = mapped_column(Time)


class Tagged:
    """A resource of the network API. ``tags``: in order, None for none."""

    tags: Mapped[list[str] | None] = mapped_column(sa.JSON)


# --- hosts


class Settings6(sa.TypeDecorator[Subnet6]):
    """Column with the settings of an IPv6 subnet."""

    impl = sa.JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Subnet6 | None, dialect: sa.Dialect) -> Any:
        return None if value is None else msgspec.to_builtins(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Subnet6 | None:
        return None if value is None else msgspec.convert(value, Subnet6)


class Service(Numbered, Changed, Base):
    """A daemon. ``up`` is the host lease; the conductor clears it when ``last_seen_up`` is too old. ``identity``: of
    the machine that registered, since ``identity_epoch``. ``report_count``: the number of the newest report of the
    daemon that was started as ``boot_id``. ``version_since``: when it first reported its version.
    """

    __tablename__ = "services"
    __table_args__ = (sa.UniqueConstraint("host", "binary"), NEVER_AGAIN)

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    host: Mapped[str] = mapped_column(Name)
    binary: Mapped[str] = mapped_column(sa.String(64))
    topic: Mapped[str] = mapped_column(sa.String(64))
    version: Mapped[str] = mapped_column(sa.String(32), default="")
    version_since: Mapped[datetime.datetime | None] = mapped_column(Time)
    up: Mapped[bool] = mapped_column(default=True)
    disabled: Mapped[bool] = mapped_column(default=False)
    disabled_reason: Mapped[str | None] = mapped_column(Name)
    forced_down: Mapped[bool] = mapped_column(default=False)
    epoch: Mapped[int] = mapped_column(default=0)
    identity: Mapped[str | None] = mapped_column(sa.String(64))
    identity_epoch: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    availability_zone: Mapped[str] = mapped_column(Name, default="internal")
    boot_id: Mapped[str] = mapped_column(Uuid, default="")
    report_count: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    last_seen_up: Mapped[datetime.datetime | None] = mapped_column(Time)


class HostLease(Base):
    """Fencing of a compute host, and its newest request for a lease.

    ``seconds``: of the promise by the daemon that was started as ``boot_id``; 0: none. ``number``: of the request.
    ``guests``: the instances that the host has confirmed. ``fenced``: "", "lease", "off" or "left". It counts while
    ``boot_id`` is that of the service. ``fenced_by``: what proved it. ``checks``: results of the last tests of the
    fence methods. ``suspended_until``: until then, the host is to protect nothing.
    """

    __tablename__ = "host_leases"
    __table_args__ = {"sqlite_with_rowid": False}

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    seconds: Mapped[float] = mapped_column(default=0.0)
    boot_id: Mapped[str] = mapped_column(Uuid, default="")
    number: Mapped[int] = mapped_column(default=0)
    guests: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    fenced: Mapped[str] = mapped_column(sa.String(16), default="")
    fenced_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    fenced_by: Mapped[str | None] = mapped_column(Name)
    checked_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    checks: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON, default=list)
    suspended_until: Mapped[datetime.datetime | None] = mapped_column(Time)


class HostStorage(Base):
    """Directory of disks of a compute host, as the host sees it.

    ``marks``: its own, the newest first. ``seen``: marks of other hosts there, by host. ``live``: the hosts among them
    whose daemon runs. ``shares``: the hosts with which it shares the directory, by its last report.
    """

    __tablename__ = "host_storage"
    __table_args__ = {"sqlite_with_rowid": False}

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    marks: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    seen: Mapped[dict[str, list[str]]] = mapped_column(sa.JSON, default=dict)
    live: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    shares: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    updated_at: Mapped[datetime.datetime | None] = mapped_column(Time)


class HostHealth(Base):
    """Problems of a compute host's machine, and what conductors have done. A host without any has no row.

    ``problems``: each with key, kind, text and since. ``acted``: keys of problems because of which something was done.
    ``state``: "", "disabled", "draining" or "drained". ``cold``: stopped servers that leave it, and are confirmed
    there.
    """

    __tablename__ = "host_health"
    __table_args__ = {"sqlite_with_rowid": False}

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    problems: Mapped[list[dict[str, str]]] = mapped_column(sa.JSON, default=list)
    acted: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    state: Mapped[str] = mapped_column(sa.String(16), default="")
    cold: Mapped[list[str]] = mapped_column(sa.JSON, default=list)


class UnknownDomains(Base):
    """Domains of a compute host that are of no server, and its servers whose disks are missing, as of its last
    comparison. A host with neither has no row.

    ``uuids``: of the first such domains. ``total``: the number of all. ``without_disks``: the first such servers.
    ``newer``: the first domains whose generation is higher than any that their servers have had
    (`nova_lite.db.servers.newer_domains`).
    """

    __tablename__ = "unknown_domains"
    __table_args__ = {"sqlite_with_rowid": False}

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    uuids: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    total: Mapped[int] = mapped_column(default=0)
    without_disks: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    newer: Mapped[list[list[Any]] | None] = mapped_column(sa.JSON(none_as_null=True))


class Restart(Base):
    """A protected server of a fenced host that is to run again elsewhere.

    ``attempts``: how often an evacuation began. ``due_at``: when the next one may begin. ``cause``: why, for users.
    """

    __tablename__ = "restarts"
    __table_args__ = {"sqlite_with_rowid": False}

    instance_uuid: Mapped[str] = mapped_column(Uuid, primary_key=True)
    host: Mapped[str] = mapped_column(Name)
    priority: Mapped[int] = mapped_column(default=0)
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime.datetime] = mapped_column(Time, index=True)
    cause: Mapped[str] = mapped_column(sa.Text)


class CrashRestart(Base):
    """A protected server whose guest has crashed.

    ``action_id``: the action that recorded the last crash, or that has started the guest again. ``attempts``: how often
    it was started again since it last ran for long. ``started``: a start has begun since the crash. ``due_at``: when
    to start it, or to look at the start; None: it runs again. ``cause``: why, for users.
    """

    __tablename__ = "crash_restarts"
    __table_args__ = {"sqlite_with_rowid": False}

    instance_uuid: Mapped[str] = mapped_column(Uuid, primary_key=True)
    action_id: Mapped[int] = mapped_column(sa.BigInteger)
    attempts: Mapped[int] = mapped_column(default=0)
    started: Mapped[bool] = mapped_column(default=False)
    due_at: Mapped[datetime.datetime | None] = mapped_column(Time, index=True)
    updated_at: Mapped[datetime.datetime] = mapped_column(Time)
    cause: Mapped[str] = mapped_column(sa.Text)


class ReplicatedServer(Base):
    """A server with a replica at another site (`nova_lite.objects.replication.ReplicatedServer`).

    Its role is a column of `Instance`.
    """

    __tablename__ = "replicated_servers"
    __table_args__ = (sa.UniqueConstraint("server_id"), {"sqlite_with_rowid": False})

    instance_uuid: Mapped[str] = mapped_column(Uuid, primary_key=True)
    server_id: Mapped[str] = mapped_column(Uuid)
    policy_id: Mapped[str] = mapped_column(Uuid)
    generation: Mapped[int]
    backups: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON, default=list)
    image_id: Mapped[str | None] = mapped_column(Uuid)
    action_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    backup_id: Mapped[str | None] = mapped_column(Uuid)
    published: Mapped[str | None] = mapped_column(Uuid)
    since: Mapped[datetime.datetime | None] = mapped_column(Time)
    updated_at: Mapped[datetime.datetime] = mapped_column(Time)
    reason: Mapped[str | None] = mapped_column(sa.Text)


class HostLoad(Base):
    """Load of a compute host (`nova_lite.objects.balance.HostLoad`).

    ``hot``: it was under pressure at the last plan.
    """

    __tablename__ = "host_loads"
    __table_args__ = {"sqlite_with_rowid": False}

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    reported_at: Mapped[datetime.datetime] = mapped_column(Time)
    hot: Mapped[bool] = mapped_column(default=False)
    load: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class BalanceRun(Base):
    """The newest plan of moves, in a table of one row. ``number``: of the plan."""

    __tablename__ = "balance_runs"

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    begun_at: Mapped[datetime.datetime] = mapped_column(Time)


class BalanceMove(Numbered, Base):
    """A move that relieved a host, with the action that carries it out. ``result``: done or failed."""

    __tablename__ = "balance_moves"

    instance_uuid: Mapped[str] = mapped_column(Uuid)
    source: Mapped[str] = mapped_column(Name)
    target: Mapped[str] = mapped_column(Name)
    action_id: Mapped[int] = mapped_column(sa.BigInteger)
    begun_at: Mapped[datetime.datetime] = mapped_column(Time, index=True)
    ended_at: Mapped[datetime.datetime | None] = mapped_column(Time, index=True)
    result: Mapped[str | None] = mapped_column(sa.String(16))
    reason: Mapped[str] = mapped_column(sa.Text)


class ComputeNode(Numbered, Changed, Base):
    """A hypervisor. ``*_used`` change only by conditional updates, together with an `Allocation`.

    ``vcpus``, ``memory_mb``, ``disk_gb`` are capacities after ratio and reservation; ``inventory`` is the driver's
    report. ``generation`` grows with every change. ``failed_builds`` counts failed builds since the last success.
    ``freed_at``: when capacity was last released. ``numa_used``: the allocations' share of its NUMA cells
    (`nova_lite.objects.numa`); changed under the row's lock. ``pci_used``: addresses of its `PCIClaim` rows.
    """

    __tablename__ = "compute_nodes"
    __table_args__ = (sa.UniqueConstraint("host", "node"), NEVER_AGAIN)

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    service_id: Mapped[int] = mapped_column(sa.ForeignKey("services.id"))
    host: Mapped[str] = mapped_column(Name)
    node: Mapped[str] = mapped_column(Name)
    inventory: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    vcpus: Mapped[int] = mapped_column(default=0)
    memory_mb: Mapped[int] = mapped_column(default=0)
    disk_gb: Mapped[int] = mapped_column(default=0)
    vcpus_used: Mapped[int] = mapped_column(default=0)
    memory_mb_used: Mapped[int] = mapped_column(default=0)
    disk_gb_used: Mapped[int] = mapped_column(default=0)
    cpu_allocation_ratio: Mapped[float] = mapped_column(default=4.0)
    ram_allocation_ratio: Mapped[float] = mapped_column(default=1.0)
    disk_allocation_ratio: Mapped[float] = mapped_column(default=1.0)
    reserved: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    generation: Mapped[int] = mapped_column(default=0)
    failed_builds: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    freed_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    numa_used: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    pci_used: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))

    service: Mapped[Service] = relationship(lazy="joined")


class Allocation(Numbered, Created, Base):
    """Resources of one hypervisor that one instance uses: the only truth about usage.

    An instance has one allocation while it is placed, two while it moves. ``generation``: the attempt that it was made
    for. ``numa``: its place in the NUMA cells (`nova_lite.objects.InstanceNUMATopology`), if it is bound to any.
    ``pci``: its devices (`nova_lite.objects.PCIDevice`), each with a `PCIClaim`.
    """

    __tablename__ = "allocations"
    __table_args__ = (sa.UniqueConstraint("instance_uuid", "compute_node_id", "generation"),)

    instance_uuid: Mapped[str] = mapped_column(Uuid)
    compute_node_id: Mapped[int] = mapped_column(sa.ForeignKey("compute_nodes.id"), index=True)
    generation: Mapped[int]
    vcpus: Mapped[int]
    memory_mb: Mapped[int]
    disk_gb: Mapped[int]
    numa: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    pci: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))


class PCIClaim(Created, Base):
    """A PCI device of a hypervisor that an instance has. The key admits one claim of a device.

    ``state``: "claimed"; "lost" if the host does not offer it any more; then "reported", if its owner can see that.
    """

    __tablename__ = "pci_claims"
    __table_args__ = {"sqlite_with_rowid": False}

    compute_node_id: Mapped[int] = mapped_column(BigId, sa.ForeignKey("compute_nodes.id"), primary_key=True)
    address: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    instance_uuid: Mapped[str] = mapped_column(Uuid)
    alias: Mapped[str] = mapped_column(sa.String(256))
    state: Mapped[str] = mapped_column(sa.String(16), index=True)


class Aggregate(Numbered, Changed, Base):
    """A group of hosts with common ``metadata``. The key ``availability_zone`` makes it a zone."""

    __tablename__ = "aggregates"
    __table_args__ = NEVER_AGAIN

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON, default=dict)


class AggregateHost(Base):
    """Membership of a host in an aggregate. A host may be in several aggregates, but in one zone."""

    __tablename__ = "aggregate_hosts"

    aggregate_id: Mapped[int] = mapped_column(sa.ForeignKey("aggregates.id"), primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True, index=True)


# --- hosts that join


class JoinToken(Created, Base):
    """A join token (`nova_lite.base.join_requests`). ``public_key``: in base64. ``host``: the host that used it."""

    __tablename__ = "join_tokens"

    id: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    public_key: Mapped[str] = mapped_column(sa.String(64))
    expires_at: Mapped[datetime.datetime] = mapped_column(Time)
    used_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    revoked_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    host: Mapped[str | None] = mapped_column(Name)


class JoinedHost(Changed, Base):
    """A host that joined with a token, or joins. ``body``: its last request. ``reply``: what the registrar answered.

    ``previous_key``: the key that ``public_key`` replaces, or has replaced lately.
    """

    __tablename__ = "joined_hosts"

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    token_id: Mapped[str] = mapped_column(sa.String(16))
    public_key: Mapped[str] = mapped_column(sa.String(64))
    previous_key: Mapped[str | None] = mapped_column(sa.String(64))
    state: Mapped[str] = mapped_column(sa.String(16))
    body: Mapped[str] = mapped_column(LongText)
    reply: Mapped[str] = mapped_column(LongText, default="")
    signature: Mapped[str] = mapped_column(sa.Text, default="")
    problem: Mapped[str] = mapped_column(sa.Text, default="")


class PublishedTrust(Base):
    """The signed list of trusted keys: one row."""

    __tablename__ = "published_trust"

    id: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    serial: Mapped[int] = mapped_column(sa.BigInteger)
    content: Mapped[str] = mapped_column(LongText)
    signature: Mapped[str] = mapped_column(sa.Text)
    authority: Mapped[str] = mapped_column(sa.Text)


# --- instances


class Instance(Numbered, Changed, Base):
    """A server. A deleted one keeps its row (``deleted`` true) for its action log.

    ``flavor``, ``image`` and ``boot_images`` (kernel and ramdisk, by id) are snapshots taken at create. ``request`` is
    needed by the build only: networks, forced host, injected files, password; it is emptied when the build ends.
    ``shelved_image``: source of the next unshelve; ``shelved_at``: when it was shelved, or is to be offloaded.
    ``soft_deleted_at``: when its quota was released; it is deleted some time later.

    ``network_call_until``: a call to the network service may take effect until then. ``generation``: of the guest at
    ``host``; ``last_generation``: the highest ever issued. ``extra_vcpus``, ``extra_memory_mb``: counted by quota
    besides the flavor while a resize is open. ``block_devices``: requested volumes and disks
    (`nova_lite.objects.BlockDevice`). ``numa``, ``pci``: as in its allocation. ``shares``: its shares
    (`nova_lite.objects.ShareMapping`). ``points``: its snapshot points (`nova_lite.objects.SnapshotPoint`).
    ``guest_devices``: places of its devices (`nova_lite.objects.GuestReport`).
    ``network_info``: interfaces (`nova_lite.objects.VIF`) that another service owns; None: they are ports.
    ``disks_at``: where the disks of an evacuated server may be (`nova_lite.db.hosts.host_storage`). ``site_role``: of a
    replicated server (`nova_lite.objects.replication.SiteRole`); None: it is not replicated.
    """

    __tablename__ = "instances"
    __table_args__ = (
        sa.Index(None, "project_id", "deleted", "created_at"),
        sa.Index(None, "host", "deleted"),
        sa.Index(None, "deleted", "created_at"),
        sa.Index(None, "vm_state", "deleted", "created_at"),
        sa.Index(None, "image_ref", "deleted", "created_at"),
        sa.Index(None, "flavorid", "deleted", "created_at"),
        sa.Index(None, "user_id", "deleted", "created_at"),
        sa.Index(None, "key_name", "deleted", "created_at"),
        sa.Index(None, "availability_zone", "deleted", "created_at"),
        sa.Index(None, "task_state", "deleted", "created_at"),
        sa.Index(None, "deleted", "display_name", "id"),
        sa.Index(None, "project_id", "updated_at", "created_at"),
        sa.Index(None, "updated_at", "created_at"),
        sa.Index(None, "project_id", "terminated_at", "launched_at"),
        sa.Index(None, "terminated_at", "launched_at"),
    )

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    display_name: Mapped[str] = mapped_column(Name)
    display_description: Mapped[str | None] = mapped_column(Name)
    hostname: Mapped[str] = mapped_column(Name)
    reservation_id: Mapped[str] = mapped_column(Name, index=True)
    launch_index: Mapped[int] = mapped_column(default=0)
    vm_state: Mapped[str] = mapped_column(sa.String(32))
    task_state: Mapped[str | None] = mapped_column(sa.String(32))
    power_state: Mapped[int] = mapped_column(default=0)
    progress: Mapped[int] = mapped_column(default=0)
    host: Mapped[str | None] = mapped_column(Name)
    node: Mapped[str | None] = mapped_column(Name)
    generation: Mapped[int] = mapped_column(default=0)
    last_generation: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    availability_zone: Mapped[str | None] = mapped_column(Name)
    requested_availability_zone: Mapped[str | None] = mapped_column(Name)
    image_ref: Mapped[str] = mapped_column(Name, default="")
    kernel_id: Mapped[str] = mapped_column(Name, default="")
    ramdisk_id: Mapped[str] = mapped_column(Name, default="")
    root_device_name: Mapped[str | None] = mapped_column(sa.String(64))
    flavorid: Mapped[str] = mapped_column(Name)
    flavor: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    image: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    boot_images: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON)
    request: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    vcpus: Mapped[int]
    memory_mb: Mapped[int]
    disk_gb: Mapped[int]
    extra_vcpus: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    extra_memory_mb: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    key_name: Mapped[str | None] = mapped_column(Name)
    key_data: Mapped[str | None] = mapped_column(sa.Text)
    user_data: Mapped[str | None] = mapped_column(LongText)
    config_drive: Mapped[bool] = mapped_column(default=False)
    auto_disk_config: Mapped[bool] = mapped_column(default=False)
    locked: Mapped[bool] = mapped_column(default=False)
    locked_by: Mapped[str | None] = mapped_column(sa.String(16))
    locked_reason: Mapped[str | None] = mapped_column(Name)
    access_ip_v4: Mapped[str | None] = mapped_column(sa.String(45))
    access_ip_v6: Mapped[str | None] = mapped_column(sa.String(45))
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON, default=dict)
    system_metadata: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    security_groups: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    scheduler_hints: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    fault: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    disks_at: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    shelved_image: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    block_devices: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    network_info: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    numa: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    pci: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    shares: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    points: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    guest_devices: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    site_role: Mapped[str | None] = mapped_column(sa.String(16))
    shelved_at: Mapped[datetime.datetime | None] = mapped_column(Time, index=True)
    network_call_until: Mapped[datetime.datetime | None] = mapped_column(Time)
    launched_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    terminated_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    soft_deleted_at: Mapped[datetime.datetime | None] = mapped_column(Time, index=True)
    deleted: Mapped[bool] = mapped_column(default=False)

    tags: Mapped[list[InstanceTag]] = relationship(cascade="all, delete-orphan")


class Share(Created, Base):
    """A directory of hosts that servers of a project may mount. ``protocol``: `nova_lite.objects.ShareProtocol`."""

    __tablename__ = "shares"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(64), unique=True)
    project_id: Mapped[str] = mapped_column(Name)
    protocol: Mapped[str] = mapped_column(sa.String(16))


class PurgedInstance(Base):
    """Uuid of a purged instance. A domain with this uuid belongs nowhere, and no new server gets it."""

    __tablename__ = "purged_instances"
    __table_args__ = {"sqlite_with_rowid": False}

    uuid: Mapped[str] = mapped_column(Uuid, primary_key=True)
    purged_at: Mapped[datetime.datetime] = mapped_column(Time)


class SeenMessage(Base):
    """Id of a message that changed something, kept until the message would be rejected by its age."""

    __tablename__ = "taken_messages"
    __table_args__ = {"sqlite_with_rowid": False}

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    taken_at: Mapped[datetime.datetime] = mapped_column(Time, index=True)


class PendingAttach(Base):
    """An interface that this request ordered from another network service. ``port_id``: the user's own port; None: the
    service creates one. ``until``: afterwards no conductor works on it.
    """

    __tablename__ = "pending_attaches"

    instance_uuid: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    port_id: Mapped[str | None] = mapped_column(sa.String(36))
    until: Mapped[datetime.datetime] = mapped_column(Time, index=True)


class InstanceTag(Base):
    __tablename__ = "instance_tags"

    instance_id: Mapped[int] = mapped_column(sa.ForeignKey("instances.id"), primary_key=True)
    tag: Mapped[str] = mapped_column(sa.String(60), primary_key=True)


class ConsoleAuthToken(Numbered, Created, Base):
    """Permission to open a console of the instance. ``token_hash`` is the token's SHA-256 (hex). It is void once the
    instance has left ``compute_host`` or ``generation``. ``port`` 0: ``tls_port`` is the only one.
    """

    __tablename__ = "console_auth_tokens"
    __table_args__ = (sa.Index(None, "instance_uuid", "id"),)

    token_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    instance_uuid: Mapped[str] = mapped_column(Uuid)
    generation: Mapped[int]
    compute_host: Mapped[str] = mapped_column(Name)
    console_type: Mapped[str] = mapped_column(Name)
    host: Mapped[str] = mapped_column(Name)
    port: Mapped[int]
    tls_port: Mapped[int | None]
    internal_access_path: Mapped[str | None] = mapped_column(Name)
    access_url_base: Mapped[str] = mapped_column(sa.Text)
    expires_at: Mapped[datetime.datetime] = mapped_column(Time, index=True)


class InstanceGroup(Numbered, Created, Base):
    """A server group. ``policy`` and ``rules`` never change. Claims lock the row, so that they decide one by one."""

    __tablename__ = "instance_groups"

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    policy: Mapped[str] = mapped_column(sa.String(32))
    rules: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class InstanceGroupMember(Base):
    """Membership of an instance in a group: at most one, from creation until deletion."""

    __tablename__ = "instance_group_members"

    instance_uuid: Mapped[str] = mapped_column(Uuid, primary_key=True)
    group_id: Mapped[int] = mapped_column(sa.ForeignKey("instance_groups.id"), index=True)


class Migration(Numbered, Changed, Base):
    """A resize, a cold migration, an evacuation or another move of an instance, as Nova's API shows it.

    ``source`` and ``destination``: its two hosts (`nova_lite.db.servers.claims.Place`), the latter with its address
    once it is claimed. ``old_flavor`` and ``new_flavor`` are snapshots; ``vm_state``: the state before the move.
    ``progress``: the last report of a live migration. An evacuation without a known source has an empty
    ``source_host``.
    """

    __tablename__ = "migrations"
    __table_args__ = (
        sa.Index(None, "instance_uuid", "id"),
        sa.Index(None, "status", "updated_at"),
        sa.Index(None, "created_at"),
        NEVER_AGAIN,
    )

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    instance_uuid: Mapped[str] = mapped_column(Uuid)
    migration_type: Mapped[str] = mapped_column(sa.String(32))
    status: Mapped[str] = mapped_column(sa.String(32))
    user_id: Mapped[str | None] = mapped_column(Name)
    project_id: Mapped[str | None] = mapped_column(Name)
    source: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    destination: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    source_host: Mapped[str] = mapped_column(Name, index=True)
    destination_host: Mapped[str | None] = mapped_column(Name, index=True)
    destination_ip: Mapped[str | None] = mapped_column(sa.String(64))
    old_flavor: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    new_flavor: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    vm_state: Mapped[str] = mapped_column(sa.String(32))
    progress: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


class InstanceAction(Numbered, Base):
    """The durable queue: one row per accepted request.

    An action is open while ``finish_time`` is null. ``step`` is driven next (`nova_lite.operations`). The holder of the
    lease (``lease_owner``, until ``lease_expires_at``) drives it; when the lease lapses the reconciler takes it.
    ``attempts`` counts its retries. At the ``deadline`` compensation starts. ``events``: its steps, as
    `nova_lite.objects.InstanceActionEvent`. Actions older than this column have rows instead. ``changes``: of its
    server's row, as `nova_lite.db.core.server_changes.ServerChange`.
    """

    __tablename__ = "instance_actions"
    __table_args__ = (
        sa.Index(None, "instance_uuid", "id"),
        sa.Index(None, "finish_time", "lease_expires_at"),
        sa.Index(None, "request_id"),
        NEVER_AGAIN,
    )

    action: Mapped[str] = mapped_column(sa.String(32))
    instance_uuid: Mapped[str] = mapped_column(Uuid)
    request_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str | None] = mapped_column(Name)
    project_id: Mapped[str | None] = mapped_column(Name)
    payload: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    generation: Mapped[int] = mapped_column(default=0)
    step: Mapped[str] = mapped_column(sa.String(32))
    host: Mapped[str | None] = mapped_column(Name)
    lease_owner: Mapped[str | None] = mapped_column(Name)
    lease_expires_at: Mapped[datetime.datetime] = mapped_column(Time)
    attempts: Mapped[int] = mapped_column(default=0)
    deadline: Mapped[datetime.datetime] = mapped_column(Time)
    start_time: Mapped[datetime.datetime] = mapped_column(Time)
    updated_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    finish_time: Mapped[datetime.datetime | None] = mapped_column(Time)
    message: Mapped[str | None] = mapped_column(Name)
    events: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    changes: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))

    earlier_events: Mapped[list[InstanceActionEvent]] = relationship(order_by="InstanceActionEvent.id", viewonly=True)


class Notification(Numbered, Created, Base):
    """A notification that a ``channel`` has to deliver: the bus, or a webhook. It is deleted when it was delivered.

    The holder of the lease (``lease_owner``, until ``due_at``) delivers it. ``message_id`` is the same at each attempt.
    ``context``: request, user and project.
    """

    __tablename__ = "notifications"
    __table_args__ = (sa.Index(None, "channel", "id"), sa.Index(None, "created_at"))

    channel: Mapped[str] = mapped_column(sa.String(64))
    message_id: Mapped[str] = mapped_column(Uuid)
    event_type: Mapped[str] = mapped_column(sa.String(64))
    publisher_id: Mapped[str] = mapped_column(sa.String(300))
    priority: Mapped[str] = mapped_column(sa.String(8))
    context: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    payload: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    due_at: Mapped[datetime.datetime] = mapped_column(Time)
    lease_owner: Mapped[str | None] = mapped_column(Uuid)
    attempts: Mapped[int] = mapped_column(default=0)


class BackupPolicy(Numbered, Changed, Base):
    """A policy (`nova_lite.objects.BackupPolicy`). ``next_run_at``: when its next backups are planned."""

    __tablename__ = "backup_policies"
    __table_args__ = (sa.Index(None, "project_id"), sa.Index(None, "next_run_at"))

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    enabled: Mapped[bool]
    every: Mapped[str] = mapped_column(sa.String(8))
    minute: Mapped[int]
    hour: Mapped[int]
    weekday: Mapped[int]
    keep_hourly: Mapped[int]
    keep_daily: Mapped[int]
    keep_weekly: Mapped[int]
    not_before: Mapped[int | None]
    not_after: Mapped[int | None]
    servers: Mapped[list[str]] = mapped_column(sa.JSON)
    tags: Mapped[list[str]] = mapped_column(sa.JSON)
    all_servers: Mapped[bool]
    volumes: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    locked_days: Mapped[int] = mapped_column(default=0, server_default="0")
    next_run_at: Mapped[datetime.datetime | None] = mapped_column(Time)


class ServerBackup(Numbered, Created, Base):
    """A backup that a policy makes (`nova_lite.objects.ServerBackup`). It outlives its policy and its server.

    ``held_until``: retention leaves it alone, because it is being restored. ``locked_until``: nothing removes it.
    """

    __tablename__ = "server_backups"
    __table_args__ = (
        sa.UniqueConstraint("policy_id", "instance_uuid", "scheduled_for"),
        sa.Index(None, "project_id", "id"),
        sa.Index(None, "status", "due_at"),
        NEVER_AGAIN,
    )

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    policy_id: Mapped[str] = mapped_column(Uuid)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    instance_uuid: Mapped[str] = mapped_column(Uuid)
    status: Mapped[str] = mapped_column(sa.String(16))
    scheduled_for: Mapped[datetime.datetime] = mapped_column(Time)
    due_at: Mapped[datetime.datetime] = mapped_column(Time)
    deadline: Mapped[datetime.datetime] = mapped_column(Time)
    image_id: Mapped[str] = mapped_column(Uuid)
    size: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    attempts: Mapped[int] = mapped_column(default=0)
    reason: Mapped[str | None] = mapped_column(sa.Text)
    action_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    host: Mapped[str | None] = mapped_column(Name)
    started_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    finished_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    held_until: Mapped[datetime.datetime | None] = mapped_column(Time)
    locked_until: Mapped[datetime.datetime | None] = mapped_column(Time)
    server: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    engine: Mapped[str] = mapped_column(sa.String(16), default="images", server_default="images")
    generation: Mapped[int | None] = mapped_column()
    base_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    increments: Mapped[int] = mapped_column(default=0, server_default="0")
    disk_size: Mapped[int] = mapped_column(sa.BigInteger, default=0, server_default="0")
    snapshot: Mapped[str | None] = mapped_column(sa.String(64))
    digest: Mapped[str | None] = mapped_column(sa.String(64))
    has_image: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    restored_image_id: Mapped[str | None] = mapped_column(Uuid)
    restore_status: Mapped[str | None] = mapped_column(sa.String(16))
    restore_reason: Mapped[str | None] = mapped_column(sa.Text)
    disks: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))


class BackupRepository(Base):
    """Repository of a project's backups. ``is_made``: it has had a complete backup, so it is not made again.

    ``removals``: of data, since their room was freed.
    """

    __tablename__ = "backup_repositories"
    __table_args__ = {"sqlite_with_rowid": False}

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    is_made: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    removals: Mapped[int] = mapped_column(default=0, server_default="0")


class UsageAudit(Numbered, Base):
    """Audit of a period: ``instance.exists`` was sent for ``servers``, up to the row ``position`` of `Instance`."""

    __tablename__ = "usage_audits"
    __table_args__ = (sa.UniqueConstraint("beginning", "ending"),)

    beginning: Mapped[datetime.datetime] = mapped_column(Time)
    ending: Mapped[datetime.datetime] = mapped_column(Time)
    position: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    servers: Mapped[int] = mapped_column(default=0)
    finished_at: Mapped[datetime.datetime | None] = mapped_column(Time)


class InstanceActionEvent(Numbered, Base):
    """Event of an action that is older than `InstanceAction.events`. No new ones are written."""

    __tablename__ = "instance_action_events"

    action_id: Mapped[int] = mapped_column(sa.ForeignKey("instance_actions.id"), index=True)
    event: Mapped[str] = mapped_column(Name)
    start_time: Mapped[datetime.datetime] = mapped_column(Time)
    finish_time: Mapped[datetime.datetime | None] = mapped_column(Time)
    result: Mapped[str | None] = mapped_column(sa.String(16))
    traceback: Mapped[str | None] = mapped_column(LongText)
    host: Mapped[str | None] = mapped_column(Name)
    details: Mapped[str | None] = mapped_column(sa.Text)


# --- catalogue


class Flavor(Numbered, Changed, Base):
    __tablename__ = "flavors"

    flavorid: Mapped[str] = mapped_column(Name, unique=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    vcpus: Mapped[int]
    memory_mb: Mapped[int]
    root_gb: Mapped[int]
    ephemeral_gb: Mapped[int] = mapped_column(default=0)
    swap: Mapped[int] = mapped_column(default=0)
    rxtx_factor: Mapped[float] = mapped_column(default=1.0)
    is_public: Mapped[bool] = mapped_column(default=True)
    disabled: Mapped[bool] = mapped_column(default=False)
    description: Mapped[str | None] = mapped_column(sa.Text)
    extra_specs: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class FlavorAccess(Base):
    """Access of a project to a private flavor."""

    __tablename__ = "flavor_access"

    flavor_id: Mapped[int] = mapped_column(sa.ForeignKey("flavors.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, primary_key=True, index=True)


class KeyPair(Numbered, Created, Base):
    __tablename__ = "key_pairs"
    __table_args__ = (sa.UniqueConstraint("user_id", "name"), NEVER_AGAIN)

    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    type: Mapped[str] = mapped_column(sa.String(16), default="ssh")
    public_key: Mapped[str] = mapped_column(sa.Text)
    fingerprint: Mapped[str] = mapped_column(Name)


class Image(Changed, Base):
    """An image of the ``local`` backend; its bytes are the file ``<store_path>/<id>``."""

    __tablename__ = "images"
    __table_args__ = (
        sa.Index(None, "owner", "created_at", "id"),
        sa.Index(None, "visibility", "created_at", "id"),
        sa.Index(None, "created_at", "id"),
        sa.Index(None, "status", "updated_at"),
    )

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(Name, index=True)
    status: Mapped[str] = mapped_column(sa.String(16))
    disk_format: Mapped[str] = mapped_column(sa.String(16))
    container_format: Mapped[str] = mapped_column(sa.String(16))
    size: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    checksum: Mapped[str] = mapped_column(sa.String(128), default="")
    min_disk: Mapped[int] = mapped_column(default=0)
    min_ram: Mapped[int] = mapped_column(default=0)
    visibility: Mapped[str] = mapped_column(sa.String(16), default="public")
    owner: Mapped[str | None] = mapped_column(Name)
    properties: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    tags: Mapped[list[str] | None] = mapped_column(sa.JSON)
    md5: Mapped[str] = mapped_column(sa.String(32), default="", server_default=sa.text("''"))
    virtual_size: Mapped[int | None] = mapped_column(sa.BigInteger)
    protected: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    hidden: Mapped[bool] = mapped_column(default=False, server_default=sa.false())


class MetadefNamespace(Changed, Base):
    """A namespace of metadata definitions, with its parts by name."""

    __tablename__ = "metadef_namespaces"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    namespace: Mapped[str] = mapped_column(sa.String(80), unique=True)
    display_name: Mapped[str | None] = mapped_column(sa.String(80))
    description: Mapped[str | None] = mapped_column(sa.String(500))
    visibility: Mapped[str] = mapped_column(sa.String(16))
    protected: Mapped[bool] = mapped_column(default=False)
    owner: Mapped[str | None] = mapped_column(Name)
    objects: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    properties: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    tags: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    resource_types: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class ImageMember(Changed, Base):
    """A project that the owner of a shared image has shared it with."""

    __tablename__ = "image_members"

    image_id: Mapped[str] = mapped_column(sa.ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    member_id: Mapped[str] = mapped_column(Name, primary_key=True, index=True)
    status: Mapped[str] = mapped_column(sa.String(16))


class Network(Tagged, Changed, Base):
    """A network of the ``local`` backend. ``cidr``, ``start`` and ``end`` are empty as long as it has no subnet.

    ``needs_router``: for its way out. Networks of operators and of older versions (None) need none. ``pools``: None:
    one from ``start`` to ``end``. ``revised``: hosts have to learn of the settings of its subnet, since these have
    changed. ``subnet6``: see `nova_lite.objects.Network`. ``subnet_id`` and ``subnet6_id``: see
    `nova_lite.objects.ipv6.subnet_id_of`. ``parent_id``: network of which the row is a segment, for further subnets;
    None: it is a network itself. ``is_segmented``: it has segments. ``physical_network`` and ``vlan``: see
    `nova_lite.objects.Network`, and so is ``dns_domain``. ``service_types`` and ``service_types6``: see
    `nova_lite.objects.NetworkRecord`.
    """

    __tablename__ = "networks"
    __table_args__ = (sa.Index(None, "project_id", "id"), sa.Index(None, "subnet6_id", "cidr6"))

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(Name, index=True)
    description: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    subnet_name: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    subnet_description: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    cidr: Mapped[str] = mapped_column(sa.String(64), index=True)
    gateway: Mapped[str | None] = mapped_column(sa.String(45), index=True)
    dns: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    bridge: Mapped[str] = mapped_column(sa.String(15))
    mtu: Mapped[int] = mapped_column(default=1500)
    start: Mapped[str] = mapped_column(sa.String(45))
    end: Mapped[str] = mapped_column(sa.String(45))
    project_id: Mapped[str | None] = mapped_column(Name)
    is_default: Mapped[bool] = mapped_column(default=False)
    vni: Mapped[int | None] = mapped_column(unique=True, index=True)
    cidr6: Mapped[str] = mapped_column(sa.String(64), default="", server_default=sa.text("''"), index=True)
    subnet6: Mapped[Subnet6 | None] = mapped_column(Settings6)
    subnet_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    subnet6_id: Mapped[str | None] = mapped_column(Uuid)
    parent_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    is_segmented: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    needs_router: Mapped[bool | None] = mapped_column()
    subnet_tags: Mapped[list[str] | None] = mapped_column(sa.JSON)
    subnet_pool_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    subnet6_pool_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    admin_state_up: Mapped[bool] = mapped_column(default=True, server_default=sa.true())
    port_security_enabled: Mapped[bool] = mapped_column(default=True, server_default=sa.true())
    enable_dhcp: Mapped[bool] = mapped_column(default=True, server_default=sa.true())
    pools: Mapped[list[dict[str, str]] | None] = mapped_column(sa.JSON(none_as_null=True))
    host_routes: Mapped[list[dict[str, str]] | None] = mapped_column(sa.JSON(none_as_null=True))
    host_address: Mapped[str | None] = mapped_column(sa.String(45))
    service_types: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    service_types6: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    revised: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    physical_network: Mapped[str | None] = mapped_column(Name)
    vlan: Mapped[int | None] = mapped_column()
    qos_policy_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    dns_domain: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))

    @property
    def public_id(self) -> str:
        """Return the id of the network that users know."""
        return self.parent_id or self.id


class MemberVersion(Base):
    """Version of the members of a project's security groups. Each change of a member raises it."""

    __tablename__ = "member_versions"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    version: Mapped[int] = mapped_column(sa.BigInteger)


_PRESENT = sa.text("primary_id IS NOT NULL")


class Port(Tagged, Changed, Base):
    """An interface and its address on a network. ``state``: the change that its host is making
    (`nova_lite.objects.VIF`).

    ``project_id``: of a port that a user made, which outlives its instance; None: it comes and goes with its instance.
    ``security_groups``: names; None: those of its instance. ``address`` None: only of a user's port without a server.
    ``address_pairs``: objects with ``ip_address`` (or a range) and ``mac_address``, from which it may send, too.
    ``device_id`` and ``device_owner``: texts of the program whose port it is, "" for a port of a server or router.
    ``vnic_type``: see `nova_lite.objects.pci.PORT_DEVICES`. ``bound_host``: of a service's port, the host that has it.
    ``dns_name``, ``dns_domain`` and ``dhcp_options``: see `nova_lite.objects.Port`.
    ``primary_id``: the row is no port, but one further address of that port (`nova_lite.db.network.further_addresses`).
    """

    __tablename__ = "ports"
    __table_args__ = (
        sa.UniqueConstraint("network_id", "address"),
        sa.UniqueConstraint("mac_address"),
        sa.Index(None, "network_id", "address6", unique=True),
        sa.Index(None, "project_id", "id"),
        # Few rows have one. Statistics of an index with all NULLs would say that each of them has thousands.
        sa.Index(None, "primary_id", sqlite_where=_PRESENT, postgresql_where=_PRESENT),
    )

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    network_id: Mapped[str] = mapped_column(sa.ForeignKey("networks.id"))
    instance_uuid: Mapped[str | None] = mapped_column(sa.ForeignKey("instances.uuid"), index=True)
    project_id: Mapped[str | None] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    description: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    security_groups: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    position: Mapped[int] = mapped_column(default=0)
    mac_address: Mapped[str] = mapped_column(sa.String(17))
    address: Mapped[str | None] = mapped_column(sa.String(45), index=True)
    address6: Mapped[str | None] = mapped_column(sa.String(45))
    tag: Mapped[str | None] = mapped_column(sa.String(60))
    state: Mapped[str | None] = mapped_column(sa.String(16))
    admin_state_up: Mapped[bool] = mapped_column(default=True, server_default=sa.true())
    port_security_enabled: Mapped[bool] = mapped_column(default=True, server_default=sa.true())
    address_pairs: Mapped[list[dict[str, str]] | None] = mapped_column(sa.JSON(none_as_null=True))
    device_id: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"), index=True)
    device_owner: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    vnic_type: Mapped[str] = mapped_column(sa.String(16), default=NORMAL, server_default=sa.text("'normal'"))
    qos_policy_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    bound_host: Mapped[str | None] = mapped_column(Name, index=True)
    dns_name: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    dns_domain: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    dhcp_options: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    primary_id: Mapped[str | None] = mapped_column(sa.ForeignKey("ports.id", ondelete="CASCADE"))


class Router(Tagged, Changed, Base):
    """A project's router. ``pool_id``: external network of its gateway. ``routes``: objects with ``destination`` and
    ``nexthop``. ``routes6``: those of IPv6, which conductors of older versions do not read.
    """

    __tablename__ = "routers"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str] = mapped_column(Name, default="")
    pool_id: Mapped[str | None] = mapped_column(sa.ForeignKey("floating_ip_pools.id"), index=True)
    enable_snat: Mapped[bool] = mapped_column(default=True)
    routes: Mapped[list[dict[str, str]]] = mapped_column(sa.JSON, default=list)
    routes6: Mapped[list[dict[str, str]] | None] = mapped_column(sa.JSON(none_as_null=True))
    admin_state_up: Mapped[bool] = mapped_column(default=True, server_default=sa.true())


class RouterInterface(Base):
    """The port of a router on a network's IPv4 subnet. A network has at most one router, because hosts have one gateway
    for it.
    """

    __tablename__ = "router_interfaces"

    port_id: Mapped[str] = mapped_column(sa.ForeignKey("ports.id"), primary_key=True)
    router_id: Mapped[str] = mapped_column(sa.ForeignKey("routers.id"), index=True)
    network_id: Mapped[str] = mapped_column(sa.ForeignKey("networks.id"), unique=True)


class RouterInterface6(Base):
    """The port of a router on a network's IPv6 subnet."""

    __tablename__ = "router_interfaces6"
    __table_args__ = {"sqlite_with_rowid": False}

    port_id: Mapped[str] = mapped_column(sa.ForeignKey("ports.id"), primary_key=True)
    router_id: Mapped[str] = mapped_column(sa.ForeignKey("routers.id"), index=True)
    network_id: Mapped[str] = mapped_column(sa.ForeignKey("networks.id"), unique=True)


class FloatingIpPool(Created, Base):
    """A pool of floating addresses: an external network, of this id. ``project_id`` None: `nova-lite-manage` made it.

    ``cidr`` "": the network has no subnet yet. ``ranges``: addresses to allocate; None: all but the gateway.
    """

    __tablename__ = "floating_ip_pools"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    cidr: Mapped[str] = mapped_column(sa.String(64))
    project_id: Mapped[str | None] = mapped_column(Name)
    description: Mapped[str | None] = mapped_column(Name)
    subnet_name: Mapped[str | None] = mapped_column(Name)
    gateway: Mapped[str | None] = mapped_column(sa.String(45))
    ranges: Mapped[list[dict[str, str]] | None] = mapped_column(sa.JSON(none_as_null=True))
    subnet_id: Mapped[str | None] = mapped_column(Uuid)


class FloatingIp(Tagged, Changed, Base):
    """An address from a pool that a project has, and the port that it leads to. The address outlives the port.

    ``gateway_router_id``: the router that has the address itself, which is no floating address then.
    """

    __tablename__ = "floating_ips"
    __table_args__ = (sa.Index(None, "project_id", "id"),)

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    pool_id: Mapped[str] = mapped_column(sa.ForeignKey("floating_ip_pools.id"), index=True)
    address: Mapped[str] = mapped_column(sa.String(45), unique=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name, default="")
    port_id: Mapped[str | None] = mapped_column(sa.ForeignKey("ports.id", ondelete="SET NULL"), unique=True)
    description: Mapped[str | None] = mapped_column(Name)
    qos_policy_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    dns_name: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    dns_domain: Mapped[str] = mapped_column(Name, default="", server_default=sa.text("''"))
    gateway_router_id: Mapped[str | None] = mapped_column(Uuid, index=True)


class PortForwarding(Changed, Base):
    """Ports of a floating address that lead to a port (`nova_lite.objects.PortForwarding`), which takes them along."""

    __tablename__ = "port_forwardings"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    floating_ip_id: Mapped[str] = mapped_column(sa.ForeignKey("floating_ips.id"), index=True)
    port_id: Mapped[str] = mapped_column(sa.ForeignKey("ports.id", ondelete="CASCADE"), index=True)
    protocol: Mapped[str] = mapped_column(sa.String(16))
    external_first: Mapped[int]
    external_last: Mapped[int]
    internal_first: Mapped[int]
    internal_last: Mapped[int]
    description: Mapped[str] = mapped_column(Name)


class Trunk(Tagged, Changed, Base):
    """A trunk: its server reaches the networks of the subports by VLANs on the parent port."""

    __tablename__ = "trunks"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    port_id: Mapped[str] = mapped_column(sa.ForeignKey("ports.id"), unique=True)
    name: Mapped[str] = mapped_column(Name)
    description: Mapped[str] = mapped_column(Name)
    admin_state_up: Mapped[bool]


class TrunkSubport(Base):
    """A subport of a trunk. ``state``: what the host of the trunk's server has reported (`nova_lite.network.trunks`).
    ``arriving_host``: host to which the server is moving, which has the subport already.
    """

    __tablename__ = "trunk_subports"
    __table_args__ = (sa.UniqueConstraint("trunk_id", "segmentation_id"),)

    port_id: Mapped[str] = mapped_column(sa.ForeignKey("ports.id"), primary_key=True)
    trunk_id: Mapped[str] = mapped_column(sa.ForeignKey("trunks.id"))
    segmentation_id: Mapped[int]
    state: Mapped[str] = mapped_column(sa.String(16))
    arriving_host: Mapped[str | None] = mapped_column(Name, index=True)


class SecurityGroup(Tagged, Changed, Base):
    """A project's group of rules. Instances name their groups in ``Instance.security_groups``. The group ``default``
    has no row until a user changes it (`nova_lite.objects.security_group.default_group`). ``stateful``: see
    `nova_lite.objects.SecurityGroup`.
    """

    __tablename__ = "security_groups"
    __table_args__ = (sa.UniqueConstraint("project_id", "name"), sa.Index(None, "project_id", "id"))

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name, default="")
    name: Mapped[str] = mapped_column(Name)
    description: Mapped[str | None] = mapped_column(Name)
    stateful: Mapped[bool] = mapped_column(default=True, server_default=sa.true())


class SecurityGroupRule(Tagged, Created, Base):
    """A rule of a security group (`nova_lite.objects.SecurityGroupRule`)."""

    __tablename__ = "security_group_rules"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    security_group_id: Mapped[str] = mapped_column(sa.ForeignKey("security_groups.id"), index=True)
    direction: Mapped[str] = mapped_column(sa.String(16))
    ethertype: Mapped[str] = mapped_column(sa.String(16))
    protocol: Mapped[str | None] = mapped_column(sa.String(16))
    port_range_min: Mapped[int | None]
    port_range_max: Mapped[int | None]
    remote_ip_prefix: Mapped[str | None] = mapped_column(sa.String(64))
    remote_group_id: Mapped[str | None] = mapped_column(sa.ForeignKey("security_groups.id"), index=True)
    remote_address_group_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    description: Mapped[str | None] = mapped_column(Name)


class AddressScope(Changed, Base):
    __tablename__ = "address_scopes"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    ip_version: Mapped[int]


class SubnetPool(Tagged, Changed, Base):
    """Prefixes for subnets (`nova_lite.objects.SubnetPool`). At most one of an IP version is the default."""

    __tablename__ = "subnet_pools"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str] = mapped_column(Name, default="")
    prefixes: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    ip_version: Mapped[int]
    min_prefixlen: Mapped[int]
    max_prefixlen: Mapped[int]
    default_prefixlen: Mapped[int]
    default_quota: Mapped[int | None]
    is_default: Mapped[bool] = mapped_column(default=False)
    address_scope_id: Mapped[str | None] = mapped_column(sa.ForeignKey("address_scopes.id"), index=True)


class AddressGroup(Changed, Base):
    __tablename__ = "address_groups"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str] = mapped_column(Name, default="")
    addresses: Mapped[list[str]] = mapped_column(sa.JSON, default=list)


class DnsZone(Changed, Base):
    """Zone of the DNS service (`nova_lite.dns.objects.Zone`)."""

    __tablename__ = "dns_zones"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    email: Mapped[str] = mapped_column(Name)
    ttl: Mapped[int]
    description: Mapped[str | None] = mapped_column(Name)
    serial: Mapped[int] = mapped_column(sa.BigInteger)
    version: Mapped[int]
    status: Mapped[str] = mapped_column(sa.String(16))
    action: Mapped[str] = mapped_column(sa.String(16), index=True)


class DnsRecordSet(Changed, Base):
    """Record set of the DNS service (`nova_lite.dns.objects.RecordSet`). ``action`` NONE: the name server has it."""

    __tablename__ = "dns_recordsets"
    __table_args__ = (sa.UniqueConstraint("zone_id", "name", "type"),)

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    zone_id: Mapped[str | None] = mapped_column(sa.ForeignKey("dns_zones.id"))
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name)
    type: Mapped[str] = mapped_column(sa.String(16))
    ttl: Mapped[int | None]
    records: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    description: Mapped[str | None] = mapped_column(Name)
    managed: Mapped[bool] = mapped_column(default=False)
    version: Mapped[int]
    status: Mapped[str] = mapped_column(sa.String(16))
    action: Mapped[str] = mapped_column(sa.String(16), index=True)


class QosPolicy(Tagged, Changed, Base):
    """QoS policy with its rules (`nova_lite.objects.QosPolicy`). ``default_of``: project of which it is the default."""

    __tablename__ = "qos_policies"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str] = mapped_column(Name, default="")
    rules: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON, default=list)
    default_of: Mapped[str | None] = mapped_column(Name, unique=True)


class LoadBalancer(Changed, Base):
    """A load balancer (`nova_lite.load_balancer`), which is the document ``tree`` with all its parts.

    ``host`` has its address, and ``standby_host`` takes over. ``former_host`` may still have the address: until it has
    released it, or its lease is over, no other host gets it. ``changed_at``: when the newest change was accepted.
    """

    __tablename__ = "load_balancers"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    vip_port_id: Mapped[str] = mapped_column(Uuid)
    provisioning_status: Mapped[str] = mapped_column(sa.String(16), index=True)
    host: Mapped[str | None] = mapped_column(Name, index=True)
    standby_host: Mapped[str | None] = mapped_column(Name, index=True)
    former_host: Mapped[str | None] = mapped_column(Name, index=True)
    changed_at: Mapped[datetime.datetime] = mapped_column(Time)
    tree: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    counters: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class LoadBalancerPart(Base):
    """Finds the load balancer of a listener, pool, member or health monitor."""

    __tablename__ = "load_balancer_parts"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    load_balancer_id: Mapped[str] = mapped_column(sa.ForeignKey("load_balancers.id"), index=True)


class LoadBalancerHost(Base):
    """Host that may run load balancers. ``seen_at``: its last report, which began its lease. ``problem``: why it runs
    none. ``number``: of the newest report of the daemon that was started as ``boot_id``.
    """

    __tablename__ = "load_balancer_hosts"

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    seen_at: Mapped[datetime.datetime] = mapped_column(Time)
    problem: Mapped[str] = mapped_column(LongText, default="")
    boot_id: Mapped[str] = mapped_column(Uuid, default="")
    number: Mapped[int] = mapped_column(sa.BigInteger, default=0)


class Secret(Changed, Base):
    """A secret of a project, a container of secrets, or the copy that a listener has of its certificates (``kind``).

    ``payload``: encrypted by the key of this id among the volume keys; None without any.
    """

    __tablename__ = "secrets"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    kind: Mapped[str] = mapped_column(sa.String(16))
    document: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    payload: Mapped[str | None] = mapped_column(LongText)


class RbacPolicy(Changed, Base):
    """Policy that lets projects use another project's resource (`nova_lite.objects.RbacPolicy`)."""

    __tablename__ = "rbac_policies"
    __table_args__ = (
        sa.UniqueConstraint("object_type", "object_id", "target", "action"),
        sa.Index(None, "target", "object_type"),
    )

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    object_type: Mapped[str] = mapped_column(sa.String(32))
    object_id: Mapped[str] = mapped_column(Uuid)
    target: Mapped[str] = mapped_column(Name)
    action: Mapped[str] = mapped_column(sa.String(32))


# --- volumes


class Volume(Changed, Base):
    """A volume of the built-in backend; its bytes are a file of ``[volume] store_path``, which hosts create.

    ``instance_uuid``: the one server that has it, or is to have it. Only a conditional update sets it, from none.
    ``attachment``: made by the volume API; no host knows it. Both are None if several servers may have the volume
    (``multiattach``). Then each one has a `VolumeAttachment`. ``read_only``: servers may only read it.
    """

    __tablename__ = "volumes"
    __table_args__ = (sa.Index(None, "project_id", "created_at"), sa.Index(None, "created_at", "id"))

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name, default="")
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str | None] = mapped_column(Name)
    size: Mapped[int]
    status: Mapped[str] = mapped_column(sa.String(32))
    availability_zone: Mapped[str] = mapped_column(Name, default="")
    volume_type: Mapped[str] = mapped_column(Name, default="")
    bootable: Mapped[bool] = mapped_column(default=False)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON, default=dict)
    image: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    snapshot_id: Mapped[str | None] = mapped_column(Uuid)
    source_volid: Mapped[str | None] = mapped_column(Uuid)
    instance_uuid: Mapped[str | None] = mapped_column(Uuid, index=True)
    attachment_id: Mapped[str | None] = mapped_column(Uuid)
    device: Mapped[str | None] = mapped_column(sa.String(64))
    attached_at: Mapped[datetime.datetime | None] = mapped_column(Time)
    image_metadata: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    attachment: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    encryption_key_id: Mapped[str | None] = mapped_column(Uuid)
    multiattach: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    read_only: Mapped[bool] = mapped_column(default=False, server_default=sa.false())


class VolumeAttachment(Base):
    """A server or another client that has a volume with ``multiattach``.

    ``status``: reserved, attaching, attached or detaching. ``recorded``: made by the volume API; no host knows it.
    Changes hold the lock of the volume's row.
    """

    __tablename__ = "volume_attachments"
    __table_args__ = (sa.UniqueConstraint("volume_id", "instance_uuid"),)

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    volume_id: Mapped[str] = mapped_column(Uuid)
    instance_uuid: Mapped[str | None] = mapped_column(Uuid, index=True)
    recorded: Mapped[bool] = mapped_column(default=False)
    status: Mapped[str] = mapped_column(sa.String(32))
    mode: Mapped[str] = mapped_column(sa.String(2), default="rw")
    device: Mapped[str | None] = mapped_column(sa.String(64))
    host: Mapped[str | None] = mapped_column(Name)
    attached_at: Mapped[datetime.datetime | None] = mapped_column(Time)


class VolumeKey(Created, Base):
    """The key of one encrypted volume or backup, wrapped by the master key ``master_key``.

    The other columns describe the cipher, as the type of the volume had it when the key was made.
    """

    __tablename__ = "volume_keys"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    master_key: Mapped[str] = mapped_column(sa.String(32))
    wrapped: Mapped[str] = mapped_column(Name)
    provider: Mapped[str] = mapped_column(Name)
    cipher: Mapped[str] = mapped_column(Name)
    key_size: Mapped[int]
    control_location: Mapped[str] = mapped_column(sa.String(32))


class VolumeSnapshot(Changed, Base):
    """A copy of a volume at one moment; its bytes are a file of ``[volume] store_path``. ``instance_uuid``: the server
    whose image needs it.
    """

    __tablename__ = "volume_snapshots"
    __table_args__ = (sa.Index(None, "project_id", "created_at"), sa.Index(None, "created_at", "id"))

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    volume_id: Mapped[str] = mapped_column(Uuid, index=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name, default="")
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str | None] = mapped_column(Name)
    size: Mapped[int]
    status: Mapped[str] = mapped_column(sa.String(32))
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON, default=dict)
    image: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    instance_uuid: Mapped[str | None] = mapped_column(Uuid, index=True)
    progress: Mapped[str | None] = mapped_column(sa.String(8))


class VolumeBackup(Changed, Base):
    """A copy of a volume; its bytes are the file ``data_id`` of ``[volume] backup_path``. ``volume``: the volume as it
    was. ``volume_id``: its id, even when it is gone.
    """

    __tablename__ = "volume_backups"
    __table_args__ = (sa.Index(None, "project_id", "created_at"), sa.Index(None, "created_at", "id"))

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    data_id: Mapped[str] = mapped_column(Uuid, index=True)
    volume_id: Mapped[str] = mapped_column(Uuid)
    snapshot_id: Mapped[str | None] = mapped_column(Uuid)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name, default="")
    name: Mapped[str] = mapped_column(Name, default="")
    description: Mapped[str | None] = mapped_column(Name)
    size: Mapped[int]
    status: Mapped[str] = mapped_column(sa.String(32))
    fail_reason: Mapped[str | None] = mapped_column(sa.Text)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON, default=dict)
    volume: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    data_timestamp: Mapped[datetime.datetime | None] = mapped_column(Time)
    encryption_key_id: Mapped[str | None] = mapped_column(Uuid)


class VolumeTask(Numbered, Base):
    """The action log of volumes: accepted work on a file. Its host does it while that is up; when the lease lapses it
    is sent again. ``reads``: the volume or snapshot that is read meanwhile and must not change.
    """

    __tablename__ = "volume_tasks"
    __table_args__ = NEVER_AGAIN

    verb: Mapped[str] = mapped_column(sa.String(32))
    volume_id: Mapped[str] = mapped_column(Uuid, index=True)
    reads: Mapped[str | None] = mapped_column(Uuid, index=True)
    payload: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    host: Mapped[str | None] = mapped_column(Name)
    request_id: Mapped[str] = mapped_column(Name)
    lease_expires_at: Mapped[datetime.datetime] = mapped_column(Time, index=True)
    deadline: Mapped[datetime.datetime] = mapped_column(Time)


class CinderAttachment(Base):
    """A Cinder volume of an instance. The row goes when Cinder holds nothing of it any more.

    ``id``: of the block device. ``attachments``: by host, with "" for a mere reservation, Cinder's attachment id and
    whether it is complete. ``to_be_made``: Cinder still has to create the volume. Work is due at ``due_at`` (None:
    nothing to do), and leased meanwhile. ``unsure_until``: until then an unanswered request may still take effect.
    ``shared_volume_id`` takes the place of ``volume_id``, which one instance has, if several may have the volume.
    """

    __tablename__ = "cinder_attachments"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    instance_uuid: Mapped[str] = mapped_column(Uuid, index=True)
    volume_id: Mapped[str | None] = mapped_column(Uuid, unique=True)
    shared_volume_id: Mapped[str | None] = mapped_column(Uuid, index=True)
    wanted: Mapped[bool] = mapped_column(default=True)
    to_be_made: Mapped[bool] = mapped_column(default=False)
    delete_volume: Mapped[bool] = mapped_column(default=False)
    attachments: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    error: Mapped[str | None] = mapped_column(sa.String(1024))
    lease_owner: Mapped[str | None] = mapped_column(Uuid)
    due_at: Mapped[datetime.datetime | None] = mapped_column(Time, index=True)
    unsure_until: Mapped[datetime.datetime | None] = mapped_column(Time)
    deadline: Mapped[datetime.datetime] = mapped_column(Time)


class VolumeType(Created, Base):
    """A type of volumes that an admin has made. ``projects``: the ids of projects that may use a private type."""

    __tablename__ = "volume_types"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    description: Mapped[str | None] = mapped_column(Name)
    is_public: Mapped[bool] = mapped_column(default=True)
    extra_specs: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)
    projects: Mapped[list[str]] = mapped_column(sa.JSON, default=list)
    qos_specs_id: Mapped[str | None] = mapped_column(Uuid)
    encryption: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


class VolumeQosSpecs(Created, Base):
    """Quality of service that types of volumes may have."""

    __tablename__ = "volume_qos_specs"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    consumer: Mapped[str] = mapped_column(sa.String(16))
    specs: Mapped[dict[str, Any]] = mapped_column(sa.JSON, default=dict)


class VolumeDefaultType(Base):
    """The type of a project's new volumes that name none."""

    __tablename__ = "volume_default_types"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    type_id: Mapped[str] = mapped_column(Uuid)


class VolumeTransfer(Created, Base):
    """Offer of a volume to whoever has its key. ``project_id``: of the volume."""

    __tablename__ = "volume_transfers"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    volume_id: Mapped[str] = mapped_column(sa.ForeignKey("volumes.id", ondelete="CASCADE"), unique=True, index=True)
    project_id: Mapped[str] = mapped_column(Name, index=True)
    name: Mapped[str] = mapped_column(Name, default="")
    salt: Mapped[str] = mapped_column(sa.String(64))
    digest: Mapped[str] = mapped_column(sa.String(64))


# --- quota


class VolumeQuotaLimit(Base):
    """A project's own limit of the volume service; -1 is unlimited. The project "": of all that have no own limit."""

    __tablename__ = "volume_quota_limits"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    resource: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    limit: Mapped[int] = mapped_column("hard_limit")


class QuotaUsage(Base):
    """A project's usage of a resource. Conditional updates change it, in the transaction that starts or ends the
    usage."""

    __tablename__ = "quota_usages"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    resource: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    used: Mapped[int] = mapped_column(default=0)


class QuotaLimit(Base):
    """A project's own limit of a resource; -1 is unlimited. Rows of the project "" are defaults that replace
    ``[quota]``.
    """

    __tablename__ = "quota_limits"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    resource: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    limit: Mapped[int] = mapped_column("hard_limit")


class UserQuotaLimit(Base):
    """A user's own limit within a project. It has no counter (see `quota_counts`)."""

    __tablename__ = "user_quota_limits"

    project_id: Mapped[str] = mapped_column(Name, primary_key=True)
    user_id: Mapped[str] = mapped_column(Name, primary_key=True)
    resource: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    limit: Mapped[int] = mapped_column("hard_limit")


# --- identity


class IdentityVersion(Base):
    """The only row has the version of the last change of `IdentityRecord` rows, and the key to which the API seals
    changes.
    """

    __tablename__ = "identity_versions"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(sa.BigInteger)
    private_key: Mapped[str] = mapped_column(sa.String(64), default="", server_default=sa.text("''"))


class IdentityRecord(Numbered, Base):
    """User, project, or another record of the identity service: its fields are in ``data``, and the API checks them.

    ``version``: of the last change. ``data`` is None for a deleted record, which readers still have to forget.
    """

    __tablename__ = "identity_records"
    __table_args__ = (sa.UniqueConstraint("kind", "key"),)

    kind: Mapped[str] = mapped_column(sa.String(64))
    key: Mapped[str] = mapped_column(Name)
    version: Mapped[int] = mapped_column(sa.BigInteger, index=True)
    data: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


# --- audit log


class AuditEvent(Numbered, Base):
    """Event of the audit log (`nova_lite.objects.AuditEvent`). Each filter of lists has an index in their order."""

    __tablename__ = "audit_events"
    __table_args__ = (
        sa.Index(None, "event_time", "id"),
        sa.Index(None, "target_id", "event_time", "id"),
        sa.Index(None, "user_id", "event_time", "id"),
        sa.Index(None, "project_id", "event_time", "id"),
        sa.Index(None, "action", "event_time", "id"),
        sa.Index(None, "outcome", "event_time", "id"),
    )

    uuid: Mapped[str] = mapped_column(Uuid, unique=True)
    event_time: Mapped[datetime.datetime] = mapped_column(Time)
    service: Mapped[str] = mapped_column(sa.String(16))
    action: Mapped[str] = mapped_column(sa.String(64))
    outcome: Mapped[str] = mapped_column(sa.String(16))
    reason_code: Mapped[int] = mapped_column(default=0)
    request_id: Mapped[str] = mapped_column(sa.String(64), default="")
    user_id: Mapped[str] = mapped_column(Name, default="")
    project_id: Mapped[str] = mapped_column(Name, default="")
    credential: Mapped[str] = mapped_column(Name, default="")
    address: Mapped[str] = mapped_column(sa.String(64), default="")
    agent: Mapped[str] = mapped_column(Name, default="")
    target_type: Mapped[str] = mapped_column(Name, default="")
    target_id: Mapped[str] = mapped_column(Name, default="")
    path: Mapped[str] = mapped_column(sa.String(512), default="")
    observer: Mapped[str] = mapped_column(Name, default="")
    count: Mapped[int] = mapped_column(default=1)
