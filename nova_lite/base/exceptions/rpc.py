"""Errors of messages between daemons, and of the database behind the conductor."""

from __future__ import annotations

from nova_lite.base.exceptions.base import ServiceUnavailable


class DatabaseUnavailable(ServiceUnavailable):
    msg_fmt = "The database is unavailable for the moment. Nothing was changed; please try again."


class QueryTooSlow(DatabaseUnavailable):
    """A read that took longer than ``[database] read_timeout``."""

    msg_fmt = (
        "The database needs too long for this request. Please ask for less: filter by project, host or status, use the "
        "default order, or a smaller limit."
    )


class MessagingUnavailable(ServiceUnavailable):
    msg_fmt = "The control plane did not answer (%(what)s). Please try again."


class MessageRefused(ServiceUnavailable):
    """A message with no valid signature, or whose sender may not call the method. `nova_lite.rpc` logs it."""

    msg_fmt = "%(topic)s on %(server)s refuses message %(method)s: %(why)s."

    #: End of ``why`` for a message whose id was taken before.
    REPLAYED = "it is replayed"


class ServiceTooOld(ServiceUnavailable):
    """A daemon that does not know a request, because it has an older version or is pinned to one."""

    msg_fmt = (
        "The %(service)s service%(where)s is too old for %(method)s: it speaks %(spoken)s, %(needed)s is needed; "
        "upgrade it."
    )
