"""``[vnc]``, ``[spice]``, ``[serial_console]``, ``[console]``, ``[consoleauth]``: consoles and their proxies."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

#: Default of ``[DEFAULT] web`` for nova-lite-spicehtml5proxy.
SPICE_WEB = "/usr/share/spice-html5"

DEFAULT_OPTS = [
    cfg.StrOpt(
        "web",
        default="/usr/share/novnc",
        help=(
            "Directory of noVNC's files, which nova-lite-novncproxy serves. For nova-lite-spicehtml5proxy that of "
            f"spice-html5; default there: {SPICE_WEB}."
        ),
    ),
    cfg.StrOpt(
        "cert",
        help=(
            "PEM file with the certificate of the console proxies, and its chain. "
            "With it they speak TLS only. Without it consoles are unencrypted."
        ),
    ),
    cfg.StrOpt("key", help="PEM file with the key of cert, if it is not in the same file."),
]

VNC_OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help=("Give guests a screen, served by VNC. A change affects guests that are created or recreated later."),
    ),
    cfg.HostAddressOpt(
        "server_listen",
        default="127.0.0.1",
        help=(
            "Address of this host that its guests' VNC servers listen on. They have no password, so only "
            "nova-lite-novncproxy may reach it."
        ),
    ),
    cfg.HostAddressOpt(
        "server_proxyclient_address",
        default="127.0.0.1",
        help="Address by which nova-lite-novncproxy reaches this host's VNC servers.",
    ),
    cfg.URIOpt(
        "novncproxy_base_url",
        default="http://127.0.0.1:6080/vnc_lite.html",
        schemes=["http", "https"],
        help=(
            "URL by which users reach nova-lite-novncproxy; read by compute hosts. vnc_lite.html connects "
            "automatically; vnc.html?autoconnect=true has more buttons."
        ),
    ),
    cfg.HostAddressOpt("novncproxy_host", default="127.0.0.1", help="Address that nova-lite-novncproxy listens on."),
    cfg.PortOpt("novncproxy_port", default=6080, help="Port that nova-lite-novncproxy listens on."),
]

SPICE_OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help=(
            "Give guests a screen, served by SPICE, with a QXL graphics card and a channel for SPICE's agent. [vnc] "
            "enabled may be on, too. A change affects guests that are created or recreated later."
        ),
    ),
    cfg.HostAddressOpt(
        "server_listen",
        default="127.0.0.1",
        help=(
            "Address of this host that its guests' SPICE servers listen on. They have no password, with and without "
            "TLS, so only the proxies may reach it."
        ),
    ),
    cfg.HostAddressOpt(
        "server_proxyclient_address",
        default="127.0.0.1",
        help="Address by which the proxies reach this host's SPICE servers.",
    ),
    cfg.BoolOpt(
        "require_secure",
        default=False,
        help=(
            "Guests' SPICE servers have a port with TLS alone. Set it once qemu.conf has spice_tls. A change affects "
            "guests that are created or recreated later."
        ),
    ),
    cfg.URIOpt(
        "html5proxy_base_url",
        default="http://127.0.0.1:6082/spice_auto.html",
        schemes=["http", "https"],
        help="URL by which users reach nova-lite-spicehtml5proxy; read by compute hosts.",
    ),
    cfg.URIOpt(
        "spice_direct_proxy_base_url",
        default="http://127.0.0.1:13002/nova",
        schemes=["http", "https"],
        help=(
            "URL by which users reach a proxy that speaks SPICE with their clients, such as Kerbside, for consoles of "
            "the type spice-direct; read by compute hosts. The proxy is no part of nova_lite."
        ),
    ),
    cfg.HostAddressOpt(
        "html5proxy_host", default="127.0.0.1", help="Address that nova-lite-spicehtml5proxy listens on."
    ),
    cfg.PortOpt("html5proxy_port", default=6082, help="Port that nova-lite-spicehtml5proxy listens on."),
]

SERIAL_OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help=(
            "Offer guests' first serial port through nova-lite-serialproxy. The console log does not depend "
            "on it. A change affects guests that are created or recreated later."
        ),
    ),
    cfg.BoolOpt(
        "tls",
        default=False,
        help=(
            "Serial ports speak TLS, and accept only nova-lite-serialproxy's certificate. Set it once qemu.conf names "
            "the host's certificates and the proxies have [console] tls_directory. A change affects guests that are "
            "created or recreated later."
        ),
    ),
    cfg.StrOpt(
        "port_range",
        default="10000:20000",
        regex=r"^\d{1,5}:\d{1,5}$",
        help="First and last port of this host for serial consoles.",
    ),
    cfg.HostAddressOpt(
        "proxyclient_address",
        default="127.0.0.1",
        help=(
            "Address of this host that serial consoles listen on, and by which nova-lite-serialproxy reaches "
            "them. They have no password, so only the proxy may reach it."
        ),
    ),
    cfg.URIOpt(
        "base_url",
        default="ws://127.0.0.1:6083/",
        schemes=["ws", "wss"],
        help="URL by which users reach nova-lite-serialproxy; read by compute hosts.",
    ),
    cfg.HostAddressOpt("serialproxy_host", default="127.0.0.1", help="Address that nova-lite-serialproxy listens on."),
    cfg.PortOpt("serialproxy_port", default=6083, help="Port that nova-lite-serialproxy listens on."),
]

CONSOLE_OPTS = [
    cfg.StrOpt(
        "tls_directory",
        help=(
            "Directory of the console proxies' certificate for hosts (nova-lite-manage certificates proxy). With it "
            "they reach consoles by TLS. Unset: screens and keys cross the network in plain text."
        ),
    ),
    cfg.BoolOpt(
        "require_tls",
        default=True,
        help=(
            "With tls_directory: refuse consoles without TLS. Set it to false while some hosts or guests do not have "
            "it yet."
        ),
    ),
    cfg.ListOpt(
        "allowed_origins",
        default=[],
        help=(
            "Host names of pages that may open consoles in a browser, in addition to the proxy's own. Add a "
            "dashboard's name here."
        ),
    ),
    cfg.IntOpt(
        "max_connections",
        default=400,
        min=1,
        max=450,
        help="Largest number of connections to a console proxy; further ones are closed.",
    ),
    cfg.IntOpt(
        "max_connections_per_client",
        default=50,
        min=1,
        help=(
            "Largest number of connections of one client to a console proxy: of an IPv4 address, or of an IPv6 network "
            "of 64 bits. It leaves room for other clients. Behind a proxy all clients share one address, so raise it "
            "to max_connections there."
        ),
    ),
]

AUTH_OPTS = [
    cfg.IntOpt("token_ttl", default=600, min=1, help="Seconds for which the URL of a console can be opened."),
]

_GROUPS: dict[str, Sequence[cfg.Opt]] = {
    "DEFAULT": DEFAULT_OPTS,
    "vnc": VNC_OPTS,
    "spice": SPICE_OPTS,
    "serial_console": SERIAL_OPTS,
    "console": CONSOLE_OPTS,
    "consoleauth": AUTH_OPTS,
}


def register_opts(conf: cfg.ConfigOpts) -> None:
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=None if group == "DEFAULT" else group)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return dict(_GROUPS)
