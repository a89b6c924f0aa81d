"""``[identity]``: users and tokens of a cloud without Keystone (``[api] auth_strategy`` standalone or http_basic)."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "users_file",
        default="/etc/nova-lite/users.yaml",
        help="Users, projects and roles; nova-lite-manage user and project write it. It is read again when it changes.",
    ),
    cfg.StrOpt(
        "tokens_path",
        default="$state_path/identity",
        help="Directory of the keys that tokens are made with, and of the tokens that were revoked. Whoever reads the "
        "keys can be anybody. Several API machines have to share it.",
    ),
    cfg.IntOpt("token_expiration", default=3600, min=60, help="Seconds that a token is good for."),
    cfg.IntOpt(
        "max_active_keys",
        default=3,
        min=2,
        help="Keys that are kept when a new one is made. A token is only good as long as its key is there: rotate keys "
        "more seldom than token_expiration.",
    ),
    cfg.StrOpt("region", default="RegionOne", help="The region that the catalog names."),
    cfg.URIOpt(
        "compute_endpoint",
        schemes=["http", "https"],
        help="URL of the compute API in the catalog; by default made of [api] listen (my_ip, if that is every "
        "address) and port.",
    ),
    cfg.URIOpt(
        "image_endpoint",
        schemes=["http", "https"],
        help="URL of the image API in the catalog; by default made of [api] image_listen and image_port.",
    ),
    cfg.URIOpt(
        "volume_endpoint",
        schemes=["http", "https"],
        help="URL of the volume API in the catalog; by default made of [api] volume_listen and volume_port.",
    ),
    cfg.URIOpt(
        "network_endpoint",
        schemes=["http", "https"],
        help="URL of the network API in the catalog; by default made of [api] network_listen and network_port.",
    ),
    cfg.URIOpt(
        "identity_endpoint",
        schemes=["http", "https"],
        help="URL of the identity API in the catalog; by default made of [api] identity_listen and identity_port.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="identity")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"identity": OPTS}
