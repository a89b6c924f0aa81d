"""Config drives that are made without a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.objects import VIF
from nova_lite.virt import configdrive


def make_conf(**changes: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    for name, value in changes.items():
        conf.set_override(name, value)
    return conf


def drives(forced: bool | None, reach: Callable[[list[VIF]], bool] = lambda vifs: False) -> configdrive.ConfigDrives:
    return configdrive.ConfigDrives(make_conf(force_config_drive=forced), reach)
