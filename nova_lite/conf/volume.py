"""``[volume]``: where volumes come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "backend",
        default="local",
        help="Entry point in nova_lite.volume.backends: local (files in store_path) or cinder. The same for API, "
        "conductor and compute.",
    ),
    cfg.StrOpt(
        "store_path",
        default="$state_path/volumes",
        help="Directory of the local backend's files, which compute hosts make and guests use: where there are several "
        "hosts, one that they share. It and all directories above have to be open (o+x) to qemu's user.",
    ),
    cfg.StrOpt("default_type", default="local", help="Name of the only type of volumes of the local backend."),
    cfg.IntOpt("quota_volumes", default=10, min=-1, help="Volumes of a project; -1: any number."),
    cfg.IntOpt(
        "quota_gigabytes",
        default=1000,
        min=-1,
        help="GB of a project's volumes and their snapshots together; -1: any number.",
    ),
    cfg.IntOpt("quota_snapshots", default=10, min=-1, help="Snapshots of a project's volumes; -1: any number."),
    cfg.IntOpt(
        "task_deadline",
        default=3600,
        min=1,
        help="Seconds after which work on a volume's file that no host has done has failed.",
    ),
    cfg.IntOpt(
        "detach_timeout",
        default=60,
        min=1,
        help="Seconds that a running guest has to release a volume. It is asked every few seconds.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="volume")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"volume": OPTS}
