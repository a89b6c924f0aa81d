"""Weighers: each one ranks the hosts that passed all filters.

Each weigher is a small class that extends `HostWeigher` (`base`). Its entry point in the group
``nova_lite.scheduler.weights`` gives it a name, and ``[scheduler] weight_classes`` lists the weighers to use. The
weights of all are scaled, multiplied by their multipliers, and added up (`nova_lite.scheduler.core.Ranking`).

- `base`: `HostWeigher`
- `resources`, `pci`: free resources: RAM, vCPUs, disk, PCI devices
- `io_ops`, `compute`, `metrics`: load and failures
- `affinity`, `cross_az`: place: server groups, availability zones
"""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.scheduler.weights.base import HostWeigher

__all__ = ["HostWeigher", "load"]

NAMESPACE = "nova_lite.scheduler.weights"


def load(conf: cfg.ConfigOpts) -> list[HostWeigher]:
    """Return the weighers of ``[scheduler] weight_classes``. Raises `ConfigurationError` for an unknown one."""
    classes = plugins.load(NAMESPACE, conf.scheduler.weight_classes, "[scheduler] weight_classes")
    return [cls.from_conf(conf) for cls in classes]
