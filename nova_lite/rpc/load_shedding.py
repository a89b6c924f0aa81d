"""What a server does with more messages than it can carry out, and what a client does that is told so.

oslo.messaging acknowledges each message as it comes and puts it into a queue without end. `Workers` takes the place of
that queue and of its threads, `Throttled` is around the transport of a client that has users behind it.

A call expires in the broker after its caller's timeout, which it carries as its AMQP expiration; so it needs no clock
that two machines share. From when it was received on, its age is measured here.
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

LOG = logging.getLogger(__name__)

#: Of a message: its method, its plain arguments, its context.
Classify = Callable[[str, Mapping[str, Any], RequestContext], Priority]

#: What was refused and not yet told so: more is left to the callers' timeouts.
MOST_REFUSALS = 1000
#: Seconds that a users' call waits at most for what came after it to be read.
READING_FIRST = 0.2
#: Seconds between two lines of the log about it.
TELL_INTERVAL = 10.0


def overloaded(waiting: int, seconds: int) -> exceptions.ServiceUnavailable:
    """A 503 that older daemons know, too. `is_overloaded` knows it by what it carries."""
    return exceptions.ServiceUnavailable(
        "The control plane has more to do than it can; nothing was done. Please try again in a moment.",
        retry_after=seconds,
        waiting=waiting,
    )


def silent(seconds: int) -> exceptions.ServiceUnavailable:
    """A 503: what was asked a moment ago had no answer."""
    return exceptions.ServiceUnavailable(
        "The control plane does not answer at the moment; nothing was done. Please try again in a moment.",
        retry_after=seconds,
    )


def is_overloaded(error: Exception) -> bool:
    return isinstance(error, exceptions.ServiceUnavailable) and "retry_after" in error.kwargs


class Workers:
    """The executor of a `SheddingServer`: its threads, and the line before them.

    Of what waits there, calls are dropped once their caller has given up. A call of less than `Priority.OWN` is refused
    when there is no room, or when it has waited for ``max_wait`` seconds. A cast is neither: it is the only word
    of what it says; beyond a measure the server is slow to take more from the broker, where others find them.

    What is in the broker still can be neither judged nor refused, and one thread that reads has no chance against many
    that work in the same interpreter. So only ``at_once`` users' calls are under way, and the last of these is not
    begun while ``unread`` says that there is more to read."""

    def __init__(
        self,
        limit: int,
        max_wait: float,
        at_once: int,
        classify: Classify | None,
        max_workers: int,
        unread: Callable[[], bool] = lambda: False,
    ) -> None:
        self.line: AdmissionQueue[tuple[Callable[[Any], None], Any]] = AdmissionQueue(limit, max_workers, at_once)
        self._unread = unread
        self.expired = 0
        self.refused: collections.Counter[Priority] = collections.Counter()
        self._longest_wait = max_wait
        self._classify = classify
        self._told = 0.0
        self._counting = threading.Lock()
        self._refusals: collections.deque[Any] = collections.deque()
        self._to_refuse = threading.Semaphore(0)
        names = [f"rpc-{number}" for number in range(max_workers)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self._refuser = threading.Thread(target=self._refuse_all, name="rpc-refusals", daemon=True)
        for thread in (*self._threads, self._refuser):
            thread.start()

    def submit(self, process: Callable[[Any], None], incoming: Any) -> None:
        """Called by the one thread that reads from the broker, with a list of one message."""
        (message,) = incoming
        is_call = getattr(message, "reply_q", None) is not None
        priority = self._priority(message)
        now = time.monotonic()
        timeout = _timeout(message) if is_call else None
        deadline = None if timeout is None else now + timeout
        gone = self.line.put(QueuedRequest((process, incoming), priority, now, deadline, is_call))
        if gone is not None:
            self._refuse(gone)
        elif not is_call:
            self.line.wait_for_room(1.0)

    def shutdown(self, wait: bool = True) -> None:
        self.line.close()
        if wait:
            for thread in self._threads:
                thread.join()
        self._refusals.append(None)
        self._to_refuse.release()

    def _priority(self, message: Any) -> Priority:
        if self._classify is None or message.message.get("method") == ECHO:
            return Priority.OWN
        context = RequestContext.from_rpc(message.ctxt)
        return self._classify(message.message.get("method", ""), message.message.get("args", {}), context)

    def _work(self) -> None:
        entry: QueuedRequest[Any] | None = None
        while (entry := self.line.take(entry)) is not None:
            try:
                process, incoming = entry.item
                if entry.refusable and entry.priority > Priority.DELETE and self.line.is_crowded:
                    self._let_read()
                now = time.monotonic()
                if entry.deadline is not None and now >= entry.deadline:
                    with self._counting:
                        self.expired += 1
                    metrics.RPC_EXPIRED.inc()
                    self._tell()
                elif entry.refusable and entry.priority > Priority.OWN and now - entry.since > self._longest_wait:
                    self._refuse(entry)
                else:
                    process(incoming)
            except Exception:
                LOG.exception("A message could not be carried out")

    def _let_read(self) -> None:
        end = time.monotonic() + READING_FIRST
        while self._unread() and time.monotonic() < end:
            time.sleep(0.002)

    def _refuse(self, entry: QueuedRequest[Any]) -> None:
        with self._counting:
            self.refused[entry.priority] += 1
        metrics.RPC_REFUSED.labels(entry.priority.name.lower()).inc()
        self._tell()
        if len(self._refusals) < MOST_REFUSALS:
            self._refusals.append(entry.item[1][0])
            self._to_refuse.release()

    def _refuse_all(self) -> None:
        while True:
            self._to_refuse.acquire()
            message = self._refusals.popleft()
            if message is None:
                return
            error = overloaded(self.line.waiting, random.randint(1, 3))
            try:
                message.reply(failure=(type(error), error, None))
            except Exception as failure:
                LOG.info("A caller could not be told that there is too much to do: %s", failure)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told < TELL_INTERVAL:
            return
        self._told = now
        LOG.warning(
            "There is more to do than can be done: %d wait, %d were refused so far, %d expired",
            self.line.waiting,
            self.refused.total(),
            self.expired,
        )


def _timeout(message: Any) -> float | None:
    """Seconds for which the caller waits in all, as the message carries them to the broker."""
    raw = getattr(message.message, "_raw_message", None)
    expiration: Any = raw.properties.get("expiration") if raw is not None else None
    return int(expiration) / 1000 if str(expiration).isdigit() else None


class SheddingServer(messaging_server.RPCServer):  # type: ignore[misc]
    """oslo.messaging's server, with `Workers` once it is started."""

    classify: Classify | None = None

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
        )

    def _unread(self) -> bool:
        """Whether the broker has sent more than was read. oslo.messaging does not tell, but its connection does."""
        try:
            used = self._connection().transport
            unread = fcntl.ioctl(used.sock.fileno(), termios.FIONREAD, bytes(4))
            return patches.has_frame(used) or int.from_bytes(unread, sys.byteorder) > 0
        except (AttributeError, OSError, ValueError):  # another driver; not connected
            return False

    def _connection(self) -> Any:
        """The broker's, on which messages come."""
        return self.listener._poll_style_listener.conn.channel.connection

    def acknowledge(self) -> None:
        """What was read last, once no more is read."""
        try:
            patches.acknowledge(self._connection().transport)
        except (AttributeError, OSError) as error:  # another driver; not connected
            LOG.info("What was read last could not be acknowledged, and may come again: %s", error)

    @property
    def workers(self) -> Workers | None:
        workers: Workers | None = self._work_executor
        return workers


def server_class(classify: Classify | None) -> type[SheddingServer]:
    return type("SheddingServer", (SheddingServer,), {"classify": staticmethod(classify) if classify else None})


class Throttled:
    """A way to servers for one who has many users behind him. Of what one topic is asked for it refuses, by itself,
    about as much as the servers there would, or as stays without an answer."""

    def __init__(self, sender: Sender, protocol: Any) -> None:
        self.conf: cfg.ConfigOpts = sender.conf
        self.throttle = Throttle()
        #: Whether what was not answered last had no answer at all, and was not refused.
        self._is_silent = False
        self._sender = sender
        self._contract = contract_of(protocol)

    def call(self, message: Message) -> Any:
        if message.topic != self._contract.topic:
            return self._sender.call(message)
        priority = self._contract.priority(message.method, message.arguments, message.context)
        if not self.throttle.lets(priority):
            metrics.THROTTLED.labels(priority.name.lower()).inc()
            raise silent(random.randint(1, 3)) if self._is_silent else overloaded(0, random.randint(1, 3))
        answered = True
        try:
            return self._sender.call(message)
        except exceptions.MessagingUnavailable:
            answered, self._is_silent = False, True
            raise
        except exceptions.ServiceUnavailable as error:
            answered = not is_overloaded(error)
            self._is_silent = self._is_silent and answered
            raise
        finally:
            self.throttle.told(priority, answered)

    def cast(self, message: Message) -> None:
        self._sender.cast(message)
