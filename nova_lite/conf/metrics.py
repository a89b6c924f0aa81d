"""``[metrics]``: the endpoints of each daemon for Prometheus and supervisors."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

#: Option and default port by daemon. Each further worker of an API has the next port.
PORTS = {
    "nova-lite-conductor": ("conductor_port", 9770),
    "nova-lite-scheduler": ("scheduler_port", 9771),
    "nova-lite-compute": ("compute_port", 9772),
    "nova-lite-api": ("api_port", 9780),
    "nova-lite-novncproxy": ("novncproxy_port", 9768),
    "nova-lite-serialproxy": ("serialproxy_port", 9769),
    "nova-lite-spicehtml5proxy": ("spicehtml5proxy_port", 9767),
}

OPTS = [
    cfg.BoolOpt("enabled", default=True, help="Serve /metrics, /healthz and /readyz, without authentication."),
    cfg.HostAddressOpt(
        "listen",
        default="127.0.0.1",
        help=("Address of these endpoints. Set it to an address that Prometheus reaches, and restrict access to it."),
    ),
    cfg.IntOpt(
        "servers",
        default=0,
        min=0,
        max=100_000,
        help=(
            "Number of running servers whose CPU, memory, disks and network a compute host adds to its metrics at "
            "most, with ten series each. Their labels are the ids of server and project. Set it on the hosts if you "
            "watch single servers and only Prometheus reaches these endpoints; 0 shows no server."
        ),
    ),
    *(cfg.PortOpt(name, default=port, help=f"Port of {binary}.") for binary, (name, port) in PORTS.items()),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="metrics")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"metrics": OPTS}
