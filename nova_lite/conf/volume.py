"""``[volume]``: where volumes come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

_QUOTAS = {
    "volumes": (10, "Number of volumes of a project"),
    "gigabytes": (1000, "GB of a project's volumes and snapshots together"),
    "snapshots": (10, "Number of snapshots of a project's volumes"),
    "per_volume_gigabytes": (-1, "GB of one volume"),
    "backups": (10, "Number of backups of a project"),
    "backup_gigabytes": (1000, "GB of a project's backups"),
}

OPTS = [
    cfg.StrOpt(
        "backend",
        default="local",
        help=(
            "Entry point in nova_lite.volume.backends: local (files in store_path), rbd (images in a Ceph) or cinder. "
            "Use the same for API, conductor and compute."
        ),
    ),
    cfg.StrOpt(
        "store_path",
        default="$state_path/volumes",
        help=(
            "Directory of the local backend's files, which compute hosts create and guests use. Several hosts "
            "have to share it. It and its parents have to be accessible (o+x) to qemu's user. With the backend rbd "
            "each host has its own, for images and volumes that are being converted."
        ),
    ),
    cfg.StrOpt(
        "backup_path",
        default="$state_path/backups",
        help=(
            "Directory of the backups of volumes, which several hosts have to share. Put it on another disk than "
            "store_path, so that backups outlive that."
        ),
    ),
    cfg.StrOpt(
        "rbd_pool",
        default="nova-lite",
        regex=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        help="Pool of Ceph that the backend rbd has for itself.",
    ),
    cfg.StrOpt(
        "rbd_user",
        default="nova-lite",
        regex=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$",
        help="User of Ceph, without client. before it. Empty: the default user of Ceph's programs.",
    ),
    cfg.StrOpt(
        "rbd_ceph_conf",
        default="/etc/ceph/ceph.conf",
        regex=r"^(/[A-Za-z0-9_.-]+)+$",
        help=(
            "Ceph's configuration file on each compute host. It names the monitors, and for the program rbd the "
            "user's keyring. qemu's user has to be able to read it."
        ),
    ),
    cfg.StrOpt(
        "rbd_secret_uuid",
        default="",
        regex=r"^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$",
        help=(
            "Libvirt secret of the type ceph with the user's key, the same on each compute host. Empty if Ceph does "
            "not authenticate clients."
        ),
    ),
    cfg.StrOpt(
        "encryption_key_file",
        default="",
        help=(
            "File with the master keys that encrypt the keys of encrypted volumes and of TPMs. Only the conductor "
            "reads it, and only its user may. All conductors need the same file. Without it, no volume can be "
            "encrypted, and no server has a TPM. nova-lite-manage volume-key create makes it."
        ),
    ),
    cfg.StrOpt("default_type", default="local", help="Name of the only volume type of the built-in service."),
    *(
        cfg.IntOpt(f"quota_{name}", default=default, min=-1, help=f"{text}; -1: unlimited.")
        for name, (default, text) in _QUOTAS.items()
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="volume")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"volume": OPTS}
