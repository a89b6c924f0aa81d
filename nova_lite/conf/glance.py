"""``[glance]``: URL and account for compute hosts' access to Glance (``[image] backend = glance``)."""

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
        help=(
            "Number of times a compute host repeats a download that broke off or had a wrong checksum. Then "
            "another host tries."
        ),
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
