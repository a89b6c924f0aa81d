"""What each daemon needs of RabbitMQ, where each has an account of its own.

RabbitMQ asks three patterns about names (configure: declare and delete; write: publish to an exchange, bind a queue;
read: consume, bind to an exchange), and of a topic exchange two more about routing keys. What they cannot prevent is in
docs/explanation/security-model.md: who may answer calls may send to the default exchange, and so to any queue.
"""

from __future__ import annotations

import re

import msgspec

from nova_lite.rpc.keys import API, COMPUTE, CONDUCTOR, CONSOLE, MANAGE, SCHEDULER, check_name

#: The exchange of all messages that are no answers.
EXCHANGE = "nova_lite"

_NOTHING = "^$"

#: The topics that a role sends to; ``HOST`` stands for its own host's name, in itself a call to itself.
_SENDS_TO = {
    API: (r"conductor", r"compute\..+"),
    CONDUCTOR: (r"conductor(\.HOST)?", r"scheduler", r"compute\..+"),
    SCHEDULER: (r"conductor", r"scheduler(\.HOST)?"),
    COMPUTE: (r"conductor", r"compute\.HOST"),
    CONSOLE: (r"conductor", r"compute\..+"),
    MANAGE: (r"conductor", r"compute\..+"),
}
#: Those that have a server on the topic of their name.
_SERVERS = (CONDUCTOR, SCHEDULER, COMPUTE)


class Permissions(msgspec.Struct, kw_only=True):
    """Regular expressions for ``rabbitmqctl set_permissions`` and ``set_topic_permissions`` (of `EXCHANGE`)."""

    configure: str
    write: str
    read: str
    topic_write: str
    topic_read: str


def reply_queues(role: str, host: str) -> str:
    """How the names of the queues begin to which this daemon's calls are answered; the rest is random."""
    return f"reply_{role}.{host}."


def permissions(role: str, host: str) -> Permissions:
    """Raises `InvalidInput` for what can be no daemon."""
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
    told = ["scheduler_fanout"] if role == CONDUCTOR else []
    return Permissions(
        configure=_any(*exchanges, *told, *queues),
        write=_any(EXCHANGE, *told, *queues, *write),
        read=_any(*(exchanges if role in _SERVERS else ()), *queues),
        topic_write=_any(*(each.replace("HOST", name) for each in _SENDS_TO[role])),
        topic_read=bound if bound == _NOTHING else _any(bound),
    )


def _any(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$"
