"""Filters: one small class each, found by their entry points in ``nova_lite.scheduler.filters``."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.scheduler.filters.base import HostFilter

__all__ = ["HostFilter", "load"]

NAMESPACE = "nova_lite.scheduler.filters"


def load(conf: cfg.ConfigOpts) -> list[HostFilter]:
    """The filters of ``[scheduler] enabled_filters``, in that order. Raises `ConfigurationError` for an unknown one."""
    classes = plugins.load(NAMESPACE, conf.scheduler.enabled_filters, "[scheduler] enabled_filters")
    return [cls.from_conf(conf) for cls in classes]
