"""``[rpc]``: how messages are signed, and how a daemon finds out that they do not come, or that there are too many."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "signing",
        choices=[
            ("required", "what is not signed is refused"),
            ("permissive", "what is sent is signed; what comes in unsigned is taken, and logged once"),
            ("off", "nothing is signed or verified"),
        ],
        help=(
            "Sign and verify messages between daemons. Default: required if keys_directory is set, else off. "
            "permissive is for the change from off to required."
        ),
    ),
    cfg.StrOpt(
        "keys_directory",
        help=(
            "Directory of the daemon's own key (ROLE.HOST.key, mode 0600) and the list of trusted public keys "
            "(trusted.json, the same everywhere). nova-lite-manage keys creates both."
        ),
    ),
    cfg.StrOpt(
        "trust_address",
        help=(
            "HOST:PORT of a join API, from which a compute host fetches the list of trusted public keys. "
            "nova-lite-setup compute sets it. Unset: the operator distributes the list."
        ),
    ),
    cfg.StrOpt(
        "trust_ca_file",
        help="PEM file with the certificate of the authority that signs the list of trust_address and its server.",
    ),
    cfg.IntOpt(
        "signature_lifetime",
        default=300,
        min=30,
        help="Seconds for which a message is valid. Older ones are refused; important ones are sent again.",
    ),
    cfg.IntOpt(
        "clock_skew",
        default=30,
        min=0,
        help=(
            "Seconds by which two machines' clocks may differ. Messages from further ahead are refused, and a "
            "log line reports the difference."
        ),
    ),
    cfg.IntOpt(
        "self_check_interval",
        default=20,
        min=0,
        help=(
            "Seconds between two calls of a daemon to itself through the broker, and the timeout of each. 0: no check."
        ),
    ),
    cfg.IntOpt(
        "self_check_misses",
        default=3,
        min=2,
        help=(
            "Number of unanswered calls in a row, while the broker accepts connections, after which the "
            "daemon reconnects. Its running work continues."
        ),
    ),
    cfg.IntOpt(
        "max_waiting",
        default=200,
        min=1,
        help=(
            "Number of messages that may wait for a thread of a daemon (executor_thread_pool_size). Beyond "
            "it, users' calls to a conductor get 503, the least important ones first: lists, reads, changes, "
            "deletes."
        ),
    ),
    cfg.IntOpt(
        "max_user_calls",
        default=8,
        min=1,
        help=(
            "Number of users' calls that a conductor runs concurrently, besides deletes. More would wait for "
            "the interpreter and for row locks."
        ),
    ),
    cfg.StrOpt(
        "conductor_socket",
        help=(
            "Path of a Unix socket at which a conductor takes calls of the APIs on its machine, which halves the time "
            "of a read. The socket belongs to the group of its directory. Without a reply, and for messages to others, "
            "the APIs use the broker. Unset: they always do. nova-lite-setup sets it on a lone controller."
        ),
    ),
    cfg.FloatOpt(
        "max_wait",
        default=15.0,
        min=0.1,
        help=(
            "Seconds after which a user's call to a conductor that still waits for a thread is refused. Keep it below "
            "rpc_response_timeout: what no caller waits for any more is dropped."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="rpc")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"rpc": OPTS}
