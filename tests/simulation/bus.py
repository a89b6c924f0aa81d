"""Messages between daemons. They are late, and by the plan of a run lost, doubled, or cut off.

A server's messages wait while it is away, as in a broker's queues. A message whose server dies with it comes again, or
is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc import in_process
from nova_lite.rpc.client import Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.transport import Server, Transport
from tests.model.unreliable_cloud import CASTS, REPORTS
from tests.simulation import primitives
from tests.simulation.scheduler import Process, Scheduler, Task

#: Messages that come twice: those about servers. What hosts say about themselves has signatures against it.
_DOUBLED = (*CASTS, *REPORTS)
#: Most virtual seconds of a usual way, of a slow one, and until a doubled message comes again.
_WAY, _SLOW, _AGAIN = 0.005, 12.0, 30.0
#: Virtual seconds for which a call without a time of its own waits for its reply.
_REPLY = 25.0


class Bus:
    """Servers and messages of all processes.

    ``shares``: of messages that are lost ("lose"), doubled or slow, by kind and method; "" stands for all methods.
    ``cut``: names of processes without a connection.
    """

    def __init__(self, sim: Scheduler) -> None:
        self.sim = sim
        self.shares: dict[tuple[str, str], float] = {}
        self.cut: set[str] = set()
        self._servers: dict[tuple[str, str], _Server] = {}
        #: Keys of the servers of each topic, in the order of `_servers`.
        self._topics: dict[str, list[tuple[str, str]]] = {}
        self._waiting: dict[tuple[str, str], list[_Way]] = {}

    def connect(self, conf: cfg.ConfigOpts, role: str | None = None) -> SimulatedTransport:
        owner = primitives.process()
        assert owner is not None
        return SimulatedTransport(conf, self, owner)

    def add(self, server: _Server) -> None:
        key = (server.endpoint.topic, server.name)
        if key not in self._servers:
            self._topics.setdefault(server.endpoint.topic, []).append(key)
        self._servers[key] = server
        for way in self._waiting.pop(key, []):
            self._later(way)

    def send(self, way: _Way) -> None:
        """Let a message arrive once, never, or twice."""
        message = way.message
        self.sim.note(f"{way.sender.name} sends {message.method} to {message.server or message.topic}")
        if self.happens("lose", message.method):
            self.sim.note(f"{message.method} is lost")
            return
        self._later(way)
        if message.method in _DOUBLED and self.happens("double", message.method):
            self.sim.after(self.sim.choices.random() ** 2 * _AGAIN, lambda: self._arrive(way.again()))

    def happens(self, kind: str, method: str) -> bool:
        """Choose whether a fault of this kind meets a message."""
        shares = self.shares
        if not shares:
            return False
        return self.sim.choices.random() < max(shares.get((kind, ""), 0.0), shares.get((kind, method), 0.0))

    def delay(self, method: str) -> float:
        return self.sim.choices.random() * (_SLOW if self.happens("slow", method) else _WAY)

    def _later(self, way: _Way) -> None:
        self.sim.after(self.delay(way.message.method), lambda: self._arrive(way))

    def _arrive(self, way: _Way) -> None:
        for key in self._receivers(way.message):
            server = self._servers[key]
            if server.process.is_dead or server.is_stopped or server.process.name in self.cut:
                self._waiting.setdefault(key, []).append(way)
            else:
                server.take(way)

    def mend(self) -> None:
        """Connect all processes again, and lose nothing."""
        self.shares = {}
        self.join()

    def join(self) -> None:
        """Connect all processes again."""
        self.cut = set()
        for key in [key for key in self._waiting if not self._servers[key].process.is_dead]:
            for way in self._waiting.pop(key):
                self._later(way)

    def lost_with(self, process: Process) -> None:
        """Let messages that a dead process had not finished come again, or lose them."""
        for server in self._servers.values():
            if server.process is process:
                for way in server.unfinished:
                    if self.sim.choices.random() < 0.5:
                        self._later(way)

    def _receivers(self, message: Message) -> list[tuple[str, str]]:
        """Return the servers that get a message: of several, any living one."""
        key = (message.topic, message.server or "")
        if message.server is not None:
            return [key] if key in self._servers else []
        found = list(self._topics.get(message.topic, ()))
        if message.fanout or len(found) < 2:
            return found
        alive = [key for key in found if not self._servers[key].process.is_dead] or found
        return [alive[int(self.sim.choices.random() * len(alive))]]

    def serves(self, process: Process) -> bool:
        """Say whether a process takes messages."""
        return any(server.process is process for server in self._servers.values())

    def is_known(self, message: Message) -> bool:
        return bool(self._receivers(message))


class _Way:
    """A message on its way. ``reply``: takes what its sender gets; None for a cast. ``is_again``: it comes twice."""

    def __init__(
        self,
        message: Message,
        sender: Process,
        reply: Callable[[Callable[[], Any]], None] | None,
        is_again: bool = False,
    ) -> None:
        self.message = message
        self.sender = sender
        self.reply = reply
        self.is_again = is_again

    def again(self) -> _Way:
        """Return the same message, as it comes a second time."""
        return _Way(self.message, self.sender, None, is_again=True)


class SimulatedTransport(Transport):
    """A process's way to the bus."""

    def __init__(self, conf: cfg.ConfigOpts, bus: Bus, owner: Process) -> None:
        self.conf = conf
        self._bus = bus
        self._owner = owner

    def call(self, message: Message) -> Any:
        sim, bus = self._bus.sim, self._bus
        self._require(message)
        task = sim.current
        assert task is not None
        got: list[Callable[[], Any]] = []
        is_late = False

        def deliver(get: Callable[[], Any]) -> None:
            if is_late or self._owner.name in bus.cut or bus.happens("lose", message.method):
                return
            got.append(get)
            sim.wake(task)

        bus.send(_Way(message, self._owner, lambda get: sim.after(bus.delay(message.method), lambda: deliver(get))))
        deadline = sim.now + (message.timeout or _REPLY)
        while not got and sim.now < deadline:
            sim.wait(deadline)
        is_late = True
        if not got:
            raise exceptions.MessagingUnavailable(what=message.method)
        try:
            return in_process.typed(got[0](), message)
        except messaging.ExpectedException as error:
            raise in_process.received(error.exc_info) from None

    def cast(self, message: Message) -> None:
        self._require(message)
        self._bus.send(_Way(message, self._owner, None))

    def _require(self, message: Message) -> None:
        self._bus.sim.point()
        if self._owner.name in self._bus.cut or not (message.fanout or self._bus.is_known(message)):
            self._bus.sim.sleep(self._bus.delay(message.method))
            raise exceptions.MessagingUnavailable(what=message.method)

    def depth(self, queue: str) -> int:
        return 0

    def server(self, name: str, endpoint: Endpoint) -> _Server:
        return _Server(self._bus, self._owner, name, endpoint)

    def share(self, role: str, host: str) -> Transport:
        return self

    def renew(self) -> None:
        """Do nothing: a connection breaks with the bus alone."""

    def cleanup(self) -> None:
        """Do nothing: there is no connection to close."""


class _Server(Server):
    """A server of a process. ``unfinished``: messages that are being handled."""

    def __init__(self, bus: Bus, owner: Process, name: str, endpoint: Endpoint) -> None:
        self.process = owner
        self.name = name
        self.endpoint = endpoint
        self.unfinished: list[_Way] = []
        self.is_stopped = False
        self._bus = bus
        self._idle: list[Task] = []
        self._todo: list[_Way] = []

    @property
    def workers(self) -> None:
        return None

    def start(self) -> None:
        self._bus.add(self)

    def stop(self) -> None:
        self.is_stopped = True

    def wait(self) -> None:
        """Do nothing: no run stops a daemon and waits for its messages."""

    def take(self, way: _Way) -> None:
        self.unfinished.append(way)
        self._todo.append(way)
        if self._idle:
            self._bus.sim.wake(self._idle.pop())
        else:
            self._bus.sim.spawn(self.process, self._work, "rpc")

    def _work(self) -> None:
        task = self._bus.sim.current
        assert task is not None
        while True:
            while self._todo:
                self._handle(self._todo.pop(0))
            self._idle.append(task)
            self._bus.sim.wait()

    def _handle(self, way: _Way) -> None:
        reply = way.reply or (lambda get: None)
        self._bus.sim.note(f"{self.process.name} gets {way.message.method}{' again' if way.is_again else ''}")

        def finish(get: Callable[[], Any]) -> None:
            if way in self.unfinished:
                self.unfinished.remove(way)
            reply(_held(get))

        try:
            result = in_process.dispatch(self.endpoint, way.message)
        except Exception as error:
            finish(_raising(error))
            return
        if isinstance(result, ResponseFuture):
            result.add_callback(finish)
        else:
            finish(lambda: result)


def _held(get: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function with the same end, as its sender has it, which is found out now."""
    try:
        result = get()
    except Exception as error:
        return _raising(_as_sent(error))
    return lambda: result


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def _as_sent(error: Exception) -> Exception:
    """Return the error that the caller gets: for an unexpected one only its name and text, as over a broker."""
    if isinstance(error, messaging.ExpectedException | exceptions.NovaLiteException):
        return error
    remote: Exception = messaging.RemoteError(type(error).__name__, str(error))
    return remote
