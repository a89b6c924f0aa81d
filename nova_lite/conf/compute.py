"""``[DEFAULT]`` and ``[compute]``: the compute daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

from nova_lite.base.cpu_sets import CpuSet

DEFAULT_OPTS = [
    cfg.StrOpt(
        "compute_driver",
        default="libvirt",
        help="Entry point in nova_lite.virt.drivers: libvirt, qemu (without libvirt), or fake for tests.",
    ),
    cfg.BoolOpt(
        "resume_guests_state_on_host_boot",
        default=False,
        help=("Start the guests that ran before a reboot of the machine. If false, their servers are SHUTOFF then."),
    ),
    cfg.IntOpt(
        "max_concurrent_live_migrations",
        default=1,
        min=0,
        help=(
            "Number of guests that leave this host by live migration at the same time; others wait. 0 stands for any "
            "number. Raise it if the network carries several at full speed."
        ),
    ),
    cfg.ListOpt(
        "compute_monitors",
        item_type=types.String(choices=["cpu.virt_driver"]),
        default=[],
        help="Measurements for MetricsFilter and MetricsWeigher: cpu.virt_driver, or nothing.",
    ),
    cfg.ListOpt(
        "custom_traits",
        item_type=types.String(regex=r"^CUSTOM_[A-Z0-9_]{1,248}$"),
        default=[],
        help=("Traits of this host in addition to the detected ones, for trait:CUSTOM_... of flavors and images."),
    ),
    cfg.StrOpt(
        "instances_path",
        help=(
            "Directory of instances' disks. Default: <state_path>/instances. Set it when the disks are on "
            "another file system."
        ),
    ),
    cfg.FloatOpt(
        "cpu_allocation_ratio",
        default=4.0,
        min=0.1,
        help="Number of vCPUs per CPU of the host. Lower it for busy guests; 1 means no overcommitment.",
    ),
    cfg.FloatOpt(
        "ram_allocation_ratio",
        default=1.0,
        min=0.1,
        help="Guest memory per host memory. Above 1 the host has to swap or fail when guests use their memory.",
    ),
    cfg.FloatOpt(
        "disk_allocation_ratio",
        default=1.0,
        min=0.1,
        help="Guest disk space per host disk space. Above 1 the disk can fill up.",
    ),
    cfg.IntOpt("reserved_host_cpus", default=0, min=0, help="CPUs reserved for the host itself."),
    cfg.IntOpt(
        "reserved_host_memory_mb",
        default=512,
        min=0,
        help="Memory in MB reserved for the host itself. Raise it if the host runs other services.",
    ),
    cfg.MultiOpt(
        "reserved_huge_pages",
        item_type=types.Dict(),
        help=(
            "Huge pages reserved for the host itself, as node:0,size:2048,count:64 for 64 pages of 2048 KiB "
            "of NUMA cell 0. Repeat it for each cell and size."
        ),
    ),
    cfg.IntOpt("reserved_host_disk_mb", default=0, min=0, help="Disk space in MB reserved for the host itself."),
    cfg.IntOpt(
        "shutdown_timeout",
        default=60,
        min=0,
        help=(
            "Seconds in which a guest has to shut down on stop and reboot. Then it is powered off. Raise it "
            "for guests that stop slowly."
        ),
    ),
]

OPTS = [
    cfg.IntOpt(
        "max_concurrent_builds",
        default=10,
        min=1,
        help="Number of concurrent builds of a host. Lower it if builds slow each other down on its disk.",
    ),
    cfg.IntOpt(
        "max_concurrent_snapshots",
        default=5,
        min=1,
        help="Number of server images that a host makes and uploads concurrently; others wait.",
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
        help=(
            "Seconds, in addition to report_interval, for which a hypervisor may not answer. Then the host "
            "counts as down until it answers again, and builds without a domain go to other hosts."
        ),
    ),
    cfg.BoolOpt(
        "self_fencing",
        default=False,
        help=(
            "Stop the protected guests of this host (ha:restart=always) before its lease ends, unless a conductor "
            "renews the lease. Then they run elsewhere without a person's word. Set it on hosts without a "
            "management card, in a cloud whose broker, database and conductors are redundant."
        ),
    ),
    cfg.IntOpt(
        "self_fencing_lease",
        default=50,
        min=30,
        max=3600,
        help=(
            "Seconds of a lease of a host that fences itself. Its protected guests stop 10 seconds earlier. A "
            "longer lease survives longer breaks of the network or the broker, and guests of a lost host come "
            "back later."
        ),
    ),
    cfg.StrOpt(
        "self_fencing_watchdog",
        help=(
            "Watchdog device, such as /dev/watchdog, that resets the machine if guard or kernel hang, or if guests "
            "cannot be ended. Set it if the machine has one and no other program uses it."
        ),
    ),
    cfg.Opt(
        "cpu_dedicated_set",
        type=CpuSet(),
        help=(
            "CPUs of this host, as 4-12,^8, for guests with hw:cpu_policy=dedicated or mixed. Default: none, so such "
            "guests go to other hosts."
        ),
    ),
    cfg.Opt(
        "cpu_shared_set",
        type=CpuSet(),
        help="CPUs of this host for all other guests. Default: all, or none if cpu_dedicated_set is set.",
    ),
    cfg.StrOpt("default_availability_zone", default="nova", help="Availability zone of hosts that are in no other."),
]

IMAGE_CACHE_OPTS = [
    cfg.IntOpt(
        "manager_interval",
        default=2400,
        min=0,
        help="Seconds between two searches for cached images that no guest of this host uses. 0: never.",
    ),
    cfg.BoolOpt(
        "remove_unused_base_images",
        default=True,
        help="Remove unused cached images from the host. They are fetched again on demand.",
    ),
    cfg.IntOpt(
        "remove_unused_original_minimum_age_seconds",
        default=86400,
        min=60,
        help=(
            "Seconds without use after which a cached image is removed. Raise it to save downloads, lower it "
            "to save disk space."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="compute")
    conf.register_opts(IMAGE_CACHE_OPTS, group="image_cache")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "compute": OPTS, "image_cache": IMAGE_CACHE_OPTS}
