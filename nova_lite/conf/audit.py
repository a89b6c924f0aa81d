"""``[audit]``: the audit log of all APIs."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help=(
            "Record each change through an API, each log-in and each denied request in the database. Turn it off if "
            "another system keeps such a log."
        ),
    ),
    cfg.IntOpt(
        "keep_days",
        default=365,
        min=0,
        help=(
            "Days after which conductors purge events. 0: only nova-lite-manage audit-log purge removes them. "
            "Change it if rules demand to keep them for longer, or not for so long."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="audit")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"audit": OPTS}
