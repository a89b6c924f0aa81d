"""``[oidc]``: OpenID Connect providers whose users log in to the built-in identity service."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

GROUP = "oidc"

#: Algorithms of signatures that can be allowed: only those with a key pair.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

OPTS = [
    cfg.ListOpt(
        "issuers",
        default=[],
        help=(
            "URLs of the providers whose tokens are accepted, as in the claim iss: https, or http on this machine. An "
            "identity provider of the API needs one of them in its remote_ids. Empty: no provider. Set it to let "
            "users of a provider log in."
        ),
    ),
    cfg.ListOpt(
        "audiences",
        default=[],
        help=(
            "Values of the claim aud of which a token needs one, such as the id of the client at the provider. A token "
            "for other applications of the provider is refused. Set it with issuers."
        ),
    ),
    cfg.ListOpt(
        "algorithms",
        item_type=types.String(choices=ALGORITHMS),
        default=["RS256", "PS256", "ES256"],
        help="Algorithms of signatures that are accepted. Change it if your provider uses others.",
    ),
    cfg.StrOpt(
        "ca_file",
        default="",
        help=(
            "File with the certificates of the authorities that sign for the providers. Empty: those of the system. "
            "Set it for an authority of your own."
        ),
    ),
    cfg.StrOpt(
        "introspection_client_id",
        default="",
        help=(
            "Id of the client that lets the provider check tokens that are no JWT (RFC 7662). Empty: such tokens are "
            "refused. Set it if your provider issues them."
        ),
    ),
    cfg.StrOpt(
        "introspection_secret_file",
        default="",
        help=(
            "File with the secret of introspection_client_id. Only the API daemon's user may read it. Set it with "
            "introspection_client_id."
        ),
    ),
    cfg.StrOpt(
        "page_client_id",
        default="",
        help=(
            "Id of the web page's client at the providers. Its redirect URI is the page's URL with /login/callback. "
            "Empty: the page offers no log-in by a provider. Set it to offer them."
        ),
    ),
    cfg.StrOpt(
        "page_client_secret_file",
        default="",
        help=(
            "File with the secret of page_client_id. Only the API daemon's user may read it. Empty: a public client, "
            "which PKCE protects alone."
        ),
    ),
    cfg.StrOpt(
        "page_scope",
        default="openid",
        help="Scopes that the page requests. Add the scopes of your mapping's claims, such as profile and email.",
    ),
    cfg.StrOpt(
        "page_token_type",
        default="access_token",
        choices=["access_token", "id_token"],
        help="Token of the provider that the page logs in with. Set id_token if access tokens are no JWT.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
