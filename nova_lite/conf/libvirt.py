"""``[libvirt]``: the libvirt driver. ``[DEFAULT]``: config drives."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

DEFAULT_OPTS = [
    cfg.BoolOpt(
        "force_config_drive",
        help=(
            "true: every server gets a config drive. false: only servers that request one, or whose image has "
            "img_config_drive=mandatory. Unset: also servers without a metadata service on their host "
            "([network] metadata_service), and servers with injected files."
        ),
    ),
]

MIGRATION_OPTS = [
    cfg.StrOpt(
        "live_migration_inbound_addr",
        help=(
            "Address by which other hosts fetch disks from this host and send guests to it. Default: my_ip. "
            "Set it to use a separate network for migrations."
        ),
    ),
    cfg.BoolOpt(
        "live_migration_tls",
        default=False,
        help=(
            "Encrypt memory and disks of moves, and let the hosts check each other's certificates. The ports "
            "of migrations are then open for the source of a current migration only (nft). Set it on every host once "
            "all have certificates. Without it, guests' memory crosses the network in plain text."
        ),
    ),
    cfg.StrOpt(
        "certificates_directory",
        default="/etc/pki/qemu",
        help=(
            "Directory of this host's certificates (nova-lite-manage certificates create), which qemu.conf names, too. "
            "Set it if they are elsewhere."
        ),
    ),
    cfg.PortOpt(
        "disk_port",
        default=8781,
        min=0,
        help=(
            "Port at which other hosts fetch disks of servers that move, at live_migration_inbound_addr and with "
            "live_migration_tls. A host that has migration_ssh_key fetches them by SSH instead. 0: SSH alone."
        ),
    ),
    cfg.StrOpt(
        "live_migration_uri",
        help=(
            "URI by which this host's libvirtd reaches another host's. %s is replaced by the other host's "
            "live_migration_inbound_addr. Default: qemu+tls://%s/system with live_migration_tls, else "
            "qemu+ssh://root@%s/system. Set it for another port or transport."
        ),
    ),
    cfg.IntOpt(
        "live_migration_completion_timeout",
        default=800,
        min=0,
        help=("Seconds per GiB of memory and disks (at least 2 GiB) that a live migration may take. 0: unlimited."),
    ),
    cfg.StrOpt(
        "live_migration_timeout_action",
        default="abort",
        choices=["abort", "force_complete"],
        help="Action at this timeout: abort the migration, or force it to complete.",
    ),
    cfg.IntOpt(
        "live_migration_downtime",
        default=500,
        min=100,
        help=(
            "Milliseconds for which a guest may be paused when it changes hosts. Raise it for guests that "
            "change memory quickly."
        ),
    ),
    cfg.IntOpt(
        "live_migration_bandwidth", default=0, min=0, help="Bandwidth in MiB per second of a migration. 0: unlimited."
    ),
    cfg.BoolOpt(
        "live_migration_permit_auto_converge",
        default=False,
        help="Slow down a guest that changes its memory faster than it can be sent.",
    ),
    cfg.BoolOpt(
        "live_migration_permit_post_copy",
        default=False,
        help=(
            "Let force_complete start the guest at its destination before all of its memory is there. If "
            "either host fails then, the guest is lost. Without it the guest is paused until all memory is "
            "there."
        ),
    ),
    cfg.StrOpt(
        "migration_ssh_user",
        default="root",
        help="User on other hosts whose authorized_keys have the SSH key. It reads the instances directory.",
    ),
    cfg.StrOpt(
        "migration_ssh_key",
        help=(
            "File of the SSH key with which this host fetches disks from other hosts. Their authorized_keys "
            "need it with 'restrict,command=\"/opt/nova-lite/venv/bin/nova-lite-send-disks INSTANCES_PATH\"'. "
            "Default: the user's own key."
        ),
    ),
    cfg.StrOpt(
        "migration_ssh_known_hosts",
        help=(
            "File with the SSH host keys of the other hosts. Unlisted hosts are refused. Default: the user's own file."
        ),
    ),
    cfg.PortOpt("migration_ssh_port", default=22, help="Port of the other hosts' SSH daemons."),
    cfg.IntOpt(
        "device_detach_timeout",
        default=60,
        min=1,
        help=(
            "Seconds in which a running guest has to release a detached device. Seconds without progress after which a "
            "guest counts as refusing to take or release vCPUs and memory."
        ),
    ),
]

OPTS = [
    cfg.StrOpt(
        "virt_type",
        default="auto",
        choices=["auto", "kvm", "qemu"],
        help=(
            "auto boots a tiny guest to test whether KVM works, and emulates otherwise. Set kvm or qemu to "
            "skip the test."
        ),
    ),
    cfg.StrOpt("connection_uri", default="qemu:///system", help="URI of libvirtd."),
    cfg.StrOpt(
        "cpu_mode",
        choices=["host-model", "host-passthrough", "maximum", "custom", "baseline", "none"],
        help=(
            "CPU model of guests. Unset: host-model under KVM, maximum under emulation. A guest moves live only to "
            "hosts with all features of its CPU. So use baseline on mixed hosts: guests get the cpu_baseline of the "
            "host's aggregate, which nova-lite-manage host cpu-baseline finds."
        ),
    ),
    cfg.ListOpt(
        "cpu_models",
        default=[],
        help=("With cpu_mode = custom: libvirt's names of CPU models. The first that this host supports is used."),
    ),
    cfg.ListOpt(
        "cpu_model_extra_flags",
        default=[],
        help="CPU features to add (NAME or +NAME) or remove (-NAME) from the model.",
    ),
    cfg.StrOpt(
        "hw_machine_type",
        default="pc",
        regex=r"^(pc|q35|pc-(i440fx|q35)-[A-Za-z0-9.+-]+)$",
        help=(
            "Machine type of guests whose image has no hw_machine_type. Existing guests change it when they "
            "are recreated (hard reboot, resize, rebuild)."
        ),
    ),
    cfg.ListOpt(
        "emulated_architectures",
        default=[],
        item_type=types.String(choices=["aarch64"]),
        help=(
            "Further architectures of guests, which this host emulates for images with hw_emulation_architecture. "
            "aarch64 needs qemu-system-arm and qemu-efi-aarch64. Emulation is slow, so choose hosts for it."
        ),
    ),
    cfg.IntOpt(
        "num_pcie_ports",
        default=12,
        min=0,
        max=28,
        help=(
            "Further disks and interfaces that a running guest of a q35 or virt machine can take. Nova counts all "
            "ports. 0: libvirt decides, which leaves one. Existing guests get the ports when they are recreated (hard "
            "reboot, resize, rebuild)."
        ),
    ),
    cfg.IntOpt(
        "tb_cache_mb",
        default=32,
        min=0,
        help=(
            "MiB of translated code that an emulated guest may cache; without a limit it can take 1 GiB of "
            "the host's memory. 0: qemu's default."
        ),
    ),
    cfg.StrOpt(
        "images_type",
        default="default",
        choices=["default", "qcow2", "raw", "flat", "rbd"],
        help=(
            "Form of new root disks. default, qcow2: overlays of the cached image, whose backups can be increments. "
            "raw, flat: raw files. On XFS and btrfs they are reflinks of the cached image, elsewhere sparse copies. "
            "rbd: clones of the image in a pool of Ceph, which hosts share, with all other disks of the server. "
            "Existing disks keep their form."
        ),
    ),
    cfg.StrOpt(
        "images_rbd_pool",
        default="",
        regex=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$",
        help=(
            "With images_type = rbd: pool of the servers' disks, in the Ceph of [volume] rbd_ceph_conf. Empty: "
            "[volume] rbd_pool. Set it to keep them apart from volumes. It is the same on each host."
        ),
    ),
    cfg.IntOpt(
        "image_convert_seconds",
        default=1800,
        min=1,
        help="CPU seconds that qemu-img may use to convert an image to a raw disk. Raise it for large images.",
    ),
    cfg.BoolOpt(
        "swtpm_enabled",
        default=False,
        help=(
            "Give guests the emulated TPM that their flavor or image requests. Set it on hosts with swtpm and "
            "swtpm-tools. The conductors need [volume] encryption_key_file."
        ),
    ),
    cfg.StrOpt(
        "shares_path",
        regex=r"^(/[A-Za-z0-9._-]+)+$",
        help=(
            "Directory with the shares that guests of this host may have, as directory/NAME, nfs/NAME or cephfs/NAME. "
            "The operator makes or mounts them. Default: guests get no shares."
        ),
    ),
    *MIGRATION_OPTS,
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(DEFAULT_OPTS)
    conf.register_opts(OPTS, group="libvirt")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": DEFAULT_OPTS, "libvirt": OPTS}
