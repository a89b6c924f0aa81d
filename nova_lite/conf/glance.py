"""``[glance]``: where Glance is, and as whom compute hosts read from it (``[image] backend = glance``)."""

from __future__ import annotations

from collections.abc import Sequence

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = "glance"

OPTS = [
    cfg.IntOpt(
        "num_retries",
        default=3,
        min=0,
        help="How often a compute host begins a download again that broke off or did not have the image's checksum. "
        "After that, another host tries.",
    ),
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(include_deprecated=False),
]
cfg.set_defaults(
    OPTS,
    service_type="image",
    valid_interfaces=["internal", "public"],
    timeout=60.0,
    connect_retries=2,
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}


def plugin_opts() -> list[cfg.Opt]:
    """For the sample: what ``auth_type = password`` takes. keystoneauth registers the options of the plugin in use."""
    options: list[cfg.Opt] = loading.get_auth_plugin_conf_options("password")
    return options
