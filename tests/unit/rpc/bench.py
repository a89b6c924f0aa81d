"""A conductor with signed messages and its callers, for tests of signatures and of the ways to it."""

from __future__ import annotations

import datetime
import math
import os
import threading
from pathlib import Path
from typing import Any, Protocol

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.rpc import keys, signing
from nova_lite.rpc.client import Message
from nova_lite.rpc.keys import PrivateKey

CONTEXT = RequestContext(user_id="u", project_id="p", request_id="req-1", overwrite=False)
ASK = Message("conductor", "ask", CONTEXT, arguments={"what": {"a": 1}})


@rpc.service("conductor", version="2.1")
class ThingRPC(Protocol):
    @rpc.method(rpc.API, rpc.COMPUTE)
    def ask(self, context: RequestContext, what: dict[str, Any]) -> dict[str, Any]: ...

    @rpc.method(rpc.API, rpc.COMPUTE)
    def fail(self, context: RequestContext) -> None: ...

    @rpc.method(rpc.API)
    def secret(self, context: RequestContext) -> str: ...

    @rpc.method(rpc.COMPUTE, own="report.host")
    def report(self, context: RequestContext, report: dict[str, Any]) -> str: ...

    @rpc.method(rpc.API, rpc.COMPUTE, kind=rpc.CAST)
    def tell(self, context: RequestContext, what: str) -> None: ...

    @rpc.method(rpc.API, kind=rpc.CAST)
    def order(self, context: RequestContext, host: rpc.Receiver, method: rpc.MethodName, ticket: int) -> None: ...


class Things:
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.told = threading.Semaphore(0)
        self.context: RequestContext | None = None

    def ask(self, context: RequestContext, what: dict[str, Any]) -> dict[str, Any]:
        self.heard.append(what)
        self.context = context
        return {"again": what}

    def fail(self, context: RequestContext) -> None:
        raise exceptions.InstanceNotFound(instance_id="i1")

    def secret(self, context: RequestContext) -> str:
        self.heard.append("secret")
        return "s3cret"

    def report(self, context: RequestContext, report: dict[str, Any]) -> str:
        self.heard.append(report)
        return "noted"

    def tell(self, context: RequestContext, what: str) -> None:
        self.heard.append(what)
        self.told.release()

    def _turn(self, context: RequestContext, ticket: int) -> None:
        self.heard.append(ticket)


class Bench:
    """A conductor ``controller`` that serves `ThingRPC`, and transports of others, over the fake driver.

    ``socket``: the API's calls go over the conductor's Unix socket. ``sessions``: without signatures of their own.
    """

    def __init__(self, path: Path, socket: bool = False, sessions: bool = True) -> None:
        self.path = path
        self.sessions = sessions
        self.socket = {"conductor_socket": path / "rpc.sock"} if socket else {}
        self.keys = path / "keys"
        self.keys.mkdir(exist_ok=True)
        self.trusted: list[keys.TrustedKey] = []
        self.things = Things()
        self._made: list[rpc.Transport] = []

    def conf(self, **options: Any) -> cfg.ConfigOpts:
        file = self.path / "bus.conf"
        lines = [f"{name} = {value}" for name, value in ({"keys_directory": self.keys} | self.socket | options).items()]
        text = ["[DEFAULT]", "host = controller", "transport_url = fake:/", "rpc_response_timeout = 5", "[rpc]", *lines]
        file.write_text("\n".join(text) + "\n")
        conf = cfg.CONF
        conf.reset()
        configuration.register_opts(conf)
        conf(["--config-file", str(file)], project="nova-lite", default_config_files=[])
        return conf

    def add(self, role: str, host: str, **validity: Any) -> PrivateKey:
        """Make a key and trust it."""
        key = PrivateKey.generate()
        path = keys.private_path(str(self.keys), role, host)
        Path(path).write_bytes(key.pem())
        os.chmod(path, 0o600)
        since = validity.pop("not_before", keys.now() - datetime.timedelta(hours=1))
        self.trusted.append(key.trusted(role, host, since, **validity))
        self.write()
        return key

    def write(self) -> None:
        keys.write_trusted(str(self.keys / keys.TRUSTED), self.trusted)

    def serve(self) -> None:
        self.add(rpc.CONDUCTOR, "controller")
        (self.own,) = self.trusted
        self.conf_ = self.conf()
        self.transport = rpc.Transport(self.conf_, rpc.CONDUCTOR)
        self.endpoint = rpc.Endpoint(ThingRPC, self.things, commands={"turn": self.things._turn})
        self.server = rpc.RpcServer(self.transport, "controller", self.endpoint)
        self.server.start()

    def client(self, role: str, host: str) -> Any:
        return rpc.proxy(ThingRPC, self.sender(role, host))

    def sender(self, role: str, host: str) -> rpc.Transport:
        if not os.path.exists(keys.private_path(str(self.keys), role, host)):
            self.add(role, host)
        made = rpc.Transport(self.conf_, role, host)
        made._current.cleanup()
        made._current = self.transport._current  # the fake driver's exchanges are the transport's own
        if made._local is not None and not self.sessions:
            made._local._signing = None
        self._made.append(made)
        return made

    def look_again(self) -> None:
        """Let all daemons look at their files of keys at the next message, without a wait of `keys.LOOK_INTERVAL`."""
        for made in (self.transport, *self._made):
            ring = made.signing._ring
            assert ring is not None
            ring._private._looked = ring._trusted._file._looked = -math.inf

    def begin(self) -> None:
        """Remove all senders and their keys, and the messages that were received."""
        for path in self.keys.glob("*.key"):
            if path.name != "conductor.controller.key":
                path.unlink()
        self.trusted = [self.own]
        self.write()
        self.conf()
        self.transport.signing.mode = signing.REQUIRED
        self.things.heard.clear()

    def close(self) -> None:
        self.server.stop()
        self.server.wait()
        self.transport.cleanup()
