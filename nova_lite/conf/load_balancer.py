"""``[load_balancer]``: load balancers, with ``load_balancer`` in ``[DEFAULT] wings``."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.IntOpt(
        "lease",
        default=30,
        min=6,
        help=(
            "Conductor: seconds after which a host without contact to the conductors gives up its addresses of load "
            "balancers, so that another host takes them. Lower it for a quicker fail-over. Raise it above the longest "
            "outage of all conductors, or of the message broker, that load balancers have to survive."
        ),
    ),
    cfg.StrOpt(
        "user",
        default="haproxy",
        help="Compute: user of the processes of load balancers. Debian's package haproxy makes it.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="load_balancer")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"load_balancer": OPTS}
