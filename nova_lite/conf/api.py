"""``[api]``: the REST daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.ListOpt("enabled_apis", default=["osapi_compute"], help="Paste applications to serve."),
    cfg.HostAddressOpt("listen", default="127.0.0.1", help="Address the compute API listens on."),
    cfg.PortOpt("port", default=8774, help="Port the compute API listens on."),
    cfg.IntOpt("workers", default=1, min=1, help="Processes that serve the compute API."),
    cfg.StrOpt("paste_config", default="/etc/nova-lite/api-paste.ini", help="The paste.deploy file."),
    cfg.StrOpt(
        "auth_strategy",
        default="noauth2",
        help="Which pipeline of the paste file is used. noauth2 believes every token and is refused on any address "
        "but loopback ones.",
    ),
    cfg.IntOpt("max_limit", default=1000, min=1, help="Most items that one page of a list holds."),
    cfg.StrOpt("compute_link_prefix", help="URL that links start with, when a proxy hides the API's own."),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="api")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"api": OPTS}
