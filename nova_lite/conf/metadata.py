"""``[api]``, ``[neutron]``: the metadata service, and what it and config drives tell guests."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.HostAddressOpt(
        "metadata_listen",
        default="127.0.0.1",
        help=(
            "Address the metadata API listens on for Neutron's metadata agent, or for a proxy with use_forwarded_for. "
            "Guests of built-in networks need none: they reach the API on their networks."
        ),
    ),
    cfg.PortOpt(
        "metadata_listen_port",
        default=8775,
        help="Port the metadata API listens on for them.",
    ),
    cfg.IntOpt(
        "metadata_cache_expiration",
        default=15,
        min=0,
        help="Seconds for which the metadata API caches a server. 0: no cache.",
    ),
    cfg.IntOpt(
        "metadata_requests_per_minute",
        default=600,
        min=0,
        help=("Number of requests per minute that a worker of the metadata API accepts from one guest. 0: unlimited."),
    ),
    cfg.BoolOpt(
        "use_forwarded_for",
        default=False,
        help=(
            "Serve a proxy at metadata_listen, and use the last address in its X-Forwarded-For as the guest's. An "
            "address that several networks have is no guest's. Enable it only if no other program reaches that "
            "address: a client that sets the header can read any guest's data."
        ),
    ),
    cfg.StrOpt(
        "vendordata_jsonfile_path",
        help="File with a JSON object that all guests get as vendor data. Read by APIs and compute.",
    ),
    cfg.ListOpt(
        "vendordata_dynamic_targets",
        default=[],
        help=(
            "Services that return vendor data for each guest, as NAME@URL. The response of NAME is below NAME "
            "in vendor_data2.json. Read by APIs and compute."
        ),
    ),
    cfg.IntOpt(
        "vendordata_dynamic_connect_timeout",
        default=5,
        min=1,
        help="Seconds in which such a service has to accept a connection.",
    ),
    cfg.IntOpt(
        "vendordata_dynamic_read_timeout", default=5, min=1, help="Seconds in which such a service has to respond."
    ),
]

NEUTRON_OPTS = [
    cfg.BoolOpt(
        "service_metadata_proxy",
        default=False,
        help=(
            "Accept requests from Neutron's metadata agent, which names and signs the guest. Source addresses "
            "then mean nothing."
        ),
    ),
    cfg.StrOpt(
        "metadata_proxy_shared_secret",
        default="",
        secret=True,
        help="Secret with which the agent signs.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="api")
    conf.register_opts(NEUTRON_OPTS, group="neutron")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"api": OPTS, "neutron": NEUTRON_OPTS}
