"""RPC servers that notice when nobody can reach them any more, and connect anew.

A consumer may be lost while its daemon lives and the broker answers: a firewall forgot the connection, somebody took
the binding away, every thread of the pool hangs. Heartbeats go out all the same, so the control plane goes on sending
work that nobody hears. Therefore each server is called by its own daemon through the broker, now and then. One that has
more to do than it can answers late, and hears all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from nova_lite.base import exceptions, metrics
from nova_lite.base.context import get_admin_context
from nova_lite.rpc.client import ECHO, Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.transport import RpcServer, Transport, require_broker

LOG = logging.getLogger(__name__)


class SelfCheckingServer:
    """A `RpcServer` on ``topic.server`` (and ``topic``), which can be replaced while its daemon works on.

    ``shared``: whether messages to ``topic`` matter, too. ``deaf`` is set by `check` when the server has to be replaced
    by `connect_anew`, and cleared by that, or by an answer that came after all.
    """

    def __init__(self, transport: Transport, server: str, endpoint: Endpoint, shared: bool = False) -> None:
        self._transport = transport
        self._topic = endpoint.topic
        self._name = server
        self._endpoint = endpoint
        self._targets = [server, None] if shared else [server]
        self._misses = 0
        self._finished = 0
        self._server = self._make()
        self.deaf = threading.Event()

    def start(self) -> None:
        """Raises `MessagingUnavailable` when the broker is away."""
        self._server.start()
        metrics.add_gauges(self, self._states)

    def stop(self) -> None:
        metrics.remove_gauges(self)
        self._server.stop()

    def _states(self) -> Iterable[tuple[str, metrics.Sample]]:
        if (workers := self._server.workers) is not None:
            yield metrics.sample(metrics.RPC_WAITING, workers.line.waiting)
            yield metrics.sample(metrics.RPC_RUNNING, workers.line.running)
            yield metrics.sample(metrics.RPC_OLDEST, workers.line.oldest())
        for target in self._targets if None in self._targets else ():
            queue = self._topic if target is None else f"{self._topic}.{target}"
            yield metrics.sample(metrics.QUEUE_DEPTH, self._transport.depth(queue), queue)

    def wait(self) -> None:
        self._server.wait()

    def check(self) -> None:
        """Call oneself; to be repeated every ``[rpc] self_check_interval``. Says nothing of a broker that takes no
        connections: that is no deafness, and the daemon's heartbeat tells of it."""
        try:
            require_broker(self._transport)
        except exceptions.MessagingUnavailable:
            self._misses = 0
            return
        options = self._transport.conf.rpc
        try:
            for target in self._targets:
                self._transport.call(
                    Message(self._topic, ECHO, get_admin_context(), target, timeout=options.self_check_interval)
                )
        except exceptions.MessagingUnavailable:
            self._misses += not self._is_busy()
        else:
            self._misses = 0
            self.deaf.clear()
        if self._misses >= options.self_check_misses:
            self.deaf.set()

    def _is_busy(self) -> bool:
        """Whether all threads are taken, and some have ended what they were at since the last time."""
        workers = self._server.workers
        if workers is None:
            return False
        before, self._finished = self._finished, workers.line.finished
        return workers.line.is_full and self._finished > before

    def connect_anew(self) -> None:
        """Serve over new connections. The old ones are given up in the background, after what came through them has
        ended. Raises `MessagingUnavailable` when the broker is away; the old server is kept then."""
        LOG.error(
            "Messages to %s.%s do not come in (%d calls to itself had no answer): new connections are made",
            self._topic,
            self._name,
            self._misses,
        )
        metrics.RPC_RECONNECTS.inc()
        self._transport.renew()
        fresh = self._make()
        fresh.start()
        old, self._server = self._server, fresh
        threading.Thread(target=self._retire, args=(old,), name="retire-server", daemon=True).start()
        self._misses = self._finished = 0
        self.deaf.clear()
        LOG.warning("Messages to %s.%s are taken over new connections", self._topic, self._name)

    def _retire(self, old: RpcServer) -> None:
        """What was sent to it just now may be lost, as when a daemon is stopped."""
        old.stop()
        old.wait()
        LOG.info("The old server of %s.%s has ended", self._topic, self._name)

    def _make(self) -> RpcServer:
        return RpcServer(self._transport, self._name, self._endpoint)
