"""Messages between daemons: one `typing.Protocol` per service, typed on both sides, plain JSON in between.

A service's ``rpcapi.py`` holds its Protocol: each RPC method once, with its types, what kind of message it is, and the
version that it came in (`contract`). `proxy` makes the typed client of it, and `Endpoint` the server, which is checked
against it when it is made. Both work over a `Transport` (oslo.messaging) or, in tests, over an `InProcess` one.

What is sent is signed by its daemon's key, and who may call which method are rows beside the Protocol (`signing`,
`permissions`); docs/explanation/security-model.md says what that is for.

Errors of `nova_lite.base.exceptions` cross the bus as themselves. A lost broker becomes `MessagingUnavailable`. A
service that is too old for a request becomes `ServiceTooOld`.
"""

from __future__ import annotations

from nova_lite.rpc.client import Message, Sender, proxy, to_plain, wrap
from nova_lite.rpc.contract import (
    Kind,
    MethodName,
    Receiver,
    Since,
    Timeout,
    Version,
    WireName,
    change,
    contract_of,
    delete,
    list_,
    method,
    read,
    report,
    service,
)
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.fallbacks import one_by_one, result
from nova_lite.rpc.in_process import InProcess
from nova_lite.rpc.keys import API, COMPUTE, CONDUCTOR, CONSOLE, MANAGE, SCHEDULER, Peer
from nova_lite.rpc.load_shedding import Throttled
from nova_lite.rpc.transport import RpcServer, Transport, require_broker

CAST, FANOUT = Kind.CAST, Kind.FANOUT

__all__ = [
    "API",
    "CAST",
    "COMPUTE",
    "CONDUCTOR",
    "CONSOLE",
    "FANOUT",
    "MANAGE",
    "SCHEDULER",
    "Endpoint",
    "InProcess",
    "Message",
    "MethodName",
    "Peer",
    "Receiver",
    "RpcServer",
    "Sender",
    "Since",
    "Throttled",
    "Timeout",
    "Transport",
    "Version",
    "WireName",
    "change",
    "contract_of",
    "delete",
    "list_",
    "method",
    "one_by_one",
    "proxy",
    "read",
    "report",
    "require_broker",
    "result",
    "service",
    "to_plain",
    "wrap",
]
