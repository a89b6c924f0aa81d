"""``[DEFAULT]`` and ``[compute]``: the compute daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

from nova_lite.base.cpu_sets import CpuSet

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
    cfg.ListOpt(
        "custom_traits",
        item_type=types.String(regex=r"^CUSTOM_[A-Z0-9_]{1,248}$"),
        default=[],
        help="Traits of this host beside those that it finds out itself, for trait:CUSTOM_... of flavors and images.",
    ),
    cfg.StrOpt("instances_path", help="Directory of instances' disks; <state_path>/instances by default."),
    cfg.FloatOpt("cpu_allocation_ratio", default=4.0, min=0.1, help="vCPUs given out per CPU of the host."),
    cfg.FloatOpt("ram_allocation_ratio", default=1.0, min=0.1, help="Memory given out per memory of the host."),
    cfg.FloatOpt("disk_allocation_ratio", default=1.0, min=0.1, help="Disk given out per disk of the host."),
    cfg.IntOpt("reserved_host_cpus", default=0, min=0, help="CPUs kept back for the host itself."),
    cfg.IntOpt("reserved_host_memory_mb", default=512, min=0, help="Memory kept back for the host itself."),
    cfg.MultiOpt(
        "reserved_huge_pages",
        item_type=types.Dict(),
        help="Large pages kept back for the host itself, as node:0,size:2048,count:64 for 64 pages of 2048 KiB of NUMA "
        "cell 0; once for each cell and size.",
    ),
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
    cfg.Opt(
        "cpu_dedicated_set",
        type=CpuSet(),
        help="CPUs of this host, as 4-12,^8, that guests with hw:cpu_policy=dedicated get for themselves. None by "
        "default: such guests go to other hosts.",
    ),
    cfg.Opt(
        "cpu_shared_set",
        type=CpuSet(),
        help="CPUs of this host that all other guests share. By default all, or none where there is a "
        "cpu_dedicated_set.",
    ),
    cfg.StrOpt("default_availability_zone", default="nova", help="Availability zone of hosts in no other."),
]

IMAGE_CACHE_OPTS = [
    cfg.IntOpt(
        "manager_interval",
        default=2400,
        min=0,
        help="Seconds between two looks for images that no guest of this host uses any more. 0: never.",
    ),
    cfg.BoolOpt(
        "remove_unused_base_images",
        default=True,
        help="Whether such images are removed from the host. They are fetched again when they are needed.",
    ),
    cfg.IntOpt(
        "remove_unused_original_minimum_age_seconds",
        default=86400,
        min=60,
        help="Seconds for which nobody has asked for such an image before it is removed.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="compute")
    conf.register_opts(IMAGE_CACHE_OPTS, group="image_cache")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "compute": OPTS, "image_cache": IMAGE_CACHE_OPTS}
