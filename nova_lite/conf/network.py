"""``[network]``: where addresses come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

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
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="network")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"network": OPTS}
