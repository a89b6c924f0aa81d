"""``[upgrade_levels]``: what may be sent to services that are not upgraded yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oslo_config import cfg, types

SERVICES = ("conductor", "scheduler", "compute")

_VERSION = types.String(regex=re.compile(r"^1\.[0-9]+$"))

OPTS = [
    cfg.Opt(
        service,
        type=_VERSION,
        help=f"Newest version of messages to the {service} service, as 1.N. What came in a later one is refused with "
        "a clear error in place of being sent. To be set while daemons of several versions run side by side; not set: "
        "all that this version knows is sent.",
    )
    for service in SERVICES
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="upgrade_levels")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"upgrade_levels": OPTS}
