"""``[vnc]``, ``[serial_console]``, ``[console]``, ``[consoleauth]``: consoles of guests, and the proxies to them."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

DEFAULT_OPTS = [
    cfg.StrOpt(
        "web", default="/usr/share/novnc", help="Directory of noVNC's files, which nova-lite-novncproxy serves."
    ),
    cfg.StrOpt(
        "cert",
        help="File with the certificate of nova-lite-novncproxy and nova-lite-serialproxy, and those that it is signed "
        "by. With it they speak TLS alone; without it browsers get their consoles unencrypted.",
    ),
    cfg.StrOpt("key", help="File with the key of cert, if it is not in the same."),
]

VNC_OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Guests have a screen, which is served by VNC. A change is for guests that are made from then on.",
    ),
    cfg.HostAddressOpt(
        "server_listen",
        default="127.0.0.1",
        help="Address of this host that its guests' VNC servers listen on. They ask nobody for a password: only "
        "nova-lite-novncproxy should reach it.",
    ),
    cfg.HostAddressOpt(
        "server_proxyclient_address",
        default="127.0.0.1",
        help="Address that nova-lite-novncproxy reaches this host's VNC servers by.",
    ),
    cfg.URIOpt(
        "novncproxy_base_url",
        default="http://127.0.0.1:6080/vnc_lite.html",
        schemes=["http", "https"],
        help="Where users reach nova-lite-novncproxy; read by compute hosts. vnc_lite.html connects by itself; "
        "vnc.html?autoconnect=true has more buttons.",
    ),
    cfg.HostAddressOpt("novncproxy_host", default="127.0.0.1", help="Address that nova-lite-novncproxy listens on."),
    cfg.PortOpt("novncproxy_port", default=6080, help="Port that nova-lite-novncproxy listens on."),
]

SERIAL_OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Guests' first serial port can be used through nova-lite-serialproxy; what they print is logged all the "
        "same. A change is for guests that are made from then on.",
    ),
    cfg.StrOpt(
        "port_range",
        default="10000:20000",
        regex=r"^\d{1,5}:\d{1,5}$",
        help="First and last port of this host that serial consoles may listen on.",
    ),
    cfg.HostAddressOpt(
        "proxyclient_address",
        default="127.0.0.1",
        help="Address of this host that serial consoles listen on, and that nova-lite-serialproxy reaches them by. "
        "They ask nobody for a password: only the proxy should reach it.",
    ),
    cfg.URIOpt(
        "base_url",
        default="ws://127.0.0.1:6083/",
        schemes=["ws", "wss"],
        help="Where users reach nova-lite-serialproxy; read by compute hosts.",
    ),
    cfg.HostAddressOpt("serialproxy_host", default="127.0.0.1", help="Address that nova-lite-serialproxy listens on."),
    cfg.PortOpt("serialproxy_port", default=6083, help="Port that nova-lite-serialproxy listens on."),
]

CONSOLE_OPTS = [
    cfg.ListOpt(
        "allowed_origins",
        default=[],
        help="Names of hosts whose pages may open consoles in a browser, besides the proxy's own as the browser knows "
        "it: a dashboard, say.",
    ),
    cfg.IntOpt(
        "handshake_timeout",
        default=30,
        min=1,
        help="Seconds that a client of a console proxy has for a request, from its connection or its last answer on.",
    ),
    cfg.IntOpt(
        "max_connections",
        default=400,
        min=1,
        max=450,
        help="Connections of clients that a console proxy has at a time; others are hung up on.",
    ),
]

AUTH_OPTS = [
    cfg.IntOpt("token_ttl", default=600, min=1, help="Seconds for which the URL of a console can be opened, once."),
    cfg.IntOpt(
        "tokens_per_instance",
        default=20,
        min=1,
        help="URLs of consoles that a server may have which were not opened yet; of more the oldest is void.",
    ),
]

_GROUPS: dict[str, Sequence[cfg.Opt]] = {
    "DEFAULT": DEFAULT_OPTS,
    "vnc": VNC_OPTS,
    "serial_console": SERIAL_OPTS,
    "console": CONSOLE_OPTS,
    "consoleauth": AUTH_OPTS,
}


def register_opts(conf: cfg.ConfigOpts) -> None:
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=None if group == "DEFAULT" else group)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return dict(_GROUPS)
