"""``[libvirt]``: the libvirt driver; ``[DEFAULT]``: what guests are given of their own configuration."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

DEFAULT_OPTS = [
    cfg.BoolOpt(
        "force_config_drive",
        help="true: every server gets a config drive. false: only those that ask for it, or whose image has "
        "img_config_drive=mandatory. Not said: also those that no metadata service of this host reaches ([network] "
        "metadata_service), and those with injected files, which it does not have.",
    ),
]

MIGRATION_OPTS = [
    cfg.StrOpt(
        "live_migration_inbound_addr",
        help="Address of this host that other hosts reach it at, to fetch disks and to send it guests. Default: my_ip.",
    ),
    cfg.StrOpt(
        "live_migration_uri",
        default="qemu+ssh://root@%s/system",
        help="Where the libvirtd of another host answers this host's libvirtd; %s: the other host's "
        "live_migration_inbound_addr.",
    ),
    cfg.IntOpt(
        "live_migration_completion_timeout",
        default=800,
        min=0,
        help="Seconds per GiB of memory and disks (at least 2 GiB) that a live migration may take. 0: as long as it "
        "takes.",
    ),
    cfg.StrOpt(
        "live_migration_timeout_action",
        default="abort",
        choices=["abort", "force_complete"],
        help="What becomes of one that takes longer.",
    ),
    cfg.IntOpt(
        "live_migration_downtime",
        default=500,
        min=100,
        help="Milliseconds that a guest may be paused when it changes hosts.",
    ),
    cfg.IntOpt("live_migration_bandwidth", default=0, min=0, help="MiB per second that a migration takes. 0: all."),
    cfg.BoolOpt(
        "live_migration_permit_auto_converge",
        default=False,
        help="Slow a guest down that changes its memory faster than it can be sent.",
    ),
    cfg.BoolOpt(
        "live_migration_permit_post_copy",
        default=False,
        help="Let force_complete start the guest at its destination before all of its memory is there. If either host "
        "fails then, the guest is lost; without it the guest is paused until all of it is there.",
    ),
    cfg.StrOpt(
        "migration_ssh_user",
        default="root",
        help="User at the other hosts whose instances directory the key below may read.",
    ),
    cfg.StrOpt(
        "migration_ssh_key",
        help="File of the SSH key that this host fetches disks from other hosts with. There it belongs into "
        "authorized_keys with 'restrict,command=\"/usr/bin/rrsync -ro INSTANCES_PATH\"'. Default: the user's own.",
    ),
    cfg.StrOpt(
        "migration_ssh_known_hosts",
        help="File with the SSH host keys of the other hosts; one that is not in it is not talked to. Default: the "
        "user's own.",
    ),
    cfg.PortOpt("migration_ssh_port", default=22, help="Port of the other hosts' SSH daemons."),
    cfg.IntOpt(
        "device_detach_timeout",
        default=60,
        min=1,
        help="Seconds that a guest which runs has to let go of a device that is detached.",
    ),
    cfg.IntOpt(
        "migration_timeout",
        default=60,
        min=5,
        help="Seconds without any data after which a connection that fetches disks is given up, and made again.",
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
    cfg.StrOpt(
        "cpu_mode",
        choices=["host-model", "host-passthrough", "maximum", "custom", "none"],
        help="The CPU that guests are shown. Not said: host-passthrough under KVM, maximum where they are emulated. "
        "Guests move alive between hosts whose CPUs have what theirs has.",
    ),
    cfg.ListOpt(
        "cpu_models",
        default=[],
        help="With cpu_mode = custom: libvirt's names of CPU models; the first that this host runs is taken.",
    ),
    cfg.ListOpt(
        "cpu_model_extra_flags",
        default=[],
        help="CPU features that guests have (NAME or +NAME) or have not (-NAME) beside those of the mode.",
    ),
    cfg.StrOpt(
        "hw_machine_type",
        default="pc",
        regex=r"^(pc|q35|pc-(i440fx|q35)-[A-Za-z0-9.+-]+)$",
        help="Machine type of guests whose image names none (hw_machine_type). Guests keep what they were made with, "
        "until they are made anew (hard reboot, resize, rebuild).",
    ),
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
        "image_convert_seconds",
        default=1800,
        min=1,
        help="CPU seconds that qemu-img may take to make a raw disk of an image in a format that guests do not use.",
    ),
    cfg.IntOpt(
        "image_check_memory_mb",
        default=1024,
        min=128,
        help="MiB of address space that qemu-img may take to look at an image.",
    ),
    *MIGRATION_OPTS,
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="libvirt")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "libvirt": OPTS}
