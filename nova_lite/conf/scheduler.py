"""``[scheduler]``: filters, weighers and the host view."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.ListOpt(
        "enabled_filters",
        default=[
            "RetryFilter",
            "AvailabilityZoneFilter",
            "RamFilter",
            "DiskFilter",
            "CoreFilter",
            "ComputeFilter",
            "ComputeCapabilitiesFilter",
            "ImagePropertiesFilter",
            "ServerGroupAntiAffinityFilter",
            "ServerGroupAffinityFilter",
        ],
        help="Filters that a host has to pass, by their names in the entry point group nova_lite.scheduler.filters.",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=["RAMWeigher", "CPUWeigher", "DiskWeigher"],
        help="Weighers that rank the hosts that passed, by their names in nova_lite.scheduler.weights.",
    ),
    cfg.FloatOpt("ram_weight_multiplier", default=1.0, help="Positive spreads by free memory, negative stacks."),
    cfg.FloatOpt("cpu_weight_multiplier", default=1.0, help="Positive spreads by free vCPUs, negative stacks."),
    cfg.FloatOpt("disk_weight_multiplier", default=1.0, help="Positive spreads by free disk, negative stacks."),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        help="Choose at random among this many best hosts. With several schedulers, a few avoid collisions.",
    ),
    cfg.IntOpt("max_alternates", default=3, min=0, help="Alternates returned with each chosen host."),
    cfg.IntOpt("resync_interval", default=60, min=1, help="Seconds between two full reads of all host states."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="scheduler")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"scheduler": OPTS}
