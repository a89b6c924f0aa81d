"""``[neutron]``: URL and account for conductors' access to Neutron (``[network] backend = neutron``)."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.conf.service_client import client_opts

GROUP = "neutron"

OPTS = client_opts()
cfg.set_defaults(
    OPTS,
    service_type="network",
    valid_interfaces=["internal", "public"],
    timeout=20.0,
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
