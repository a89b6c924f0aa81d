"""Signed messages for an endpoint, whose signatures are believed: what comes after the verification is real."""

from __future__ import annotations

import types
import uuid
from typing import Any

import oslo_messaging as messaging
from oslo_messaging._drivers import common

from nova_lite import rpc
from nova_lite.base.context import DaemonIdentity, RequestContext
from nova_lite.rpc import in_process
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS, SIGNATURE, SignatureVerifier
from nova_lite.rpc.transport import ContextSerializer


class VerifiedMessages:
    """Sends messages of the API to ``endpoint``."""

    def __init__(self, endpoint: rpc.Endpoint) -> None:
        self._endpoint = endpoint
        self._verifier = SignatureVerifier(self, self, endpoint, "controller")  # type: ignore[arg-type]

    def send(self, method: str, context: RequestContext, message_id: str | None = None, **arguments: Any) -> Any:
        """Return the plain result of a method, or raise its error."""
        header = {SIGNATURE: {"id": message_id or uuid.uuid4().hex}}
        content = {"method": method, "args": {name: rpc.to_plain(value) for name, value in arguments.items()}}
        try:
            return rpc.to_plain(
                self._verifier.dispatch(
                    types.SimpleNamespace(ctxt=context.to_rpc() | header, message=content, msg_id="1")
                )
            )
        except messaging.ExpectedException as expected:
            raise in_process.received(expected.exc_info) from None

    # --- what the verifier needs

    def dispatch(self, incoming: Any) -> Any:
        values = {name: value for name, value in incoming.ctxt.items() if name != SIGNATURE}
        context = ContextSerializer().deserialize_context(values)
        return getattr(self._endpoint, incoming.message["method"])(context, **incoming.message["args"])

    def sender_of(self, topic: str, server: str, incoming: Any) -> DaemonIdentity:
        rule = self._endpoint.access[incoming.message["method"]]  # type: ignore[index]
        return DaemonIdentity(rpc.API if rpc.API in rule.roles else rpc.COMPUTE, "h1")

    def reply(self, incoming: Any, result: Any, failure: str | None) -> Any:
        if failure is None:
            return result
        raise common.deserialize_remote_exception(failure, ALLOWED_REMOTE_EXMODS)
