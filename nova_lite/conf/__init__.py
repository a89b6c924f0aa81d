"""Configuration options, one group per module; ``nova_lite.conf.opts`` lists them for oslo-config-generator."""

from __future__ import annotations

import sys

from oslo_config import cfg
from oslo_log import log

from nova_lite.conf import (
    api,
    base,
    compute,
    conductor,
    consoles,
    database,
    fake,
    glance,
    identity,
    image,
    libraries,
    libvirt,
    metadata,
    network,
    quota,
    rpc,
    scheduler,
    upgrade_levels,
)

GROUPS = (
    base,
    api,
    compute,
    conductor,
    consoles,
    database,
    fake,
    glance,
    identity,
    image,
    libvirt,
    metadata,
    network,
    quota,
    rpc,
    scheduler,
    upgrade_levels,
)

CONFIG_FILES = ["/etc/nova-lite/nova-lite.conf"]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register every option of ours. Which daemon reads which is said in each option's help."""
    for module in GROUPS:
        module.register_opts(conf)


def load(argv: list[str] | None = None, prog: str | None = None) -> cfg.ConfigOpts:
    """Parse the command line and configuration files into oslo.config's global object, which is returned.

    oslo.messaging registers some of its options only there, so daemons have to use that object. A mistake in a file or
    a flag ends the process with one line and status 1.
    """
    conf = cfg.CONF
    register_opts(conf)
    log.register_options(conf)
    libraries.set_log_defaults()
    try:
        conf(argv, project="nova-lite", prog=prog, default_config_files=existing_config_files())
        _read_all(conf)
    except cfg.ConfigFilesNotFoundError as error:
        sys.exit(f"{prog or 'nova-lite'}: configuration file not found: {error}")
    except (cfg.Error, ValueError) as error:
        sys.exit(f"{prog or 'nova-lite'}: bad configuration: {error}")
    return conf


def _read_all(conf: cfg.ConfigOpts) -> None:
    """oslo.config looks at a file's value only when it is asked for; a mistake is to be found now."""
    for module in GROUPS:
        for group, opts in module.list_opts().items():
            section = conf if group == "DEFAULT" else conf[group]
            for opt in opts:
                getattr(section, opt.dest)


def existing_config_files() -> list[str]:
    import os

    return [path for path in CONFIG_FILES if os.path.exists(path)]
