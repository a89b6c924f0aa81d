"""``[replication]``: servers with a replica at a second site."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "directory",
        default="",
        help=(
            "Directory with the journal of replicated servers, which the conductors of both sites mount. It names the "
            "site that may run a server. Set it for servers with a replica at another site."
        ),
    ),
    cfg.StrOpt(
        "site",
        default="",
        help="Name of this site in the journal, which no other site has. Set it together with directory.",
    ),
    cfg.FloatOpt(
        "interval",
        default=5.0,
        min=0.1,
        help=(
            "Seconds between two looks of the conductors at the journal. Raise it if the other site may learn of a "
            "failover later."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="replication")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"replication": OPTS}
