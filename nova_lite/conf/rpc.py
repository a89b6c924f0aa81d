"""``[rpc]``: how messages are signed, and how a daemon finds out that they do not come, or that there are too many."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "signing",
        choices=[
            ("required", "what is not signed is refused"),
            ("permissive", "what is sent is signed; what comes in unsigned is taken, and told once in the log"),
            ("off", "nothing is signed or verified"),
        ],
        help="Whether messages between daemons are signed and verified. Without this option: required where "
        "keys_directory is set, else off.",
    ),
    cfg.StrOpt(
        "keys_directory",
        help="Where the daemon's own key is (ROLE.HOST.key, mode 0600), and the list of the public keys that are "
        "trusted (trusted.json, the same everywhere). nova-lite-manage keys makes both.",
    ),
    cfg.IntOpt(
        "signature_lifetime",
        default=300,
        min=30,
        help="Seconds for which a message may be on its way. What has waited longer is refused; what matters of it is "
        "sent again.",
    ),
    cfg.IntOpt(
        "clock_skew",
        default=30,
        min=0,
        help="Seconds by which two machines' clocks may differ. Messages of one whose clock is further ahead are "
        "refused, with a line in the log that says by how much.",
    ),
    cfg.IntOpt(
        "replay_cache_size",
        deprecated_name="remembered_messages",
        default=100_000,
        min=1000,
        help="Message ids of each sender that the replay cache holds for signature_lifetime, so that no message is "
        "accepted twice. When it is full, it drops the oldest ids and refuses messages of their age.",
    ),
    cfg.IntOpt(
        "self_check_interval",
        default=20,
        min=0,
        help="Seconds between two calls of a daemon to itself, through the broker; also how long it waits for its "
        "answer. 0: it does not check.",
    ),
    cfg.IntOpt(
        "self_check_misses",
        default=3,
        min=2,
        help="Calls in a row without an answer, while the broker takes connections, after which the daemon drops its "
        "connections and makes new ones. What it is at goes on.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=200,
        min=1,
        help="Messages that may wait in a daemon for a thread (executor_thread_pool_size). Of more, users' calls to a "
        "conductor are refused (503), the least important ones first: lists, reads, changes, deletes.",
    ),
    cfg.IntOpt(
        "max_user_calls",
        deprecated_name="user_calls",
        default=8,
        min=1,
        help="Calls of users that a conductor carries out at the same time, besides deletes. More of them would only "
        "wait for the interpreter and for each other's rows.",
    ),
    cfg.FloatOpt(
        "max_wait",
        deprecated_name="longest_wait",
        default=2.0,
        min=0.1,
        help="Seconds after which a user's call to a conductor that still waits for a thread is refused.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="rpc")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"rpc": OPTS}
