"""``[DEFAULT]`` and ``[compute]``: the compute daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

DEFAULT_OPTS = [
    cfg.StrOpt("compute_driver", default="libvirt", help="Entry point in nova_lite.virt.drivers: libvirt or fake."),
    cfg.BoolOpt(
        "resume_guests_state_on_host_boot",
        default=False,
        help="After the machine has booted, start the guests that were running before. Otherwise their servers are "
        "SHUTOFF then.",
    ),
    cfg.ListOpt(
        "compute_monitors",
        item_type=types.String(choices=["cpu.virt_driver"]),
        default=[],
        help="What hosts measure for MetricsFilter and MetricsWeigher: cpu.virt_driver, or nothing.",
    ),
    cfg.StrOpt("instances_path", help="Directory of instances' disks; <state_path>/instances by default."),
    cfg.FloatOpt("cpu_allocation_ratio", default=4.0, min=0.1, help="vCPUs given out per CPU of the host."),
    cfg.FloatOpt("ram_allocation_ratio", default=1.0, min=0.1, help="Memory given out per memory of the host."),
    cfg.FloatOpt("disk_allocation_ratio", default=1.0, min=0.1, help="Disk given out per disk of the host."),
    cfg.IntOpt("reserved_host_cpus", default=0, min=0, help="CPUs kept back for the host itself."),
    cfg.IntOpt("reserved_host_memory_mb", default=512, min=0, help="Memory kept back for the host itself."),
    cfg.IntOpt("reserved_host_disk_mb", default=0, min=0, help="Disk kept back for the host itself."),
]

OPTS = [
    cfg.IntOpt("max_concurrent_builds", default=10, min=1, help="Builds that a host works at, at the same time."),
    cfg.IntOpt(
        "max_concurrent_snapshots",
        default=5,
        min=1,
        help="Images of servers that a host makes and uploads at the same time; others wait.",
    ),
    cfg.IntOpt(
        "reconcile_interval",
        default=30,
        min=1,
        help="Seconds between two comparisons of the hypervisor's domains with the database.",
    ),
    cfg.IntOpt(
        "hypervisor_timeout",
        default=60,
        min=1,
        help="Seconds, besides report_interval, for which a hypervisor may leave a question unanswered. After that the "
        "host counts as down, and builds that have made no domain go to other hosts, until it answers again.",
    ),
    cfg.IntOpt("shutdown_timeout", default=60, min=0, help="Seconds a guest gets to shut down on stop and reboot."),
    cfg.IntOpt("report_retry_seconds", default=2, min=1, help="Seconds between attempts to report a result."),
    cfg.IntOpt(
        "graceful_stop_timeout",
        default=25,
        min=0,
        help="Seconds that builds and actions in progress get to finish when the daemon is stopped. Shorter than "
        "[conductor] lease_seconds: no heartbeat is sent meanwhile. What is left is taken up again after the start.",
    ),
    cfg.StrOpt("default_availability_zone", default="nova", help="Availability zone of hosts in no other."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="compute")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "compute": OPTS}
