"""``[quota]``: default limits of a project; -1 is unlimited. Read by the conductor.

Limits of networks, routers and addresses are in ``[network]``, of volumes in ``[volume]``, of images in ``[image]``,
and of backup policies in ``[server_backups]``.
"""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

_DEFAULTS = {
    "instances": (10, "servers"),
    "cores": (20, "vCPUs"),
    "ram": (50 * 1024, "MB of memory"),
    "metadata_items": (128, "metadata items of one server"),
    "injected_files": (5, "injected files of one server"),
    "injected_file_content_bytes": (10 * 1024, "bytes of one injected file"),
    "injected_file_path_length": (255, "characters of an injected file's path"),
    "key_pairs": (100, "key pairs of one user"),
    "server_groups": (10, "server groups"),
    "server_group_members": (10, "servers of one group"),
    "floating_ips": (10, "floating addresses"),
    "security_groups": (10, "security groups, besides the default one"),
    "security_group_rules": (100, "rules of all security groups"),
}

OPTS = [
    cfg.IntOpt(name, default=default, min=-1, help=f"Default limit of {what}.")
    for name, (default, what) in _DEFAULTS.items()
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="quota")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"quota": OPTS}
