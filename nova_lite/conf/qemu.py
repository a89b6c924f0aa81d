"""``[qemu]``: the driver of qemu without libvirt."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "user",
        default="nova-lite-qemu",
        regex=r"^[a-z_][a-z0-9_-]{0,31}$",
        help=(
            "User without privileges that guests run as with compute_driver = qemu. It needs the group of /dev/kvm "
            "where guests use KVM."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="qemu")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"qemu": OPTS}
