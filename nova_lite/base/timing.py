"""Times that no option sets: intervals, deadlines, and batch windows of all daemons.

Each room has a section. An object takes the section of its room as an argument, whose default are these values. So a
test makes the object with a section of its own, and no test patches a constant. A time that an operator may change is
an option (`nova_lite.conf`).
"""

from __future__ import annotations

import dataclasses

from nova_lite.base.batching import OVERLAP_AFTER_WRITE, BatchLimits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiTiming:
    """Times of the API daemon, in seconds."""

    create_batches: BatchLimits = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE, regroup_delay=0.04)
    delete_batches: BatchLimits = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE, regroup_delay=0.04)
    #: A client that reads one server after the other sends its next request within `regroup_delay`.
    read_batches: BatchLimits = BatchLimits(regroup_delay=0.006)
    list_batches: BatchLimits = BatchLimits(regroup_delay=0.006, max_in_flight=1)
    #: Time for which a change of an interface or a volume waits for an earlier one, and the interval between attempts.
    device_wait: float = 30.0
    device_poll: float = 0.3
    #: Age from which users, roles and revoked tokens are read again before a request is authenticated by them.
    identity_max_age: float = 1.0
    #: Time that an event of the audit log waits for others, and the interval between attempts to send them.
    audit_delay: float = 1.0
    audit_retry: float = 3.0
    #: Time that a stopping daemon takes at most to send its last events.
    audit_last_attempt: float = 3.0
    #: Times between two checks of the token of a page's stream, and between two signs of life.
    stream_check: float = 5.0
    stream_alive: float = 20.0
    #: CPU time after which a request is ended. Requests take milliseconds.
    request_cpu: float = 15.0
    #: CPU time of a worker in which its main loop has not turned, after which the worker is replaced.
    worker_cpu: float = 10.0
    #: Time that a stopping daemon waits at most for the next check of each load balancer, which checks every 2 s and
    #: waits 2 s for the response; time after the last of these; and age from which a balancer checks no more.
    drain: float = 5.0
    drain_end: float = 0.5
    check_age: float = 10.0
    #: Time in which the data of an image have to arrive, however many they are.
    upload: float = 6 * 3600.0
    #: Interval between two questions to the conductor about changes, while a process has streams of pages.
    stream_interval: float = 1.0
    #: Time for which a worker caches flavors, and so sees a change through another worker late. 0: no cache.
    flavor_cache: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConductorTiming:
    """Times of the conductor, in seconds."""

    #: Creates of one transaction, and how long they wait for each other.
    create_batches: BatchLimits = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE)
    #: Requests to schedule builds. A lone build costs several times its share of a batch, so requests that arrive in
    #: quick succession wait for more of them. A lone request does not wait.
    build_batches: BatchLimits = BatchLimits(overlap_after=0.25, max_delay=0.25, quiet_period=0.05)
    #: A heartbeat that may wait does so for half a second, since hosts send them at random times.
    heartbeat_batches: BatchLimits = BatchLimits(max_delay=0.5, max_batch=64, max_in_flight=None)
    #: Time after which a heartbeat is written in full at the latest. This updates what rows derive from anything but
    #: reports, for example from a configuration default. The time is random for each host, since all hosts are written
    #: in full when a conductor starts.
    full_report_interval: float = 3600.0
    filter_query_batches: BatchLimits = BatchLimits(max_delay=0.1, max_batch=32, max_in_flight=None, quiet_period=0.05)
    #: Time limit of a call of a fence agent, time until a host's power has to be off, and the interval between two
    #: looks at it.
    fence_call: float = 10.0
    fence_wait: float = 20.0
    fence_poll: float = 1.0
    #: Interval between two attempts to switch a host off, and between two tests of all fence methods.
    fence_retry: float = 30.0
    fence_test_interval: float = 300.0
    #: Time for which the publication of changed hosts waits for further changes.
    publish_interval: float = 0.1
    #: Time after which freed capacity is published at the latest.
    publish_freed_delay: float = 10.0
    #: Time that a host's request waits while a volume's row is leased, and the interval between two attempts.
    volume_lease_wait: float = 3.0
    volume_lease_poll: float = 0.1
    #: Intervals between two looks for old backups of servers, and at the protection of servers for metrics.
    backup_retention_interval: float = 600.0
    backup_status_interval: float = 60.0
    #: Shortest interval between two removals of data from repositories that no backup has any more.
    backup_prune_interval: float = 6 * 3600.0
    #: Interval between two looks for notifications that another conductor has written, and between two removals of old
    #: ones.
    notification_poll: float = 5.0
    notification_trim_interval: float = 60.0
    #: Times after which a failed delivery is repeated: first, second, and so on. The last one repeats.
    notification_backoff: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 60.0, 120.0)
    #: Time limit of a connection to a webhook, and of each read and write on it.
    webhook_timeout: float = 10.0
    #: Time after which a notification that could not be delivered is dropped.
    notification_age: float = 86400.0
    #: Largest number of due actions, volumes and servers that one look of a sweep takes.
    reconcile_batch: int = 32
    #: Interval between two purges, and the number of servers, actions or migrations that one transaction purges.
    purge_interval: float = 3600.0
    purge_batch: int = 100
    #: Most servers of a host with a problem that move at a time.
    health_moves: int = 2
    #: Days after which records of failed backups are deleted.
    failed_backup_days: int = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeTiming:
    """Times of a compute host, in seconds."""

    #: Time that `fence_instance` waits for running work on the instance to end. Shorter than the caller's RPC timeout.
    fence_wait: float = 20.0
    #: Interval between two checks of a snapshot that waits for a slot.
    snapshot_slot_poll: float = 0.5
    #: Interval between two reports of a live migration that waits for others to end.
    live_migration_slot_poll: float = 1.0
    #: Interval between two queries whether all ports of a new guest are active.
    plugging_poll: float = 1.0
    #: Time within which a guest is off after an incident that turns it off.
    incident_wait: float = 20.0
    #: Time for which the key of an encrypted volume is requested while no conductor replies.
    volume_key_wait: float = 120.0
    #: Age up to which counters of guests are served again. It is at least four times what their reading took.
    statistics_lifetime: float = 5.0
    #: Time that a scrape waits for new counters, before it serves the last ones, and age at which they are left out. It
    #: is at least three times their lifetime.
    statistics_wait: float = 3.0
    statistics_max_age: float = 60.0
    #: Interval between two queries whether the conductor needs the load of this host, while it needs none.
    load_ask_interval: float = 600.0
    #: Time after which the load is reported again if the conductor did not reply.
    load_retry_interval: float = 30.0
    #: Time after which a network without guests is removed from the host, with its bridge and DHCP server.
    network_age: float = 600.0
    #: Time that a new guard has for its first reply, and the interval between two requests.
    guard_start_wait: float = 10.0
    guard_start_poll: float = 0.1
    #: Interval between two starts of a guard that does not reply.
    guard_start_again: float = 2.0
    #: Time that the guard may take for a reply: it may be killing guests.
    guard_reply_timeout: float = 5.0
    #: Time that a stopping daemon waits for the conductor to know that its guests continue.
    release_timeout: float = 5.0
    #: Interval between two attempts to report a result.
    report_retry: float = 2.0
    #: Time that a stopping daemon waits for its builds and actions. It sends no heartbeat meanwhile, so the time is
    #: shorter than `[conductor] lease_seconds`. The rest continues after the next start.
    stop_wait: float = 25.0
    #: Time without a sign after which a problem of the machine is over.
    health_clear_after: float = 900.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LibvirtTiming:
    """Times of the libvirt driver, in seconds."""

    #: A libvirtd that is silent for the product of both counts as gone. Then all pending calls end with an error.
    keepalive_interval: int = 5
    keepalive_count: int = 6
    #: Time after a break for which callers wait for a new connection, since libvirtd may be restarting, and the
    #: interval between two attempts.
    reconnect_wait: float = 10.0
    reconnect_pause: float = 0.2
    #: Time that an inventory waits for the list of domains.
    list_wait: float = 2.0
    #: Pause between two attempts to fetch a file from another host.
    transfer_pause: float = 2.0
    #: Time for which a chosen port of a serial console is reserved, until its guest listens there.
    console_port_reservation: float = 300.0
    #: Interval between two looks at a guest that shuts down.
    shutdown_poll: float = 0.2
    #: Time to wait for the locks that a lost host has on disks, and the interval between two looks. A server of NFS 4
    #: drops them after its lease, mostly 90 s.
    disk_lock_wait: float = 120.0
    disk_lock_poll: float = 1.0
    #: Interval between two requests to a guest to release a device. It ignores them while it boots.
    ask_again: float = 5.0
    #: Time without data after which a connection that fetches disks is replaced.
    transfer_silence: int = 60
    #: Time in which the tiny guest of ``virt_type = auto`` has to run under KVM.
    kvm_probe: float = 2.0
    #: Time in which a started domain has to run.
    start_wait: int = 60
    #: CPU time that qemu-img may use to inspect an image, which may be malicious.
    image_check_cpu: int = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class QemuTiming:
    """Times of the driver of qemu without libvirt, in seconds."""

    #: Time limits of a reply of qemu, of its first reply, and of its end; and the interval between two looks at it.
    reply: float = 10.0
    start: float = 60.0
    end: float = 15.0
    poll: float = 0.2
    #: Time in which a guest's memory has to be restored.
    memory: float = 600.0
    #: Intervals between two requests to a guest to shut down, and to release a device. It ignores them while it boots.
    press_again: float = 10.0
    ask_again: float = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientTiming:
    """Times of the clients of other services, in seconds."""

    #: Part of the time limit of a call of Neutron that remains for its caller, to store the result.
    neutron_margin: float = 2.0
    #: Pause before the first repetition of a failed download from Glance. It doubles with each repetition.
    glance_retry_pause: float = 1.0
    #: Time to wait until no program has an image of Ceph open, and the interval between two looks. Ceph forgets a
    #: program that was killed after 30 s.
    rbd_watch_wait: float = 40.0
    rbd_watch_poll: float = 1.0
    #: Time that a connection to a directory, each response on it, and a request to an identity provider may take.
    identity_timeout: float = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class VolumeTiming:
    """Times of volumes, in seconds."""

    #: Time after which unfinished work on a volume's file fails.
    task: float = 3600.0
    #: Time that an attach to a running server waits for Cinder.
    connect: float = 300.0
    #: Time in which a running guest has to release a volume.
    detach: int = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaemonTiming:
    """Times of every daemon, in seconds."""

    #: Interval between two attempts to start while the broker, the database or the hypervisor is unreachable.
    start_retry: float = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatabaseTiming:
    """Times of database connections, in seconds."""

    #: Time for which a transaction waits for a lock before it fails.
    lock_wait: int = 20

    #: A connection that was idle for this time is pinged before use.
    idle_before_ping: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthTiming:
    """Times of a daemon's health endpoint, in seconds."""

    check_timeout: float = 3.0
    #: Time for which the result of a check is cached, however often it is requested.
    result_lifetime: float = 1.0
    #: Time without a turn of the daemon's main loop after which it counts as dead. The loop turns every second.
    max_loop_pause: float = 30.0
    #: Time that a connection to the endpoint may last.
    max_connection: float = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManageTiming:
    """Times of ``nova-lite-manage``, in seconds."""

    #: Interval between two reads of a moving server, and between two lines about its progress.
    move_poll: float = 1.0
    move_progress: float = 10.0
    #: Time that the removal of a host waits for the registrar, and the interval between two looks.
    removal_wait: float = 30.0
    removal_poll: float = 0.3
    #: Time after which no conductor believes a revoked key any more (`nova_lite.rpc.keys.LOOK_INTERVAL`), so that no
    #: heartbeat makes the service of a removed host again.
    last_report: float = 1.5
    #: Interval between two looks at the daemons of a host that is being upgraded.
    upgrade_poll: float = 1.0
    #: Interval between two looks at hosts that are to suspend their promises.
    suspend_poll: float = 1.0
    #: Time after the first break of a download. It doubles with each further one.
    fetch_wait: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """The times of all rooms."""

    api: ApiTiming = ApiTiming()
    conductor: ConductorTiming = ConductorTiming()
    compute: ComputeTiming = ComputeTiming()
    libvirt: LibvirtTiming = LibvirtTiming()
    qemu: QemuTiming = QemuTiming()
    clients: ClientTiming = ClientTiming()
    volumes: VolumeTiming = VolumeTiming()
    daemon: DaemonTiming = DaemonTiming()
    database: DatabaseTiming = DatabaseTiming()
    health: HealthTiming = HealthTiming()
    manage: ManageTiming = ManageTiming()


#: The times of the daemons. Tests replace single values with `dataclasses.replace`, or make a section of their own.
TIMING = Timing()
