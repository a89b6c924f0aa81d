"""``[cinder]``: where Cinder is, and as whom conductors drive it (``[volume] backend = cinder``)."""

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
        help="Seconds that Cinder has to make a volume that a server was asked for with. Read by conductors.",
    ),
    cfg.IntOpt(
        "connect_timeout",
        default=300,
        min=1,
        help="Seconds that an attachment to a server that runs waits for Cinder before it has failed. Read by compute "
        "hosts.",
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
