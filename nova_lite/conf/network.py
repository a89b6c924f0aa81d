"""``[network]``: where addresses come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

OPTS = [
    cfg.StrOpt(
        "backend", default="local", help="Entry point in nova_lite.network.backends: local or none (fake is for tests)."
    ),
    cfg.IntOpt(
        "call_timeout",
        default=30,
        min=1,
        help="Seconds after which a call to a network service of its own has ended, one way or the other.",
    ),
    cfg.BoolOpt(
        "metadata_service",
        default=False,
        help="Compute: guests on the networks that this host runs find the metadata API, which has to listen on this "
        "machine at [api] metadata_listen, at 169.254.169.254. Needs nft.",
    ),
    cfg.ListOpt(
        "host_ports",
        item_type=types.Integer(min=1, max=65535),
        default=[],
        help="Compute: TCP ports of this host that guests may reach besides DHCP, DNS and the metadata service.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="network")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"network": OPTS}
