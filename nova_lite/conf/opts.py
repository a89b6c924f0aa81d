"""Entry point for oslo-config-generator."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite import conf
from nova_lite.conf import glance


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    ours = [(group, opts) for module in conf.GROUPS for group, opts in module.list_opts().items()]
    return [*ours, (glance.GROUP, glance.plugin_opts())]
