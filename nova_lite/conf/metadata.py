"""``[api]``, ``[neutron]``: the metadata service, and what it and config drives tell guests."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.HostAddressOpt(
        "metadata_listen",
        default="127.0.0.1",
        help="Address the metadata API listens on. One of 169.254.0.0/16 need not be there yet: compute hosts with "
        "[network] metadata_service give it to themselves. Then the same for APIs and compute.",
    ),
    cfg.PortOpt(
        "metadata_listen_port",
        default=8775,
        deprecated_name="metadata_port",
        help="Port the metadata API listens on. The same for APIs and compute.",
    ),
    cfg.IntOpt(
        "metadata_cache_expiration",
        default=15,
        min=0,
        help="Seconds for which the metadata API remembers a server. 0: it asks for each request.",
    ),
    cfg.IntOpt(
        "metadata_requests_per_minute",
        default=600,
        min=0,
        help="Requests that a worker of the metadata API takes of one guest within a minute. 0: any number.",
    ),
    cfg.BoolOpt(
        "use_forwarded_for",
        default=False,
        help="Take the last address in X-Forwarded-For for the guest's. Only behind a proxy that writes it, and when "
        "nobody else reaches the metadata API: who can write it reads what is any guest's.",
    ),
    cfg.StrOpt(
        "vendordata_jsonfile_path",
        help="File with a JSON object that all guests get as their vendor data. For APIs and compute.",
    ),
    cfg.ListOpt(
        "vendordata_dynamic_targets",
        default=[],
        help="Services that are asked about each guest, as NAME@URL; what NAME answers is below NAME in "
        "vendor_data2.json. For APIs and compute.",
    ),
    cfg.IntOpt(
        "vendordata_dynamic_connect_timeout", default=5, min=1, help="Seconds that such a service has to be reached in."
    ),
    cfg.IntOpt("vendordata_dynamic_read_timeout", default=5, min=1, help="Seconds that it has to answer in."),
]

NEUTRON_OPTS = [
    cfg.BoolOpt(
        "service_metadata_proxy",
        default=False,
        help="The metadata API is asked by Neutron's metadata agent, which says and signs whose request it is. Then "
        "the address that a request comes from says nothing.",
    ),
    cfg.StrOpt(
        "metadata_proxy_shared_secret",
        default="",
        secret=True,
        help="What the agent signs with.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="api")
    conf.register_opts(NEUTRON_OPTS, group="neutron")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"api": OPTS, "neutron": NEUTRON_OPTS}
