"""``[DEFAULT]`` and ``[conductor]``: the action log, its reconciler, and the build task."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

DEFAULT_OPTS = [
    cfg.BoolOpt(
        "allow_resize_to_same_host",
        default=False,
        help="Whether a resize may end on the host where it began. Until it is confirmed, that host holds both sizes.",
    ),
    cfg.IntOpt(
        "resize_confirm_window",
        default=0,
        min=0,
        help="Seconds after which a resize or a migration that waits for its owner's word is confirmed. 0: never.",
    ),
    cfg.IntOpt(
        "shelved_offload_time",
        default=0,
        min=-1,
        help="Seconds after which a shelved server gives back its place on its host; 0: at once, -1: never.",
    ),
    cfg.IntOpt(
        "reclaim_instance_interval",
        default=0,
        min=0,
        help="Seconds for which a server that is deleted is kept, off and with its disks, to be restored (soft "
        "delete). 0: a delete is one for good. The same for APIs and conductors.",
    ),
]

OPTS = [
    cfg.BoolOpt(
        "single_cpu",
        deprecated_name="one_cpu",
        default=True,
        help="Whether all threads of a conductor run on one CPU, the least busy one that it may use. Python runs one "
        "thread at a time, and a switch to a thread on another CPU takes longer. The conductor chooses another CPU "
        "when its own gets too busy.",
    ),
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
    cfg.IntOpt(
        "migration_deadline",
        default=14400,
        min=10,
        help="Seconds that a host has to fetch the disks of a server that moves there; then it stays where it was.",
    ),
    cfg.IntOpt(
        "snapshot_deadline",
        default=7200,
        min=10,
        help="The same for an action that makes an image of a server, whose disk may be large: seconds from when its "
        "host is told.",
    ),
    cfg.IntOpt(
        "live_migration_deadline",
        default=600,
        min=10,
        help="Seconds without any news after which the host of a live migration is asked to end it. How long one may "
        "take is [libvirt] live_migration_completion_timeout of that host.",
    ),
    cfg.FloatOpt("reconcile_interval", default=1.0, min=0.05, help="Seconds between two sweeps of the reconciler."),
    cfg.IntOpt("reconcile_batch", default=32, min=1, help="Due actions that one sweep takes."),
    cfg.ListOpt(
        "retry_backoff",
        deprecated_name="redrive_backoff",
        item_type=types.Float(),
        default=[2, 5, 10, 30],
        help="Seconds between retries of one action: first, second, and so on. The last one repeats.",
    ),
    cfg.IntOpt(
        "purge_after",
        default=365,
        min=0,
        help="Days after which deleted servers, closed actions and finished migrations are purged. What was used "
        "longer ago is in no usage report then. 0: never, but by nova-lite-manage db purge.",
    ),
    cfg.IntOpt("purge_interval", default=3600, min=1, help="Seconds between two looks for what is to be purged."),
    cfg.IntOpt("purge_batch", default=100, min=1, help="Servers, actions or migrations that one transaction purges."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="conductor")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "conductor": OPTS}
