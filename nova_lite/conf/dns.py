"""``[dns]``: zones of projects, with ``dns`` in ``[DEFAULT] wings``."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.HostAddressOpt(
        "server",
        help=(
            "Conductor: address of the name server that gets the record sets by dynamic updates (RFC 2136). "
            "Without it they stay here."
        ),
    ),
    cfg.PortOpt("port", default=53, help="Conductor: TCP port of this name server."),
    cfg.StrOpt(
        "key_file",
        default="",
        help="Conductor: file with the key that signs the updates, as tsig-keygen prints it. Others must not read it.",
    ),
    cfg.ListOpt(
        "name_servers",
        default=[],
        help=(
            "Conductor: names of the name servers that answer for the zones, like ns1.example.org. (with a dot at the "
            "end). Users see them as the NS records of their zones."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="dns")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"dns": OPTS}
