"""``[libvirt]``: the libvirt driver; ``[DEFAULT]``: what guests are given of their own configuration."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

DEFAULT_OPTS = [
    cfg.BoolOpt(
        "force_config_drive",
        default=False,
        help="Give every server a config drive. Otherwise only those that ask for it, or whose image has "
        "img_config_drive=mandatory.",
    ),
]

OPTS = [
    cfg.StrOpt(
        "virt_type",
        default="auto",
        choices=["auto", "kvm", "qemu"],
        help="auto boots a tiny guest to see whether KVM really works here, and emulates otherwise.",
    ),
    cfg.StrOpt("connection_uri", default="qemu:///system", help="libvirt URI."),
    cfg.FloatOpt(
        "kvm_probe_timeout",
        default=2.0,
        min=0.1,
        help="Seconds that virt_type = auto gives the tiny guest to run under KVM. One that works needs some 0.1 s.",
    ),
    cfg.IntOpt(
        "tb_cache_mb",
        default=32,
        min=0,
        help="MiB of translated code that an emulated guest may keep; without a bound it can take 1 GiB of the host's "
        "memory. 0: qemu's own default.",
    ),
    cfg.IntOpt("spawn_timeout", default=60, min=1, help="Seconds that a domain gets to run after it was started."),
    cfg.IntOpt(
        "image_check_seconds",
        default=30,
        min=1,
        help="CPU seconds that qemu-img may take to look at an image, which may be made to harm.",
    ),
    cfg.IntOpt(
        "image_check_memory_mb",
        default=1024,
        min=128,
        help="MiB of address space that qemu-img may take to look at an image.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="libvirt")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "libvirt": OPTS}
