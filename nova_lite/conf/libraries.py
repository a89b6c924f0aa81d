"""Our defaults of the libraries' options: for the daemons, and for the sample that oslo-config-generator writes."""

from __future__ import annotations

from oslo_config import cfg
from oslo_log import log

LOG_LEVELS = [
    "alembic=WARN",
    "amqp=WARN",
    "oslo.messaging=WARN",
    "oslo_messaging=WARN",
    "sqlalchemy=WARN",
    "stevedore=WARN",
    "urllib3=WARN",
    "routes.middleware=WARN",
    "eventlet.wsgi.server=INFO",
]

#: Seconds. Our calls take milliseconds, and what was accepted survives a late answer, so a user should not wait the
#: library's whole minute for a control plane that is away.
RESPONSE_TIMEOUT = 20

#: Messages that a daemon has taken and not begun. The library's default is without limit, so that a host which comes
#: back would swallow all that was ever sent to it, and a busy conductor would hold calls, which then do not expire,
#: that another one could answer.
PREFETCH = 100


def set_log_defaults() -> None:
    log.set_defaults(default_log_levels=LOG_LEVELS)


def set_messaging_defaults() -> None:
    """Imports the message bus, which takes long, so only who uses it calls this."""
    from oslo_messaging._drivers import impl_rabbit
    from oslo_messaging.rpc import client

    cfg.set_defaults(client._client_opts, rpc_response_timeout=RESPONSE_TIMEOUT)
    cfg.set_defaults(impl_rabbit.rabbit_opts, rabbit_qos_prefetch_count=PREFETCH)


def set_defaults() -> None:
    """The entry point of oslo-config-generator."""
    set_log_defaults()
    set_messaging_defaults()
