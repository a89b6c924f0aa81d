"""``[cinder]``: URL and account for conductors' access to Cinder (``[volume] backend = cinder``)."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.conf.service_client import client_opts

GROUP = "cinder"

OPTS = [
    cfg.IntOpt(
        "create_timeout",
        default=1800,
        min=1,
        help=(
            "Seconds in which Cinder has to create a volume for a new server. Read by conductors. Raise it if "
            "large images are slow to copy."
        ),
    ),
    *client_opts(),
]
cfg.set_defaults(
    OPTS,
    service_type="block-storage",
    valid_interfaces=["internal", "public"],
    timeout=30.0,
    connect_retries=1,
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
