"""``[libvirt]``: the libvirt driver."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "virt_type",
        default="auto",
        choices=["auto", "kvm", "qemu"],
        help="auto boots a tiny guest to see whether KVM really works here, and emulates otherwise.",
    ),
    cfg.StrOpt("connection_uri", default="qemu:///system", help="libvirt URI."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="libvirt")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"libvirt": OPTS}
