"""Filters: each one decides whether a host can take one more instance of a request.

Each filter is a small class that extends `HostFilter` (`base`). Its entry point in the group
``nova_lite.scheduler.filters`` gives it a name, and ``[scheduler] enabled_filters`` lists the filters to use, in order.
List filters first that are cheap, or that reject many hosts.

- `base`: `HostFilter`
- `capacity`, `numa_topology`, `pci_passthrough`, `host_load`: capacity: RAM, disk, vCPUs, NUMA cells, PCI devices, and
  limits of load
- `compute`, `retry`, `isolated_hosts`, `metrics`: state of the host
- `live_migration`: what a running guest needs to continue; always on
- `compute_capabilities`, `image_properties`, `traits`, `aggregates`, `extra_spec_ops`: demands of flavors and images,
  and the operators of extra specs
- `availability_zone`, `hints`, `json_query`, `server_group`: demands of users
"""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.live_migration import LiveMigrationFilter

__all__ = ["HostFilter", "load"]

NAMESPACE = "nova_lite.scheduler.filters"


def load(conf: cfg.ConfigOpts) -> list[HostFilter]:
    """Return the filters of ``[scheduler] enabled_filters`` in order, and `LiveMigrationFilter`, which is always on.

    Raises `ConfigurationError` for unknown ones.
    """
    classes = plugins.load(NAMESPACE, conf.scheduler.enabled_filters, "[scheduler] enabled_filters")
    return [*(cls.from_conf(conf) for cls in classes), LiveMigrationFilter()]
