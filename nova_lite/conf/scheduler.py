"""``[scheduler]``: filters, weighers and the host view."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

_MULTIPLIERS = (
    ("ram", 1.0, "Multiplier of free memory. Positive spreads servers, negative packs them."),
    ("cpu", 1.0, "Multiplier of free vCPUs. Positive spreads servers, negative packs them."),
    ("disk", 1.0, "Multiplier of free disk space. Positive spreads servers, negative packs them."),
    ("io_ops", -1.0, "Multiplier of running tasks. Negative prefers hosts with few tasks."),
    ("build_failure", 1000000.0, "Multiplier of recent failed builds, which count against a host. 0 ignores them."),
    ("soft_affinity", 1.0, "Multiplier of a soft-affinity group's members on the host."),
    ("soft_anti_affinity", 1.0, "Multiplier of a soft-anti-affinity group's members on other hosts."),
    ("cross_az", 1.0, "Multiplier of a moving server's own zone."),
    ("pci", 1.0, "Multiplier of free PCI devices."),
)

METRICS_OPTS = [
    cfg.ListOpt("weight_setting", default=[], help="Metrics and their ratios, as name1=1.0, name2=-1.0."),
    cfg.FloatOpt("weight_multiplier", default=1.0, help="Multiplier of MetricsWeigher."),
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
            "PciPassthroughFilter",
            "DifferentHostFilter",
            "SameHostFilter",
            "AggregateMultiTenancyIsolation",
        ],
        help=(
            "Filters that a host has to pass, by their names in the entry point group "
            "nova_lite.scheduler.filters. Add filters here that aggregates or flavors need."
        ),
    ),
    cfg.ListOpt(
        "weight_classes",
        default=[
            "RAMWeigher",
            "CPUWeigher",
            "DiskWeigher",
            "PCIWeigher",
            "ServerGroupSoftAffinityWeigher",
            "ServerGroupSoftAntiAffinityWeigher",
        ],
        help="Weighers that rank the remaining hosts, by their names in nova_lite.scheduler.weights.",
    ),
    *(cfg.FloatOpt(f"{name}_weight_multiplier", default=default, help=text) for name, default, text in _MULTIPLIERS),
    cfg.IntOpt(
        "max_instances_per_host", default=50, min=1, help="Limit of NumInstancesFilter; aggregates may override it."
    ),
    cfg.IntOpt("max_io_ops_per_host", default=8, min=1, help="Limit of IoOpsFilter; aggregates may override it."),
    cfg.ListOpt("isolated_hosts", default=[], help="Hosts that IsolatedHostsFilter keeps for isolated_images."),
    cfg.ListOpt(
        "isolated_images", default=[], help="Ids of images that IsolatedHostsFilter allows on isolated_hosts only."
    ),
    cfg.BoolOpt(
        "restrict_isolated_hosts_to_isolated_images",
        default=True,
        help="Keep other images off isolated_hosts (IsolatedHostsFilter).",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_namespace",
        help="Prefix of the metadata keys that AggregateImagePropertiesIsolation uses. Default: all keys.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_separator",
        default=".",
        help="Separator between that prefix and the rest of a key.",
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        help=(
            "Number of best hosts among which one is chosen at random. Use a few with several schedulers to "
            "avoid collisions."
        ),
    ),
    cfg.IntOpt("max_alternates", default=3, min=0, help="Number of alternates for each chosen host."),
    cfg.IntOpt(
        "resync_interval",
        default=60,
        min=1,
        help="Seconds between two comparisons of the scheduler's host states with the database's.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="scheduler")
    conf.register_opts(METRICS_OPTS, group="metrics")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"scheduler": OPTS, "metrics": METRICS_OPTS}
