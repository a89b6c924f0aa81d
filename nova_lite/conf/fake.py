"""``[fake]``: the fake driver and the fake network service, for tests and scale trials."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.IntOpt("vcpus", default=16, min=0, help="CPUs that the fake hypervisor reports."),
    cfg.IntOpt("memory_mb", default=65536, min=0, help="Memory in MB that the fake hypervisor reports."),
    cfg.IntOpt("disk_gb", default=1024, min=0, help="Disk space in GB that the fake hypervisor reports."),
    cfg.FloatOpt("spawn_delay", default=0.0, min=0, help="Seconds that creating a domain takes."),
    cfg.FloatOpt("destroy_delay", default=0.0, min=0, help="Seconds that destroying a domain takes."),
    cfg.FloatOpt("power_delay", default=0.0, min=0, help="Seconds that power on, power off and reboot take."),
    cfg.FloatOpt("network_delay", default=0.0, min=0, help="Seconds that a call to the fake network service takes."),
    cfg.ListOpt(
        "fail_at",
        default=[],
        help=(
            "Steps that fail: init_host, inventory, list_domains, get_info, plug_vifs, unplug_vifs, image, "
            "spawn_before_domain, spawn_after_domain, destroy, power_on, power_off, reboot, console, statistics."
        ),
    ),
    cfg.IntOpt("fail_count", default=-1, min=-1, help="Number of failures of these steps in all; -1: always."),
    cfg.StrOpt(
        "fail_error",
        default="virt",
        choices=["virt", "abort", "image", "hypervisor", "unexpected"],
        help=(
            "Kind of the failure: a driver error, an error that aborts the build, an unreadable image, a lost "
            "hypervisor, or a bug."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="fake")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"fake": OPTS}
