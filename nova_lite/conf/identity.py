"""``[identity]``: users and tokens of a cloud without Keystone (``[api] auth_strategy`` standalone or http_basic)."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

#: APIs with an URL in the catalog, and the prefixes of their options in ``[api]``.
_ENDPOINTS = {
    "compute": "",
    "image": "image_",
    "volume": "volume_",
    "network": "network_",
    "dns": "dns_",
    "load_balancer": "load_balancer_",
    "key_manager": "key_manager_",
    "placement": "placement_",
    "identity": "identity_",
}

OPTS = [
    cfg.StrOpt(
        "users_file",
        default="/etc/nova-lite/users.yaml",
        help=(
            "File in which an earlier version had users, projects and roles. It is stored in an empty database "
            "once, and not read afterwards. Change it only to import a file from elsewhere."
        ),
    ),
    cfg.StrOpt(
        "tokens_path",
        default="$state_path/identity",
        help=(
            "Directory in which an earlier version had the tokens' keys and revoked tokens. It is stored in the "
            "database with users_file. Change it only to import a directory from elsewhere."
        ),
    ),
    cfg.IntOpt("token_expiration", default=3600, min=60, help="Seconds for which a token is valid."),
    cfg.IntOpt(
        "max_active_keys",
        default=3,
        min=2,
        help=(
            "Number of keys that a rotation keeps. A token is valid only while its key exists, so rotate keys "
            "less often than token_expiration."
        ),
    ),
    cfg.IntOpt(
        "password_hash_cost",
        default=14,
        min=14,
        max=17,
        help=(
            "Cost of a password's hash by scrypt. The parameter N is 2 to this power. 14 takes 16 MiB and some 50 ms "
            "for each log-in, and each step twice of both. A hash with a lower cost is replaced when its user logs in. "
            "Raise it if stolen hashes worry you more than the load of log-ins. Each process checks four at a time."
        ),
    ),
    cfg.StrOpt("region", default="RegionOne", help="Name of the region in the catalog."),
    *(
        cfg.URIOpt(
            f"{name}_endpoint",
            schemes=["http", "https"],
            help=f"URL of the {name.replace('_', ' ')} API in the catalog. Default: from [api] {prefix}listen (my_ip, "
            f"if that is every address) and {prefix}port. Set it behind a proxy.",
        )
        for name, prefix in _ENDPOINTS.items()
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="identity")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"identity": OPTS}
