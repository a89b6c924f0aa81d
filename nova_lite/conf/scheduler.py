"""``[scheduler]``: filters, weighers and the host view."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

_MULTIPLIERS = (
    ("io_ops", -1.0, "Negative prefers hosts with few tasks under way."),
    ("build_failure", 1000000.0, "How much recent failed builds count against a host; 0 for not at all."),
    ("soft_affinity", 1.0, "How much the wish of a soft-affinity group counts."),
    ("soft_anti_affinity", 1.0, "How much the wish of a soft-anti-affinity group counts."),
    ("cross_az", 1.0, "How much it counts that a moved server stays in its zone."),
    ("pci", 1.0, "How much free PCI devices count."),
)

METRICS_OPTS = [
    cfg.ListOpt("weight_setting", default=[], help="Metrics and their ratios, as name1=1.0, name2=-1.0."),
    cfg.FloatOpt("weight_multiplier", default=1.0, help="How much MetricsWeigher counts."),
    cfg.FloatOpt("weight_of_unavailable", default=-10000.0, help="Weight of a host that lacks one of the metrics."),
]

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
            "TraitsFilter",
            "ServerGroupAntiAffinityFilter",
            "ServerGroupAffinityFilter",
            "NUMATopologyFilter",
            "DifferentHostFilter",
            "SameHostFilter",
            "AggregateMultiTenancyIsolation",
        ],
        help="Filters that a host has to pass, by their names in the entry point group nova_lite.scheduler.filters.",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=[
            "RAMWeigher",
            "CPUWeigher",
            "DiskWeigher",
            "ServerGroupSoftAffinityWeigher",
            "ServerGroupSoftAntiAffinityWeigher",
        ],
        help="Weighers that rank the hosts that passed, by their names in nova_lite.scheduler.weights.",
    ),
    cfg.FloatOpt("ram_weight_multiplier", default=1.0, help="Positive spreads by free memory, negative stacks."),
    cfg.FloatOpt("cpu_weight_multiplier", default=1.0, help="Positive spreads by free vCPUs, negative stacks."),
    cfg.FloatOpt("disk_weight_multiplier", default=1.0, help="Positive spreads by free disk, negative stacks."),
    *(cfg.FloatOpt(f"{name}_weight_multiplier", default=default, help=text) for name, default, text in _MULTIPLIERS),
    cfg.IntOpt(
        "max_instances_per_host", default=50, min=1, help="For NumInstancesFilter; aggregates may set their own."
    ),
    cfg.IntOpt("max_io_ops_per_host", default=8, min=1, help="For IoOpsFilter; aggregates may set their own."),
    cfg.ListOpt("isolated_hosts", default=[], help="For IsolatedHostsFilter: hosts kept for isolated_images."),
    cfg.ListOpt("isolated_images", default=[], help="For IsolatedHostsFilter: ids of images that go there only."),
    cfg.BoolOpt(
        "restrict_isolated_hosts_to_isolated_images",
        default=True,
        help="For IsolatedHostsFilter: other images do not go to isolated_hosts.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_namespace",
        help="For AggregateImagePropertiesIsolation: only metadata keys that begin with it count.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_separator",
        default=".",
        help="Between that namespace and the rest of a key.",
    ),
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
    conf.register_opts(METRICS_OPTS, group="metrics")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"scheduler": OPTS, "metrics": METRICS_OPTS}
