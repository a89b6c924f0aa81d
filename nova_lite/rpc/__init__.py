"""RPC between daemons: typed on both sides, plain JSON in between, signed by the sender's key.

`nova_lite.rpcapi` declares each RPC method once, in a Protocol.

- `contract`, `permissions`: declarations of methods: types, roles, priority, version
- `client`, `fallbacks`: the typed client of a Protocol (`rpc.proxy`), and its fallbacks for older servers
- `endpoint`: checks the functions of a server against the Protocol when the daemon starts
- `signing`, `keys`: signatures of messages and replies; replayed messages are refused
- `trust`, `trusted_list`, `controllers`: lists of trusted keys and of controllers
- `admission`, `load_shedding`: a busy server handles urgent messages first, and refuses others
- `transport`, `patches`, `broker`, `self_check`: oslo.messaging over RabbitMQ
- `local`, `session`: calls to a conductor of the same machine over a Unix socket, with a key for each connection
- `memory`, `in_process`: transports without a broker: one process, tests
- `node_reports`: state of the database's nodes

To add a method: declare it in the Protocol, raise the version of the service, and pass that version as ``since=``. Then
write a function of the same name in a target of the service's endpoint. Give it a ``fallback=`` if the callers can do
without it.

Errors of `nova_lite.base.exceptions` cross the bus as themselves. A broker that is away raises `MessagingUnavailable`;
a server that is too old for a message raises `ServiceTooOld`.
"""

from __future__ import annotations

from nova_lite.base.context import DaemonIdentity
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
from nova_lite.rpc.endpoint import Endpoint, records_message
from nova_lite.rpc.fallbacks import one_by_one, result
from nova_lite.rpc.in_process import InProcess
from nova_lite.rpc.keys import API, COMPUTE, CONDUCTOR, CONSOLE, MANAGE, METADATA, SCHEDULER
from nova_lite.rpc.load_shedding import Throttled
from nova_lite.rpc.memory import MemoryBroker
from nova_lite.rpc.transport import Connect, RpcServer, Transport, log_in, require_broker

CAST, FANOUT = Kind.CAST, Kind.FANOUT
