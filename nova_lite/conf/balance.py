"""``[balance]``: when servers move off hosts under pressure. ``[conductor] rebalance`` switches it on."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

OPTS = [
    cfg.FloatOpt(
        "interval",
        default=60.0,
        min=0.1,
        help=(
            "Seconds between two reports of a host's load, and between two plans. Raise it if hosts have many "
            "hundred servers."
        ),
    ),
    cfg.FloatOpt(
        "window",
        default=600.0,
        min=0.1,
        help=(
            "Seconds of the means that plans are made of. Raise it if short peaks move servers, lower it if hosts stay "
            "under pressure too long."
        ),
    ),
    cfg.Opt(
        "high",
        type=types.Dict(types.Integer(min=1, max=100)),
        default={"cpu": 80, "memory": 90, "disk": 80, "network": 80},
        help=(
            "Percentages of CPU, memory, disk and network from which a host is under pressure. A resource that is left "
            "out has 80. Set one to 100 to ignore it."
        ),
    ),
    cfg.IntOpt(
        "margin",
        default=15,
        min=1,
        max=99,
        help=(
            "Percentage points below high to which a host is relieved, and which no move may exceed at its target. "
            "Raise it if load changes much within an hour."
        ),
    ),
    cfg.IntOpt(
        "min_gain",
        default=5,
        min=1,
        max=100,
        help="Percentage points by which a move relieves its host at least. Raise it if moves are expensive.",
    ),
    cfg.IntOpt(
        "moves_per_hour",
        default=30,
        min=0,
        help="Largest number of moves that begin in the cloud within an hour. Raise it for clouds of many hosts.",
    ),
    cfg.IntOpt(
        "moves_out_per_hour",
        default=4,
        min=0,
        help="Largest number of moves from one host within an hour. Raise it for hosts with many small servers.",
    ),
    cfg.IntOpt(
        "moves_in_per_hour",
        default=4,
        min=0,
        help="Largest number of moves to one host within an hour. Raise it for hosts with many small servers.",
    ),
    cfg.IntOpt(
        "at_once",
        default=2,
        min=1,
        help="Largest number of moves that are under way at a time. Raise it if the network has room for more.",
    ),
    cfg.IntOpt(
        "cooldown",
        default=3600,
        min=0,
        help="Seconds for which a server that was moved is not moved again. Raise it for servers that moves disturb.",
    ),
    cfg.IntOpt(
        "bandwidth",
        default=1000,
        min=1,
        help="Mbit/s of one live migration, to estimate how long it takes. Set it to what your migrations reach.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="balance")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"balance": OPTS}
