"""``[DEFAULT]`` and ``[conductor]``: the action log, its reconciler, and the build task."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

DEFAULT_OPTS = [
    cfg.StrOpt(
        "default_access_ip_network_name",
        help=(
            "Network whose addresses become accessIPv4 and accessIPv6 of a new server, unless the user has given "
            "one of them. Default: none."
        ),
    ),
    cfg.BoolOpt(
        "allow_resize_to_same_host",
        default=False,
        help=(
            "Allow a resize to end on its own host. That host holds both sizes until the resize is confirmed. "
            "Needed on a cloud with one host."
        ),
    ),
    cfg.IntOpt(
        "resize_confirm_window",
        default=0,
        min=0,
        help="Seconds after which an unconfirmed resize or migration is confirmed automatically. 0: never.",
    ),
    cfg.IntOpt(
        "shelved_offload_time",
        default=0,
        min=-1,
        help="Seconds after which a shelved server leaves its host. 0: at once; -1: never.",
    ),
    cfg.IntOpt(
        "reclaim_instance_interval",
        default=0,
        min=0,
        help=(
            "Seconds for which a deleted server is kept, powered off and with its disks, so that it can be "
            "restored (soft delete). 0: a delete is final. Use the same value for APIs and conductors."
        ),
    ),
]

OPTS = [
    cfg.BoolOpt(
        "single_cpu",
        default=True,
        help=(
            "Run all threads of a conductor on one CPU, the least busy of its allowed CPUs. Python runs one "
            "thread at a time, and a switch to a thread on another CPU takes longer. The conductor chooses "
            "another CPU when its own gets too busy."
        ),
    ),
    cfg.StrOpt(
        "fencing_file",
        help=(
            "YAML file with the fence methods of hosts, such as /etc/nova-lite/fencing.yaml. Others than root and the "
            "conductor may not read it. Default: none, so no host is switched off. Use the same file on all machines "
            "with a conductor."
        ),
    ),
    cfg.IntOpt(
        "survive_hosts",
        default=0,
        min=0,
        max=16,
        help=(
            "Number of hosts, any of them, whose protected servers have to find room elsewhere. A metric and an alert "
            "say if they do not. Set it to the number of hosts that may be lost at a time; 0: not checked."
        ),
    ),
    cfg.ListOpt(
        "protected_projects",
        default=[],
        help=(
            "Ids of projects whose servers are protected (ha:restart=always) unless they, their flavors or images "
            "say something else. Set it for projects whose owners do not set the policy themselves."
        ),
    ),
    cfg.StrOpt(
        "rebalance",
        default="off",
        choices=["off", "dry_run", "on"],
        help=(
            "Move servers off hosts under measured pressure. dry_run: hosts measure their load, and conductors log "
            "what they would move. on: conductors move servers. [balance] has the limits. Use the same value for all "
            "conductors."
        ),
    ),
    cfg.IntOpt(
        "max_attempts", default=3, min=1, help="Number of hosts that are tried for one build before it ends in ERROR."
    ),
    cfg.IntOpt(
        "lease_seconds",
        default=30,
        min=2,
        help=(
            "Seconds without a sign of progress after which the reconciler retries an action. Hosts' "
            "heartbeats renew the lease of running work."
        ),
    ),
    cfg.IntOpt(
        "action_deadline",
        default=900,
        min=10,
        help=(
            "Seconds after which an unfinished action fails, with its cause in its event. A create or an "
            "evacuation ends in ERROR, other actions leave the server in its state; a delete continues."
        ),
    ),
    cfg.IntOpt(
        "migration_deadline",
        default=14400,
        min=10,
        help=(
            "Seconds in which a host has to fetch the disks of a moving server. Then the server stays where "
            "it was. Raise it for large disks or slow links."
        ),
    ),
    cfg.IntOpt(
        "snapshot_deadline",
        default=7200,
        min=10,
        help="Seconds in which a host has to make and upload an image of a server. Raise it for large disks.",
    ),
    cfg.IntOpt(
        "live_migration_deadline",
        default=600,
        min=10,
        help=(
            "Seconds without a progress report after which the conductor ends a live migration. The source's "
            "own limit is [libvirt] live_migration_completion_timeout."
        ),
    ),
    cfg.FloatOpt("reconcile_interval", default=1.0, min=0.05, help="Seconds between two sweeps of the reconciler."),
    cfg.ListOpt(
        "retry_backoff",
        item_type=types.Float(),
        default=[2, 5, 10, 30],
        help="Seconds between retries of one action: first, second, and so on. The last one repeats.",
    ),
    cfg.IntOpt(
        "purge_after",
        default=365,
        min=0,
        help=(
            "Days after which deleted servers, closed actions and finished migrations are purged. Usage "
            "reports lose their usage. 0: only nova-lite-manage db purge removes them."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="conductor")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "conductor": OPTS}
