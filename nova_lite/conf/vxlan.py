"""``[vxlan]``: how networks with a VNI span hosts."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.IPOpt(
        "local_ip",
        version=4,
        help="Compute: the address of this host that other hosts send to what is for guests here on networks with a "
        "VNI. Whoever else reaches its UDP port can send to those guests. Default: my_ip.",
    ),
    cfg.PortOpt(
        "dstport",
        default=4789,
        help="Compute: the UDP port of VXLAN, the same on all hosts.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="vxlan")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"vxlan": OPTS}
