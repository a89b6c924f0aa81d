"""``[host_health]``: which signs of failing machines hosts look for, and what conductors do about them."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

KINDS = ("memory", "disk", "network", "storage")

REPORT, DISABLE, DRAIN = "report", "disable", "drain"

OPTS = [
    cfg.FloatOpt(
        "interval",
        default=60.0,
        min=0.0,
        help="Seconds between two checks of a compute host's machine. 0: none.",
    ),
    cfg.ListOpt(
        "checks",
        item_type=types.String(choices=KINDS),
        default=list(KINDS),
        help=(
            "What a compute host checks: memory (ECC errors), disk (SMART and RAID), network (links and errors of "
            "cards in bridges and bonds), storage (the directory of servers' disks). Leave one out if its signs are "
            "wrong on your machines."
        ),
    ),
    cfg.ListOpt(
        "uplinks",
        item_type=types.String(regex=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}$"),
        default=[],
        help=(
            "Network cards of a compute host that must have a link, in addition to physical cards in bridges and "
            "bonds, which count once they had one."
        ),
    ),
    cfg.StrOpt(
        "action",
        choices=(
            (REPORT, "show problems, and do nothing"),
            (DISABLE, "give a host with a problem no new servers"),
            (DRAIN, "move its servers elsewhere, too"),
        ),
        default=REPORT,
        help=(
            "What conductors do about a host with a problem. Begin with report, and see for some weeks whether the "
            "problems are real."
        ),
    ),
    cfg.FloatOpt(
        "hold",
        default=300.0,
        min=0.0,
        help="Seconds for which a problem has to last before conductors act.",
    ),
    cfg.IntOpt(
        "max_hosts",
        default=1,
        min=1,
        help=(
            "Most hosts that are disabled or drained at a time because of their health. It bounds what a wrong sign "
            "on all hosts does. Raise it in clouds of many hosts."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="host_health")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"host_health": OPTS}
