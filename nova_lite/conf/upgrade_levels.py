"""``[upgrade_levels]``: newest versions of messages to services that are not upgraded yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oslo_config import cfg, types

SERVICES = ("conductor", "scheduler", "compute")

_VERSION = types.String(regex=re.compile(r"^2\.[0-9]+$"))

OPTS = [
    cfg.Opt(
        service,
        type=_VERSION,
        help=f"Newest version of messages to the {service} service, as 2.N. Newer methods are refused clearly. "
        "Set it while daemons of several versions run side by side. Default: no limit.",
    )
    for service in SERVICES
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="upgrade_levels")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"upgrade_levels": OPTS}
