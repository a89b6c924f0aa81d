"""``[api]``: the REST daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

#: Further APIs: their names in options, ports, and the ends of the options' help texts.
_FURTHER = (
    ("identity", 5000, "identity API listens on"),
    ("image", 9292, "image API listens on"),
    ("volume", 8776, "volume API listens on"),
    ("network", 9696, "network API listens on"),
    ("dns", 9001, "DNS API listens on"),
    ("load_balancer", 9876, "load balancer API listens on"),
    ("key_manager", 9311, "key manager API listens on"),
    ("placement", 8778, "Placement API listens on"),
    ("join", 8780, "join API listens on. Hosts fetch the list of keys there"),
    ("page", 8788, "web page listens on. Browsers open it"),
)

OPTS = [
    cfg.ListOpt(
        "enabled_apis",
        default=["osapi_compute"],
        help=(
            "Paste applications to serve: osapi_compute, identity (users and tokens without Keystone), image "
            "(images without Glance), volume (volumes without Cinder), network (networks without Neutron). "
            "Further ones are metadata (for guests), dns, load_balancer and key_manager (with [DEFAULT] wings), "
            "placement (to read), join (for new hosts), and page (the web page). "
            "Leave out a service that the real OpenStack service provides."
        ),
    ),
    cfg.HostAddressOpt(
        "listen",
        default="127.0.0.1",
        help=(
            "Address the compute API listens on. Set it to an address that clients reach; keep the default "
            "behind a local proxy."
        ),
    ),
    cfg.PortOpt("port", default=8774, help="Port the compute API listens on."),
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        help="Number of API processes. Raise it up to the number of CPUs when API processes are busy.",
    ),
    cfg.IntOpt(
        "threads",
        default=32,
        min=1,
        help=(
            "Number of concurrent requests of one process, with native threads only. Raise it when requests "
            "wait while CPUs are idle."
        ),
    ),
    cfg.FloatOpt(
        "request_deadline",
        default=20.0,
        min=1.0,
        help=(
            "Seconds in which a client has to send a request, headers and body, plus one second for each 16 "
            "KiB. Raise it for clients on slow links."
        ),
    ),
    cfg.IntOpt(
        "max_connections_per_client",
        default=400,
        min=1,
        help=(
            "Largest number of connections from one address, or from one IPv6 network of 64 bits, to each API of a "
            "worker. Behind a proxy without proxy_protocol_from all clients share one address, so raise it there."
        ),
    ),
    cfg.ListOpt(
        "proxy_protocol_from",
        default=[],
        help=(
            "Load balancers that send version 2 of the PROXY protocol: addresses, networks, or the word controllers "
            "for the controllers of this cloud. The client's address in their headers counts for limits and the "
            "audit log. They have to send the header with each connection: otherwise clients could send their own."
        ),
    ),
    cfg.IntOpt(
        "max_waiting",
        default=100,
        min=1,
        help=(
            "Largest number of requests that wait for a thread, in each process. Beyond it the least "
            "important ones get 503: lists, reads, changes, deletes. With native threads only."
        ),
    ),
    cfg.FloatOpt(
        "max_wait",
        default=20.0,
        min=0.1,
        help=(
            "Seconds after which a request that still waits for a thread gets 503. All threads wait while the only "
            "conductor restarts, so keep it above the time of a restart, and below the clients' timeout."
        ),
    ),
    *(
        cfg.HostAddressOpt(f"{name}_listen", default="127.0.0.1", help=f"Address the {text}.")
        for name, _, text in _FURTHER
    ),
    *(cfg.PortOpt(f"{name}_port", default=port, help=f"Port the {text}.") for name, port, text in _FURTHER),
    cfg.IntOpt(
        "page_streams",
        default=200,
        min=0,
        help=(
            "Largest number of open pages to which a process of this daemon reports changes as they happen, 8 of them "
            "of one user. Further ones ask every few seconds, as all do with 0. A stream has a connection, no thread."
        ),
    ),
    cfg.ListOpt(
        "page_console_urls",
        help=(
            "URLs of console proxies to which the web page may connect, such as https://console.example.org:6080. "
            "Consoles elsewhere open in a tab of their own. Unset: [vnc] novncproxy_base_url and [serial_console] "
            "base_url of this daemon."
        ),
    ),
    cfg.ListOpt(
        "enabled_ssl_apis",
        default=[],
        help="Names from enabled_apis that are served over TLS. They need ssl_cert_file and ssl_key_file.",
    ),
    cfg.StrOpt("ssl_cert_file", help="PEM file with the server's certificate and its chain."),
    cfg.StrOpt("ssl_key_file", help="PEM file with the certificate's private key."),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        default=30,
        min=1,
        help="Seconds for which a stopping daemon waits for its requests.",
    ),
    cfg.StrOpt("paste_config", default="/etc/nova-lite/api-paste.ini", help="File of the paste.deploy pipelines."),
    cfg.StrOpt(
        "auth_strategy",
        default="standalone",
        help=(
            "Pipeline of the paste file. Use standalone for tokens of the identity API. Use keystone for "
            "tokens that Keystone checks ([keystone_authtoken]). Use http_basic for user name and password "
            "with each request. Use noauth2, which believes every token, only for tests on loopback "
            "addresses."
        ),
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        help="Largest number of items on one page of a list. Lower it to bound the cost of a list.",
    ),
    cfg.IntOpt(
        "max_servers_per_request",
        default=1000,
        min=1,
        help="Largest number of servers that one request creates. A larger max_count counts as this one, as it does "
        "with a quota; a larger min_count is refused. Raise it if the database writes so many servers in one "
        "transaction quickly.",
    ),
    cfg.URIOpt(
        "compute_link_prefix",
        schemes=["http", "https"],
        help="URL that links in responses start with. Set it when a proxy hides the API's own URL.",
    ),
    cfg.BoolOpt(
        "enable_instance_password",
        default=True,
        help=(
            "Return the adminPass of a new server in the response to its create. Disable it when a proxy logs "
            "responses."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="api")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"api": OPTS}
