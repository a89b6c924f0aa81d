"""``[pci]``, ``[devices]``, ``[mdev_TYPE]``: devices and vGPUs of hosts that guests get for themselves."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.MultiStrOpt(
        "alias",
        default=[],
        help=(
            "On conductors: a kind of devices, with the name that flavors use in pci_passthrough:alias, as a JSON "
            'object, for example {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}. May be given more than '
            "once; entries of one name add up."
        ),
    ),
    cfg.MultiStrOpt(
        "device_spec",
        default=[],
        help=(
            "On hosts: devices that guests may have, as a JSON object or a list of objects, for example "
            '{"address": "0000:81:00.*", "vendor_id": "10de"}. May be given more than once; the first that matches a '
            "device counts. Default: guests get no devices."
        ),
    ),
]

DEVICES_OPTS = [
    cfg.ListOpt(
        "enabled_mdev_types",
        default=[],
        help=(
            "On hosts: types of mediated devices that guests may have as vGPUs, for example nvidia-35. Each may have a "
            "group [mdev_TYPE] of its own. Default: guests get no vGPUs."
        ),
    ),
]

#: Beginning of the names of the groups that describe a type. All have the options of ``[mdev_TYPE]``.
MDEV_GROUP = "mdev_"
MDEV_OPTS = [
    cfg.ListOpt(
        "device_addresses",
        default=[],
        help=(
            "PCI addresses of the GPUs, or of their virtual functions, that have vGPUs of this type. Needed if several "
            "types are enabled. Default: all that can have them."
        ),
    ),
    cfg.IntOpt(
        "max_instances",
        min=1,
        help=(
            "Maximum number of vGPUs of this type on the host. Needed if virtual functions offer more vGPUs than their "
            "GPU can have, as with MIG."
        ),
    ),
    cfg.StrOpt(
        "mdev_class",
        default="VGPU",
        regex=r"\A(VGPU|CUSTOM_[A-Z0-9_]{1,248})\Z",
        help="Resource class by which flavors request this type: VGPU, or a name that begins with CUSTOM_.",
    ),
]

_GROUPS: dict[str, Sequence[cfg.Opt]] = {"pci": OPTS, "devices": DEVICES_OPTS, f"{MDEV_GROUP}TYPE": MDEV_OPTS}


def register_opts(conf: cfg.ConfigOpts) -> None:
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=group)


def register_mdev_type(conf: cfg.ConfigOpts, name: str) -> cfg.ConfigOpts.GroupAttr:
    """Register the options of a type, and return its group."""
    conf.register_opts(MDEV_OPTS, group=MDEV_GROUP + name)
    group: cfg.ConfigOpts.GroupAttr = conf[MDEV_GROUP + name]
    return group


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return _GROUPS
