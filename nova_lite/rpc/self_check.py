"""RPC servers that notice when no message reaches them any more, and connect again.

A consumer may be lost while its daemon lives and the broker replies: a firewall dropped the connection, the binding was
deleted, or every thread hangs. Heartbeats still go out, so the control plane keeps sending work that is never received.
Therefore each daemon calls its own server through the broker from time to time. A server that is merely busy replies
late, and is not replaced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from nova_lite.base import exceptions, metrics
from nova_lite.base.context import get_admin_context
from nova_lite.rpc.client import ECHO, Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.transport import Server, Transport, require_broker

LOG = logging.getLogger(__name__)


class SelfCheckingServer:
    """A server on ``topic.server`` (and ``topic``) that can be replaced while its daemon runs.

    ``shared``: check messages to ``topic``, too. `check` sets ``deaf`` when the server has to be replaced by
    `reconnect`. `reconnect`, or a late reply, clears it.
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
        """Start the server. Raises `MessagingUnavailable` when the broker is away."""
        self._server.start()
        metrics.add_gauges(self, self._states)

    def stop(self) -> None:
        metrics.remove_gauges(self)
        self._server.stop()

    def _states(self) -> Iterable[tuple[str, metrics.Sample]]:
        if (workers := self._server.workers) is not None:
            yield metrics.sample(metrics.RPC_WAITING, workers.queue.waiting)
            yield metrics.sample(metrics.RPC_RUNNING, workers.queue.running)
            yield metrics.sample(metrics.RPC_OLDEST, workers.queue.oldest())
        for target in self._targets if None in self._targets else ():
            queue = self._topic if target is None else f"{self._topic}.{target}"
            yield metrics.sample(metrics.QUEUE_DEPTH, self._transport.depth(queue), queue)

    def wait(self) -> None:
        self._server.wait()

    def check(self) -> None:
        """Call this server through the broker, every ``[rpc] self_check_interval``.

        Skip the check while the broker accepts no connections: the daemon's heartbeat reports that.
        """
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
        """Check whether all threads are busy, and some have finished a message since the last check."""
        workers = self._server.workers
        if workers is None:
            return False
        before, self._finished = self._finished, workers.queue.finished
        return workers.queue.is_full and self._finished > before

    def reconnect(self) -> None:
        """Serve over new connections.

        The old connections are closed in the background, once their messages are handled. Raises `MessagingUnavailable`
        when the broker is away; the old server then stays.
        """
        LOG.error(
            "No messages reach %s.%s (%d calls to itself had no reply): connecting again",
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
        LOG.warning("%s.%s is served over new connections", self._topic, self._name)

    def _retire(self, old: Server) -> None:
        """Stop the old server, and wait until it has served the messages that it has."""
        old.stop()
        old.wait()
        LOG.info("The old server of %s.%s has ended", self._topic, self._name)

    def _make(self) -> Server:
        return self._transport.server(self._name, self._endpoint)
