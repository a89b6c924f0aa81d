"""``[vxlan]``: tunnels of networks that span hosts."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.IPOpt(
        "local_ip",
        version=4,
        help=(
            "Compute: address of this host to which other hosts send traffic of networks with a VNI. Other "
            "senders that reach its UDP port can reach those guests, too. Default: my_ip."
        ),
    ),
    cfg.PortOpt(
        "dstport",
        default=4789,
        help="Compute: UDP port of VXLAN, the same on all hosts.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="vxlan")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"vxlan": OPTS}
