"""Permissions of each daemon's RabbitMQ account.

RabbitMQ checks names against three patterns (configure: declare and delete; write: publish to an exchange, bind a
queue; read: consume, bind to an exchange). For a topic exchange it checks routing keys against two more.
Permissions do not prevent everything (docs/explanation/security-model.md): a daemon that replies to calls may publish
to the default exchange, and so to any queue.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite.rpc.keys import API, COMPUTE, CONDUCTOR, CONSOLE, MANAGE, METADATA, SCHEDULER, check_name

#: The exchange of all messages except replies.
EXCHANGE = "nova_lite"

_NOTHING = "^$"

#: The topics that a role sends to. ``HOST`` stands for its own host's name; daemons call their own servers.
_SENDS_TO = {
    API: (r"conductor", r"compute\..+"),
    CONDUCTOR: (r"conductor(\.HOST)?", r"scheduler", r"compute\..+"),
    SCHEDULER: (r"conductor", r"scheduler(\.HOST)?"),
    COMPUTE: (r"conductor", r"compute\.HOST"),
    CONSOLE: (r"conductor", r"compute\..+"),
    METADATA: (r"conductor",),
    MANAGE: (r"conductor", r"compute\..+"),
}
#: The roles with a server on the topic of their name.
_SERVERS = (CONDUCTOR, SCHEDULER, COMPUTE)


class Permissions(msgspec.Struct, kw_only=True):
    """Regular expressions for ``rabbitmqctl set_permissions`` and ``set_topic_permissions`` (of `EXCHANGE`)."""

    configure: str
    write: str
    read: str
    topic_write: str
    topic_read: str


class NotificationNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of notifications at the broker, with the defaults of the options.

    ``exchange``, ``versioned_topics``: of conductors. ``topics``: of unversioned notifications, and of the scheduler's.
    """

    exchange: str = "nova"
    versioned_topics: tuple[str, ...] = ("versioned_notifications",)
    topics: tuple[str, ...] = ("notifications",)


def reply_queues(role: str, host: str) -> str:
    """Return the prefix of the reply queues of a daemon; the rest of their names is random."""
    return f"reply_{role}.{host}."


def permissions(role: str, host: str, names: NotificationNames | None = None) -> Permissions:
    """Return the permissions of a daemon's account, with those for notifications if the role sends any.

    Raises `InvalidInput` for a name that no daemon can have.
    """
    names = names or NotificationNames()
    check_name(role, host)
    name = re.escape(host)
    replies = re.escape(reply_queues(role, host)) + "[0-9a-f]+"
    exchanges, queues = [EXCHANGE], [replies]
    write, bound = [], _NOTHING
    if role in _SERVERS:
        queues += [role, rf"{role}\.{name}", rf"{role}_fanout_[0-9a-f]+"]
        exchanges.append(f"{role}_fanout")
        write = ["amq\\.default"]
        bound = rf"{role}(\.{name})?"
    notified, keys = ["scheduler_fanout"] if role == CONDUCTOR else [], []
    if role == CONDUCTOR:
        exchanges.append(re.escape(names.exchange))
        notified.append(re.escape(names.exchange))
        queues += _priorities(*names.versioned_topics, *names.topics)
    if role == SCHEDULER:
        keys = _priorities(*names.topics)
        queues += keys
    return Permissions(
        configure=_any(*dict.fromkeys((*exchanges, *notified, *queues))),
        write=_any(EXCHANGE, *notified, *queues, *write),
        read=_any(*(exchanges if role in _SERVERS else ()), *queues),
        topic_write=_any(*(topic.replace("HOST", name) for topic in _SENDS_TO[role]), *keys),
        topic_read=bound if bound == _NOTHING else _any(bound, *keys),
    )


def _priorities(*topics: str) -> list[str]:
    """Return patterns of the queues and routing keys of topics of notifications."""
    return [rf"{re.escape(topic)}\.(info|error)" for topic in topics]


def _any(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon's account: ``user`` and ``password`` at the broker, of the daemon ``role`` on ``host``.

    ``password_hash``: what `hashed` made of the password, if only the daemon knows that.
    """

    user: str
    password: str = ""
    role: str
    host: str
    password_hash: str = ""


def definitions(vhost: str, accounts: Iterable[Account]) -> dict[str, list[dict[str, Any]]]:
    """Return the accounts as rabbitmqctl imports them, with salted hashes instead of passwords."""
    made: dict[str, list[dict[str, Any]]] = {"users": [], "permissions": [], "topic_permissions": []}
    for account in accounts:
        found = permissions(account.role, account.host)
        user = {"name": account.user, "password_hash": account.password_hash or hashed(account.password), "tags": []}
        made["users"].append(user | {"hashing_algorithm": "rabbit_password_hashing_sha256"})
        who = {"user": account.user, "vhost": vhost}
        made["permissions"].append(who | {"configure": found.configure, "write": found.write, "read": found.read})
        made["topic_permissions"].append(
            who | {"exchange": EXCHANGE, "write": found.topic_write, "read": found.topic_read}
        )
    return made


def hashed(password: str) -> str:
    """Return a salted hash of a password, as RabbitMQ stores it."""
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
