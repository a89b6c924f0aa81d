"""``[rpc]``: how a daemon finds out that messages do not reach it any more."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.IntOpt(
        "self_check_interval",
        default=20,
        min=0,
        help="Seconds between two calls of a daemon to itself, through the broker; also how long it waits for its "
        "answer. 0: it does not check.",
    ),
    cfg.IntOpt(
        "self_check_misses",
        default=3,
        min=2,
        help="Calls in a row without an answer, while the broker takes connections, after which the daemon drops its "
        "connections and makes new ones. What it is at goes on.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="rpc")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"rpc": OPTS}
