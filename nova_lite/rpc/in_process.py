"""A transport for tests: client and server in one process, without a broker.

Values become JSON on the way, and errors are serialised as oslo.messaging does it. A call runs at once. So does a cast;
with ``hold_casts`` it waits in ``casts`` until `deliver`. Until then a test may drop, double or reorder the messages
there.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging._drivers import common

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import wait_for
from nova_lite.rpc.client import Message, to_typed
from nova_lite.rpc.contract import speaks
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS

LOG = logging.getLogger(__name__)


class InProcess:
    def __init__(self, conf: cfg.ConfigOpts, hold_casts: bool = False) -> None:
        self.conf = conf
        self.hold_casts = hold_casts
        self.casts: list[Message] = []
        self._served: dict[str, dict[str, Endpoint]] = {}

    def serve(self, endpoint: Endpoint, server: str = "server") -> None:
        self._served.setdefault(endpoint.topic, {})[server] = endpoint

    def call(self, message: Message) -> Any:
        (endpoint, *_) = self._receivers(message)
        try:
            return typed(wait_for(dispatch(endpoint, message)), message)
        except messaging.ExpectedException as expected:
            raise received(expected.exc_info) from None

    def cast(self, message: Message) -> None:
        if not message.fanout:
            self._receivers(message)
        self.casts.append(message)
        if not self.hold_casts:
            self.deliver()

    def deliver(self) -> None:
        """Handle the waiting casts, and casts that are sent meanwhile."""
        while self.casts:
            message = self.casts.pop(0)
            for endpoint in self._receivers(message):
                try:
                    wait_for(dispatch(endpoint, message))
                except Exception as error:  # as a server does
                    LOG.warning("Cast %s failed: %r", message.method, error)

    def _receivers(self, message: Message) -> list[Endpoint]:
        servers = self._served.get(message.topic, {})
        receivers = [endpoint for name, endpoint in servers.items() if message.server in (None, name)]
        if not receivers and not message.fanout:
            raise exceptions.MessagingUnavailable(what=message.method)
        return receivers if message.fanout else receivers[:1]


def dispatch(endpoint: Endpoint, message: Message) -> Any:
    """Call the endpoint's function for the message. Return its plain result, or the `ResponseFuture` of it."""
    if not speaks(endpoint.target.version, message.version) or not hasattr(endpoint, message.method):
        raise message.too_old(endpoint.target.version)
    context = RequestContext.from_rpc(json.loads(json.dumps(message.context.to_rpc())))
    return getattr(endpoint, message.method)(context, **json.loads(json.dumps(message.arguments)))


def typed(result: Any, message: Message) -> Any:
    """Return a plain result as its receiver gets it."""
    return to_typed(json.loads(json.dumps(result)), message.returns)


def received(failure: Any) -> Exception:
    """Return an error of an endpoint as its receiver gets it."""
    error: Exception = common.deserialize_remote_exception(
        common.serialize_remote_exception(failure), ALLOWED_REMOTE_EXMODS
    )
    return error
