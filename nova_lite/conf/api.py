"""``[api]``: the REST daemon."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.ListOpt(
        "enabled_apis",
        default=["osapi_compute"],
        help="Paste applications to serve: osapi_compute, identity (users and tokens without Keystone), image (images "
        "without Glance), volume (volumes without Cinder), network (networks without Neutron), metadata (what guests "
        "ask about themselves).",
    ),
    cfg.HostAddressOpt("listen", default="127.0.0.1", help="Address the compute API listens on."),
    cfg.PortOpt("port", default=8774, help="Port the compute API listens on."),
    cfg.IntOpt("workers", default=1, min=1, help="Processes that serve the compute API."),
    cfg.IntOpt(
        "threads",
        default=32,
        min=1,
        help="Requests that one process works on at a time, when it runs with native threads.",
    ),
    cfg.FloatOpt(
        "request_deadline",
        default=20.0,
        min=1.0,
        help="Seconds that a client may keep an API waiting for one request, headers and body, and one more for each "
        "16 KiB of it.",
    ),
    cfg.IntOpt(
        "max_connections_per_client",
        default=400,
        min=1,
        help="Connections that one address may have to each API of a worker. Behind a proxy all clients have one.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=100,
        min=1,
        help="Requests that may wait for one of threads, in each process. Of more the least important ones are told "
        "503: lists, reads, changes, deletes. With native threads only.",
    ),
    cfg.FloatOpt(
        "max_wait",
        deprecated_name="longest_wait",
        default=5.0,
        min=0.1,
        help="Seconds after which a request that still waits for a thread gets 503.",
    ),
    cfg.HostAddressOpt("identity_listen", default="127.0.0.1", help="Address the identity API listens on."),
    cfg.PortOpt("identity_port", default=5000, help="Port the identity API listens on."),
    cfg.HostAddressOpt("image_listen", default="127.0.0.1", help="Address the image API listens on."),
    cfg.PortOpt("image_port", default=9292, help="Port the image API listens on."),
    cfg.HostAddressOpt("volume_listen", default="127.0.0.1", help="Address the volume API listens on."),
    cfg.PortOpt("volume_port", default=8776, help="Port the volume API listens on."),
    cfg.HostAddressOpt("network_listen", default="127.0.0.1", help="Address the network API listens on."),
    cfg.PortOpt("network_port", default=9696, help="Port the network API listens on."),
    cfg.ListOpt("enabled_ssl_apis", default=[], help="Those of enabled_apis that are served over TLS."),
    cfg.StrOpt("ssl_cert_file", help="PEM file with the server's certificate, and the chain it needs."),
    cfg.StrOpt("ssl_key_file", help="PEM file with the certificate's private key."),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        default=30,
        min=1,
        help="Seconds that requests have to end in when the daemon is told to stop.",
    ),
    cfg.StrOpt("paste_config", default="/etc/nova-lite/api-paste.ini", help="The paste.deploy file."),
    cfg.StrOpt(
        "auth_strategy",
        default="standalone",
        help="Which pipeline of the paste file is used. noauth2 believes every token and is refused on any address "
        "but loopback ones; standalone takes the tokens of the identity API; keystone has Keystone check tokens "
        "([keystone_authtoken]); http_basic takes a user's name and password with each request.",
    ),
    cfg.IntOpt("max_limit", default=1000, min=1, help="Most items that one page of a list holds."),
    cfg.FloatOpt(
        "flavor_cache_seconds",
        deprecated_name="flavors_kept",
        default=1.0,
        min=0.0,
        help="Seconds for which a worker caches flavors. A change through the same worker is visible at once, a change "
        "through another worker or nova-lite-manage after these seconds at the latest. 0 turns the cache off.",
    ),
    cfg.URIOpt(
        "compute_link_prefix",
        schemes=["http", "https"],
        help="URL that links start with, when a proxy hides the API's own.",
    ),
    cfg.BoolOpt(
        "enable_instance_password",
        default=True,
        help="Tell the adminPass of a new server in the answer to its create.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="api")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"api": OPTS}
