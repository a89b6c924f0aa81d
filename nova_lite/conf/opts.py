"""Entry point for oslo-config-generator."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite import conf
from nova_lite.conf import cinder, glance, neutron
from nova_lite.conf.service_client import plugin_opts

_CLIENTS = (cinder, glance, neutron)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    ours = [(group, opts) for module in (*conf.GROUPS, *_CLIENTS) for group, opts in module.list_opts().items()]
    return [*ours, *((client.GROUP, plugin_opts()) for client in _CLIENTS)]
