"""Weighers: one small class each, found by their entry points in ``nova_lite.scheduler.weights``."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.scheduler.weights.base import HostWeigher

__all__ = ["HostWeigher", "load"]

NAMESPACE = "nova_lite.scheduler.weights"


def load(conf: cfg.ConfigOpts) -> list[HostWeigher]:
    """The weighers of ``[scheduler] weight_classes``. Raises `ConfigurationError` for an unknown one."""
    classes = plugins.load(NAMESPACE, conf.scheduler.weight_classes, "[scheduler] weight_classes")
    return [cls.from_conf(conf) for cls in classes]
