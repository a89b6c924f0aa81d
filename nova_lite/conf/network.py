"""``[network]``: where addresses come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt("backend", default="local", help="Entry point in nova_lite.network.backends: local or none."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="network")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"network": OPTS}
