"""Our defaults for options of libraries: for the daemons, and for the sample of oslo-config-generator."""

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
]

#: Seconds to wait for a reply. Calls take milliseconds, and accepted work survives a late reply. So users do not wait
#: the library's whole minute for a control plane that is away.
RESPONSE_TIMEOUT = 20

#: Messages that a daemon prefetches. The library's default is unlimited. A returning host would take everything ever
#: sent to it, and a busy conductor would hold calls, which then do not expire, from an idle one. A daemon that stands
#: still holds as many.
PREFETCH = 20


def set_log_defaults() -> None:
    log.set_defaults(default_log_levels=LOG_LEVELS)


def set_messaging_defaults() -> None:
    """Set defaults of oslo.messaging. Only its users call this, because importing it is slow."""
    from oslo_messaging._drivers import impl_rabbit
    from oslo_messaging.rpc import client

    cfg.set_defaults(client._client_opts, rpc_response_timeout=RESPONSE_TIMEOUT)
    cfg.set_defaults(impl_rabbit.rabbit_opts, rabbit_qos_prefetch_count=PREFETCH)


def set_defaults() -> None:
    """Set all defaults. Entry point of oslo-config-generator."""
    set_log_defaults()
    set_messaging_defaults()
