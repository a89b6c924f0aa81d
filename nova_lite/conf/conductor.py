"""``[conductor]``: the action log, its reconciler, and the build task."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

OPTS = [
    cfg.IntOpt("max_attempts", default=3, min=1, help="Hosts that are tried for one build before it ends in ERROR."),
    cfg.IntOpt(
        "lease_seconds",
        default=30,
        min=2,
        help="How long an action may be silent before the reconciler drives it again. Work that a host reports as in "
        "progress is never silent.",
    ),
    cfg.IntOpt(
        "action_deadline",
        default=900,
        min=10,
        help="Seconds after which an action that could not be finished ends, with its cause in its event. A create or "
        "an evacuation ends in ERROR, another one leaves the server in the state it had; a delete goes on.",
    ),
    cfg.FloatOpt("reconcile_interval", default=1.0, min=0.05, help="Seconds between two sweeps of the reconciler."),
    cfg.IntOpt("reconcile_batch", default=32, min=1, help="Due actions that one sweep takes."),
    cfg.ListOpt(
        "redrive_backoff",
        item_type=types.Float(),
        default=[2, 5, 10, 30],
        help="Seconds between redrives of one action: first, second, ...; the last one repeats.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="conductor")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"conductor": OPTS}
