"""Load shedding: a server refuses what it cannot handle in time, and its clients slow down.

oslo.messaging acknowledges each message as it arrives and puts it into an unlimited queue. `Workers` replaces that
queue and its threads. `Throttled` wraps the transport of a client that serves users.

A call expires in the broker after its caller's timeout, which is its AMQP expiration. So no clocks have to agree. The
age of a received call is measured here.
"""

from __future__ import annotations

import collections
import fcntl
import functools
import logging
import random
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_messaging.rpc import server as messaging_server

from nova_lite.base import exceptions, metrics
from nova_lite.base.context import RequestContext
from nova_lite.rpc import patches
from nova_lite.rpc.admission import AdmissionQueue, Priority, QueuedRequest, Throttle
from nova_lite.rpc.client import ECHO, Message, Sender
from nova_lite.rpc.contract import contract_of
from nova_lite.rpc.local import LocalRequest

LOG = logging.getLogger(__name__)

#: Returns the priority of a message from its method, plain arguments and context.
Classify = Callable[[str, Mapping[str, Any], RequestContext], Priority]

#: Refusals that may wait to be sent. The callers of further ones run into their timeouts.
MAX_REFUSALS = 1000
#: Longest wait in seconds of a user's call for later messages to be read.
READ_WAIT = 0.2
#: Reads whose copies a server knows.
MAX_KNOWN_READS = 20_000
#: Seconds between two log lines about an overload.
LOG_INTERVAL = 10.0


def overloaded_error(waiting: int, seconds: int) -> exceptions.ServiceUnavailable:
    """Return a 503 that older daemons know, too. `is_overloaded` recognises it by its arguments."""
    return exceptions.ServiceUnavailable(
        "The control plane has more to do than it can; nothing was done. Please try again in a moment.",
        retry_after=seconds,
        waiting=waiting,
    )


def silent_error(seconds: int) -> exceptions.ServiceUnavailable:
    """Return a 503 for a server that did not reply to the last requests."""
    return exceptions.ServiceUnavailable(
        "The control plane does not answer at the moment; nothing was done. Please try again in a moment.",
        retry_after=seconds,
    )


def is_overloaded(error: Exception) -> bool:
    return isinstance(error, exceptions.ServiceUnavailable) and "retry_after" in error.kwargs


class Workers:
    """The executor of a `SheddingServer`: its threads, and the queue in front of them.

    A waiting call is dropped once its caller has given up. A call below `Priority.OWN` is refused when there is no
    room, or when it has waited for ``max_wait`` seconds. A cast is never dropped or refused, because it is not
    repeated. When many casts wait, the server takes messages from the broker more slowly, so that other servers get
    them.

    A read that has no reply is sent again under its id (`nova_lite.rpc.patches`). Copies of a read of ``repeated`` that
    this process has taken are dropped: its caller gets one reply, and copies fill no queue after a restart.

    At most ``at_once`` users' calls run at the same time, because many workers starve the single thread that reads
    from the broker. Messages that this thread has not read cannot be refused. When ``at_once`` calls would run, the
    last one waits while ``unread`` returns True.
    """

    def __init__(
        self,
        limit: int,
        max_wait: float,
        at_once: int,
        classify: Classify | None,
        max_workers: int,
        unread: Callable[[], bool] = lambda: False,
        repeated: frozenset[str] = frozenset(),
    ) -> None:
        self.queue: AdmissionQueue[tuple[Callable[[Any], None], Any]] = AdmissionQueue(limit, max_workers, at_once)
        self._unread = unread
        self._repeated = repeated
        #: The time at which the caller of a read gives up, by the read's id. The oldest read comes first.
        self._reads: dict[str, float] = {}
        self.expired = 0
        self.refused: collections.Counter[Priority] = collections.Counter()
        self._max_wait = max_wait
        self._classify = classify
        self._logged = 0.0
        self._counting = threading.Lock()
        self._refusals: collections.deque[Any] = collections.deque()
        self._to_refuse = threading.Semaphore(0)
        names = [f"rpc-{number}" for number in range(max_workers)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self._refuser = threading.Thread(target=self._refuse_all, name="rpc-refusals", daemon=True)
        for thread in (*self._threads, self._refuser):
            thread.start()

    def submit(self, process: Callable[[Any], None], incoming: Any) -> None:
        """Take a list of one message. Only the threads that read from the broker and from local callers call this."""
        (message,) = incoming
        is_call = getattr(message, "reply_q", None) is not None
        priority = self._priority(message)
        now = time.monotonic()
        timeout = _timeout(message) if is_call else None
        deadline = None if timeout is None else now + timeout
        if deadline is not None and self._is_copy(message, now, deadline):
            return
        refused = self.queue.put(QueuedRequest((process, incoming), priority, now, deadline, is_call))
        if refused is not None:
            self._refuse(refused)
        elif not is_call:
            self.queue.wait_for_room(1.0)

    def shutdown(self, wait: bool = True) -> None:
        self.queue.close()
        if wait:
            for thread in self._threads:
                thread.join()
        self._refusals.append(None)
        self._to_refuse.release()

    def _is_copy(self, message: Any, now: float, deadline: float) -> bool:
        """Check whether a read of this id was taken before, and remember it. Local callers repeat none."""
        if isinstance(message, LocalRequest) or message.message.get("method") not in self._repeated:
            return False
        while self._reads and (len(self._reads) >= MAX_KNOWN_READS or next(iter(self._reads.values())) < now):
            del self._reads[next(iter(self._reads))]
        is_known = message.msg_id in self._reads
        self._reads.setdefault(message.msg_id, deadline)
        return is_known

    def _priority(self, message: Any) -> Priority:
        if self._classify is None or message.message.get("method") == ECHO:
            return Priority.OWN
        context = RequestContext.from_rpc(message.ctxt)
        return self._classify(message.message.get("method", ""), message.message.get("args", {}), context)

    def _work(self) -> None:
        entry: QueuedRequest[Any] | None = None
        while (entry := self.queue.take(entry)) is not None:
            try:
                process, incoming = entry.item
                if entry.refusable and entry.priority > Priority.DELETE and self.queue.is_crowded:
                    self._let_read()
                now = time.monotonic()
                if entry.deadline is not None and now >= entry.deadline:
                    with self._counting:
                        self.expired += 1
                    metrics.RPC_EXPIRED.inc()
                    self._log_overload()
                elif entry.refusable and entry.priority > Priority.OWN and now - entry.since > self._max_wait:
                    self._refuse(entry)
                else:
                    process(incoming)
            except Exception:
                LOG.exception("A message could not be handled")

    def _let_read(self) -> None:
        end = time.monotonic() + READ_WAIT
        while self._unread() and time.monotonic() < end:
            time.sleep(0.002)

    def _refuse(self, entry: QueuedRequest[Any]) -> None:
        with self._counting:
            self.refused[entry.priority] += 1
        metrics.RPC_REFUSED.labels(entry.priority.name.lower()).inc()
        self._log_overload()
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(entry.item[1][0])
            self._to_refuse.release()

    def _refuse_all(self) -> None:
        while True:
            self._to_refuse.acquire()
            message = self._refusals.popleft()
            if message is None:
                return
            error = overloaded_error(self.queue.waiting, random.randint(1, 3))
            try:
                message.reply(failure=(type(error), error, None))
            except Exception as failure:
                LOG.info("A refusal could not be sent: %s", failure)

    def _log_overload(self) -> None:
        now = time.monotonic()
        if now - self._logged < LOG_INTERVAL:
            return
        self._logged = now
        LOG.warning(
            "Overloaded: %d messages wait, %d were refused so far, %d expired",
            self.queue.waiting,
            self.refused.total(),
            self.expired,
        )


def _timeout(message: Any) -> float | None:
    """Return the caller's timeout in seconds: what a local call says, or the message's expiration in the broker."""
    if isinstance(message, LocalRequest):
        return message.seconds
    raw = getattr(message.message, "_raw_message", None)
    expiration: Any = raw.properties.get("expiration") if raw is not None else None
    return int(expiration) / 1000 if str(expiration).isdigit() else None


class SheddingServer(messaging_server.RPCServer):  # type: ignore[misc]
    """oslo.messaging's server, with `Workers` once it is started."""

    classify: Classify | None = None
    repeated: frozenset[str] = frozenset()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.conf.rpc
        self._executor_cls = functools.partial(
            Workers,
            options.max_waiting,
            options.max_wait,
            options.max_user_calls,
            type(self).classify,
            unread=self._unread,
            repeated=type(self).repeated,
        )

    def take(self, request: LocalRequest) -> None:
        """Handle a call that did not come by the broker."""
        self._on_incoming([request])

    def _unread(self) -> bool:
        """Check whether the broker has sent more than was read.

        oslo.messaging has no function for this, so its connection is examined.
        """
        try:
            used = self._connection().transport
            unread = fcntl.ioctl(used.sock.fileno(), termios.FIONREAD, bytes(4))
            return patches.has_frame(used) or int.from_bytes(unread, sys.byteorder) > 0
        except (AttributeError, OSError, ValueError):  # another driver; not connected
            return False

    def _connection(self) -> Any:
        """Return the broker's connection on which messages arrive."""
        return self.listener._poll_style_listener.conn.channel.connection

    @property
    def workers(self) -> Workers | None:
        workers: Workers | None = self._work_executor
        return workers


def server_class(classify: Classify | None, repeated: frozenset[str] = frozenset()) -> type[SheddingServer]:
    """Return a class of servers. ``repeated``: names on the wire of the methods whose calls may be sent again."""
    attributes = {"classify": staticmethod(classify) if classify else None, "repeated": repeated}
    return type("SheddingServer", (SheddingServer,), attributes)


class Throttled:
    """A transport for a client that serves users, as the API does.

    It refuses about as many of the service's calls as the servers refuse, or leave without a reply.
    """

    def __init__(self, sender: Sender, protocol: Any) -> None:
        self.conf: cfg.ConfigOpts = sender.conf
        self.throttle = Throttle()
        #: True if the last failed request had no reply, as opposed to a refusal.
        self._is_silent = False
        self._sender = sender
        self._contract = contract_of(protocol)

    def call(self, message: Message) -> Any:
        if message.topic != self._contract.topic:
            return self._sender.call(message)
        priority = self._contract.priority(message.method, message.arguments, message.context)
        if not self.throttle.admits(priority):
            metrics.THROTTLED.labels(priority.name.lower()).inc()
            raise silent_error(random.randint(1, 3)) if self._is_silent else overloaded_error(0, random.randint(1, 3))
        accepted = True
        try:
            return self._sender.call(message)
        except exceptions.MessagingUnavailable:
            accepted, self._is_silent = False, True
            raise
        except exceptions.ServiceUnavailable as error:
            accepted = not is_overloaded(error)
            self._is_silent = self._is_silent and accepted
            raise
        finally:
            self.throttle.record(priority, accepted)

    def cast(self, message: Message) -> None:
        self._sender.cast(message)
