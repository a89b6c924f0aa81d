"""``[DEFAULT]``: options of all daemons."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.base import structured_logs

OPTS = [
    cfg.HostAddressOpt(
        "my_ip",
        default="127.0.0.1",
        help=(
            "Address of this machine that other parts of the cloud use. Set it on every machine of a cloud "
            "with several."
        ),
    ),
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<hostname>",
        regex=r"^[A-Za-z0-9._-]{1,255}$",
        help="Name of this host in the cloud. Keep it when the machine is renamed: instances are tied to it.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/nova-lite",
        help="Directory for everything that a daemon stores on disk.",
    ),
    cfg.ListOpt(
        "wings",
        default=[],
        help=(
            "Further parts of the cloud that conductors and compute hosts load: dns, load_balancer, trunks. Set it on "
            "all of them, and add the API of the same name to [api] enabled_apis. The network API serves trunks: "
            "set it where that API runs, too."
        ),
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=1,
        help=(
            "Seconds between two heartbeats of a daemon. Raise it to reduce the load of thousands of hosts, "
            "together with service_down_time."
        ),
    ),
    cfg.IntOpt(
        "service_down_time",
        default=30,
        min=2,
        help=(
            "Seconds without a heartbeat after which a daemon counts as down (the host lease). Use at least "
            "twice report_interval."
        ),
    ),
    cfg.StrOpt(
        "log_format",
        default=structured_logs.TEXT,
        choices=structured_logs.FORMATS,
        help=(
            "Format of the log. Use journal where systemd runs, for entries of its journal with the fields "
            "NOVA_LITE_REQUEST_ID and NOVA_LITE_INSTANCE, or json for one JSON object a line, which other programs "
            "collect."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"DEFAULT": OPTS}
