"""``[glance]``: where Glance is, and as whom compute hosts read from it (``[image] backend = glance``)."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.conf.service_client import client_opts

GROUP = "glance"

OPTS = [
    cfg.IntOpt(
        "num_retries",
        default=3,
        min=0,
        help="How often a compute host begins a download again that broke off or did not have the image's checksum. "
        "After that, another host tries.",
    ),
    *client_opts(),
]
cfg.set_defaults(
    OPTS,
    service_type="image",
    valid_interfaces=["internal", "public"],
    timeout=60.0,
    connect_retries=2,
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
