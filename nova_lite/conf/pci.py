"""``[pci]``: devices of hosts that guests get for themselves."""

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


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="pci")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"pci": OPTS}
