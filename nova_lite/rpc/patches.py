"""Patches of private functions of amqp, kombu and oslo.messaging.

`PATCHES` is the complete table. `install` verifies each patch against the installed libraries first. A patch that does
not fit is skipped with a warning; a daemon whose essential patch does not fit does not start. setup.cfg bounds the
versions of the libraries, so that a new version is tested before it is allowed. ADR 11 lists the gain of each patch,
and the patches that were removed because they gained too little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import importlib.metadata
import inspect
import itertools
import logging
import math
import os
import select
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import amqp.exceptions
import kombu.connection
import kombu.exceptions
import oslo_messaging as messaging
from amqp import channel, connection, transport
from amqp.exceptions import RecoverableConnectionError
from kombu.messaging import Producer
from oslo_messaging._drivers import amqpdriver, common, impl_rabbit

from nova_lite.base import concurrency, exceptions
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc.keys import COMPUTE
from nova_lite.rpc.signing import SENDER

LOG = logging.getLogger(__name__)

#: Names of patches to leave out, separated by commas. For benchmarks alone.
DISABLE = "NOVA_LITE_DISABLE_RPC_PATCHES"


@dataclasses.dataclass(frozen=True)
class Target:
    """A function that a patch replaces, and the parameters that the patch expects it to have.

    ``parameters`` None: the target is a constant of a module.
    """

    owner: Any
    name: str
    parameters: tuple[str, ...] | None

    def mismatch(self) -> str | None:
        """Return how the installed library differs, or None."""
        where = f"{self.owner.__name__}.{self.name}"
        if inspect.isclass(self.owner):
            where = f"{self.owner.__module__}.{where}"
        attribute = inspect.getattr_static(self.owner, self.name, None)
        if attribute is None:
            return f"{where} does not exist"
        if self.parameters is None:
            return None
        function = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
        parameters = tuple(inspect.signature(function).parameters)
        return None if parameters == self.parameters else f"{where} takes ({', '.join(parameters)})"


@dataclasses.dataclass(frozen=True)
class Patch:
    """``essential``: the daemon's behaviour depends on the patch, so that it does not start without it."""

    name: str
    purpose: str
    targets: tuple[Target, ...]
    apply: Callable[[], None]
    essential: bool = False

    def mismatch(self) -> str | None:
        return next((why for target in self.targets if (why := target.mismatch()) is not None), None)


@functools.cache
def install() -> None:
    """Apply the patches to every connection that this process makes from now on.

    Raises `ConfigurationError` if an essential patch does not fit the installed libraries.
    """
    apply(PATCHES, frozenset(filter(None, os.environ.get(DISABLE, "").split(","))))


def apply(table: Iterable[Patch], disabled: Collection[str] = ()) -> None:
    """Verify all patches of the table that are not ``disabled``, then apply them in order."""
    table = list(table)
    if unknown := set(disabled) - {patch.name for patch in table if not patch.essential}:
        names = ", ".join(sorted(unknown))
        raise exceptions.ConfigurationError(reason=f"{DISABLE}: there is no such optional patch: {names}")
    fitting = []
    for patch in (patch for patch in table if patch.name not in disabled):
        why = patch.mismatch()
        if why is None:
            fitting.append(patch)
        elif patch.essential:
            raise exceptions.ConfigurationError(
                reason=f"the patch {patch.name} ({patch.purpose}) does not fit {_versions()}: {why}"
            )
        else:
            LOG.warning("The patch %s does not fit %s and is left out: %s", patch.name, _versions(), why)
    for patch in fitting:
        patch.apply()


def _versions() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("oslo.messaging", "kombu", "amqp"))


# --- reply-queue-names


def name_reply_queues(made: Any, prefix: str) -> None:
    """Let an oslo.messaging transport receive replies on queues whose names begin with ``prefix``.

    The broker can then keep other daemons from reading them (`nova_lite.rpc.broker`).
    """
    made._driver._get_reply_queue_name = lambda: prefix + uuid.uuid4().hex


# --- auth-retry: the broker refuses the account of a running daemon

#: Seconds between two attempts. oslo.messaging logs each attempt with its cause.
AUTH_RETRY_SECONDS = 5.0
_AUTH_RETRY_STEP = 0.25


def _retry_refused_consumers() -> None:
    """Wait between attempts to consume.

    oslo.messaging waits for a broker that is away, but not for a broker that refuses. Its two reading threads would try
    and log thousands of times a second.
    """
    consume = impl_rabbit.Connection.consume

    def consume_or_wait(used: Any, timeout: float | None = None) -> Any:
        try:
            return consume(used, timeout=timeout)
        except messaging.MessageDeliveryFailure:
            deadline = time.monotonic() + AUTH_RETRY_SECONDS
            while time.monotonic() < deadline and not used._consume_loop_stopped:
                time.sleep(_AUTH_RETRY_STEP)
            return None

    impl_rabbit.Connection.consume = consume_or_wait


# --- broker-alarms: the broker is short of memory or disk, and takes no messages

_sending = threading.local()


def _give_up_during_alarms() -> None:
    """Fail a request at once while the broker has an alarm. Replies wait.

    oslo.messaging waits for the broker's confirmation without end, because the broker's heartbeats keep the connection
    alive. The broker notifies senders that it is blocked. The connection is then reset and not closed: after a close,
    the broker would still take the message once the alarm is over, although the user got an error.
    """
    publish, on_blocked = impl_rabbit.Connection._publish, impl_rabbit.Connection._on_connection_blocked

    def publish_request(used: Any, exchange: Any, *arguments: Any, **options: Any) -> None:
        # The default exchange leads to a caller's own queue: such a message is a reply.
        _sending.connection = used if exchange.name else None
        try:
            publish(used, exchange, *arguments, **options)
        finally:
            _sending.connection = None

    def blocked(reason: str) -> None:
        """Raise in the thread that waits for the confirmation: that thread reads from the connection."""
        on_blocked(reason)
        used = getattr(_sending, "connection", None)
        if used is not None:
            _reset(used)
            raise amqp.exceptions.RecoverableConnectionError("The broker has an alarm, and takes no messages")

    impl_rabbit.Connection._publish = publish_request
    impl_rabbit.Connection._on_connection_blocked = staticmethod(blocked)


def _reset(used: Any) -> None:
    """Reset the connection: with a linger of 0 seconds, a close discards unread data at both ends (socket(7)).

    Nothing waits for the broker: neither a channel that is closed later, nor the end of TLS.
    """
    with contextlib.suppress(AttributeError, OSError):  # the connection may be lost already
        sock = used.channel.connection.transport.sock
        sock.settimeout(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    used.connection.collect()


# --- stalled-connections: a network that loses packets


def _leave_stalled_connections() -> None:
    """Reset a connection on which the broker has not confirmed a message in time.

    oslo.messaging keeps it for the next message. TCP waits twice as long after each lost packet, so a connection may
    stand still for minutes, while a new one works at once. It is reset before oslo.messaging and kombu close its
    channels, since they would wait for the broker as long again.

    The first message to an exchange over a connection declares it. oslo.messaging waits for that as long as for
    heartbeats, so the message's own time limit is set before.
    """
    publish = impl_rabbit.Connection._publish

    def publish_in_time(
        used: Any,
        exchange: Any,
        msg: Any,
        routing_key: str | None = None,
        timeout: float | None = None,
        transport_options: Any = None,
    ) -> None:
        try:
            if not (exchange.passive or exchange.name in used._declared_exchanges):
                used.set_transport_socket_timeout(timeout)
            publish(used, exchange, msg, routing_key, timeout, transport_options)
        except TimeoutError:
            _reset(used)
            raise

    impl_rabbit.Connection._publish = publish_in_time


# --- refused-messages: a queue has no leader for a moment

#: Number of attempts to send a message that the broker refuses, and seconds between two of them.
REFUSED_ATTEMPTS, _REFUSED_STEP = 30, 0.1


def _survive_refusals() -> None:
    """Send a refused message again, and let the connection stay usable after the last refusal.

    A broker nacks messages while the queue's copies choose a leader, such as after the loss of another broker. Without
    retries, oslo.messaging gives up and closes the channel. Afterwards kombu would hand out that closed channel, as the
    connection itself is well. Each later message of this connection would fail.
    """
    publish, set_channel = impl_rabbit.Connection._publish, impl_rabbit.Connection._set_current_channel

    def publish_until_taken(used: Any, *arguments: Any, **options: Any) -> None:
        for attempt in itertools.count(1):
            try:
                publish(used, *arguments, **options)
                return
            except amqp.exceptions.MessageNacked:
                if attempt >= REFUSED_ATTEMPTS:
                    raise
            time.sleep(_REFUSED_STEP)

    def set_and_forget(used: Any, new_channel: Any) -> None:
        before = used.channel
        set_channel(used, new_channel)
        if before is not None and used.channel is not before:
            used.connection.revive(used.channel)

    impl_rabbit.Connection._publish = publish_until_taken
    impl_rabbit.Connection._set_current_channel = set_and_forget


# --- repeated-reads: a server that stands still has taken a call

#: Seconds without a reply after which a read is sent again, and again after as many.
LATE_SECONDS = 2.0
#: Reads of a process that may be sent again at the same time. Otherwise a slow service would get even more to do.
_MAX_REPEATED = 16

_repeating = threading.local()
_repeated = threading.BoundedSemaphore(_MAX_REPEATED)


@contextlib.contextmanager
def repeats(is_read: bool) -> Iterator[None]:
    """Let the calls of this thread be sent again while no reply comes, if they may run twice."""
    _repeating.is_read, before = is_read, getattr(_repeating, "is_read", False)
    try:
        yield
    finally:
        _repeating.is_read = before


def _repeat_late_reads() -> None:
    """Send a read again, under the same id, while it has no reply. The first reply counts, and others are dropped.

    The broker has sent the read to a server that may have stopped without an end of its connection. It sends the next
    copy to another one.
    """
    send, get = amqpdriver.AMQPDriverBase.send, amqpdriver.ReplyWaiters.get

    def send_repeatably(
        driver: Any, target: Any, ctxt: Any, message: Any, wait_for_reply: Any = None, timeout: Any = None, **rest: Any
    ) -> Any:
        if not wait_for_reply or not getattr(_repeating, "is_read", False):
            return send(driver, target, ctxt, message, wait_for_reply, timeout, **rest)
        plain = dict(message)

        def again(left: float) -> None:
            ids = {name: message[name] for name in ("_msg_id", "_reply_q", "_timeout")}
            send(driver, target, ctxt, {**plain, **ids}, None, left, **rest)

        _repeating.again = again
        try:
            return send(driver, target, ctxt, message, wait_for_reply, timeout, **rest)
        finally:
            _repeating.again = None

    def get_or_repeat(waiters: Any, msg_id: str, timeout: float | None) -> Any:
        again = getattr(_repeating, "again", None)
        if again is None or timeout is None or timeout <= LATE_SECONDS:
            return get(waiters, msg_id, timeout)
        end = time.monotonic() + timeout
        with contextlib.suppress(messaging.MessagingTimeout):
            return get(waiters, msg_id, LATE_SECONDS)
        while (left := end - time.monotonic()) > 0:
            with _one_of_few() as may_send:
                if may_send:
                    _send_again(again, left)
                with contextlib.suppress(messaging.MessagingTimeout):
                    reply = get(waiters, msg_id, min(left, LATE_SECONDS))
                    if not _is_of_a_copy(reply):
                        return reply
        return get(waiters, msg_id, 0.001)

    amqpdriver.AMQPDriverBase.send = send_repeatably
    amqpdriver.ReplyWaiters.get = get_or_repeat


@contextlib.contextmanager
def _one_of_few() -> Iterator[bool]:
    is_one = _repeated.acquire(blocking=False)
    try:
        yield is_one
    finally:
        if is_one:
            _repeated.release()


def _is_of_a_copy(reply: Mapping[str, Any]) -> bool:
    """Check whether a server refuses a copy, because it has taken the read before. Its reply to that one comes."""
    failure = str(reply.get("failure") or "")
    return exceptions.MessageRefused.__name__ in failure and exceptions.MessageRefused.REPLAYED in failure


def _send_again(again: Callable[[float], None], left: float) -> None:
    """Send a copy. Without it, the reply to the first one may still come."""
    try:
        again(left)
    except (messaging.MessagingException, amqp.exceptions.AMQPError, kombu.exceptions.OperationalError, OSError) as why:
        LOG.info("A read without a reply could not be sent again: %s", why)


# --- stop-consuming: a server that stops takes no further message

#: Longest wait in seconds for the broker to confirm that it sends nothing more.
_CANCEL_SECONDS = 5


def _cancel_consumers_at_stop() -> None:
    """Cancel a server's consumers at the broker when it stops.

    oslo.messaging only stops reading. The broker continues to send messages, which wait until the server has finished
    the running ones. When its connection closes, messages that arrive before the reply to the last command are
    acknowledged and lost. The thread that reads cancels the consumers, because a connection is for one thread. Messages
    that the broker has sent before are served.
    """
    poll = amqpdriver.AMQPListener.poll

    def poll_until_cancelled(listener: Any, *arguments: Any, **options: Any) -> Any:
        if listener._shutdown.is_set():
            _cancel_consumers(listener.conn)
        found = poll(listener, *arguments, **options)
        if not found and listener._shutdown.is_set() and _cancel_consumers(listener.conn):
            found = poll(listener, *arguments, **options)
        return found

    amqpdriver.AMQPListener.poll = poll_until_cancelled


def _cancel_consumers(used: Any) -> bool:
    """Cancel a connection's consumers once. Returns whether they were cancelled now."""
    if getattr(used, "nova_lite_cancelled", False):
        return False
    used.nova_lite_cancelled = True
    try:
        with used._transport_socket_timeout(_CANCEL_SECONDS):
            for consumer, tag in list(used._consumers.items()):
                consumer.cancel(tag)
    except (*used.connection.connection_errors, *used.connection.channel_errors) as error:
        # The broker returns the messages of a lost connection to their queues.
        LOG.info("The consumers of a server that stops were not cancelled: %s", error)
    return True


# --- later-replies and unconfirmed-replies


def _reply_later() -> None:
    """Let a method return a `ResponseFuture`: the reply is sent when the future has its result."""
    reply = amqpdriver.AMQPIncomingMessage.reply

    def reply_or_wait(message: Any, response: Any = None, failure: Any = None) -> None:
        if isinstance(response, ResponseFuture):
            response.add_callback(functools.partial(send_result, message))
        else:
            reply(message, response, failure)

    amqpdriver.AMQPIncomingMessage.reply = reply_or_wait


def send_result(message: Any, get: Callable[[], Any]) -> None:
    """Reply as oslo.messaging does with the result of a method."""
    response = failure = None
    try:
        response = get()
    except messaging.ExpectedException as expected:
        failure = expected.exc_info
    except Exception:
        failure = sys.exc_info()
    message.reply(response, failure)


_PRODUCER = "nova_lite_producer"


#: Age in seconds of a connection to the broker from which replies to others than hosts are not confirmed either.
SETTLED_SECONDS = 60.0


def _reply_unconfirmed() -> None:
    """Do not wait for the broker's confirmation of a reply.

    A host repeats a call without a reply, so no reply to a host is confirmed. Users of other callers wait for a reply,
    and only a confirmed one is sent again. After a restart of the broker, a caller's queue may not be there yet. So
    replies to these callers are confirmed while the connection is younger than `SETTLED_SECONDS`, and when the broker
    has sent something, such as the connection's end. Unconfirmed replies need a channel of their own, because
    oslo.messaging's channels confirm every message.
    """
    reply = amqpdriver.AMQPIncomingMessage.reply

    def reply_unconfirmed(message: Any, response: Any = None, failure: Any = None) -> None:
        if not _send_unconfirmed(message, response, failure):
            reply(message, response, failure)

    amqpdriver.AMQPIncomingMessage.reply = reply_unconfirmed


def _is_to_host(message: Any) -> bool:
    sender = message.ctxt.get(SENDER) if isinstance(message.ctxt, dict) else None
    return sender is not None and sender.role == COMPUTE


_SETTLED = "nova_lite_settled"


def _is_settled(used: Any) -> bool:
    """Check whether a connection has sent replies for a while over the same channel, and has nothing to read."""
    channel, since = getattr(used, _SETTLED, (None, 0.0))
    if channel is not used.channel:
        since = time.monotonic()
        setattr(used, _SETTLED, (used.channel, since))
    return time.monotonic() - since >= SETTLED_SECONDS and _is_quiet(used.channel.connection.transport)


def _is_quiet(used: Any) -> bool:
    """Check that amqp's transport has nothing to read, not even its end."""
    if concurrency.is_eventlet() or used.sock is None or has_frame(used):
        return False
    readable = select.poll()
    readable.register(used.sock.fileno(), select.POLLIN)
    return not readable.poll(0)


def _send_unconfirmed(message: Any, response: Any, failure: Any) -> bool:
    """Return False if oslo.messaging has to send the reply: it connects first, waits for the broker, or tries again."""
    if not message.orig_msg_id:
        return False
    with message.listener.driver._get_connection(common.PURPOSE_SEND) as pooled:
        used = pooled.connection
        if not _is_connected(used) or not (_is_settled(used) or _is_to_host(message)):
            return False
        try:
            with used._connection_lock:
                message._send_reply(_UnconfirmedConnection(used), response, failure)
            return True
        except Exception as error:
            LOG.info("A reply is sent again: %s", " ".join(str(error).split()) or type(error).__name__)
            return False


class _UnconfirmedConnection:
    """The part of oslo.messaging's connection that sends a reply, over a channel without confirmations."""

    def __init__(self, used: Any) -> None:
        self._used = used

    def direct_send(self, queue: str, content: Any) -> None:
        made_for, producer = getattr(self._used, _PRODUCER, (None, None))
        if producer is None or made_for is not self._used.channel:
            unconfirmed = self._used.channel.connection.channel()
            unconfirmed.basic_publish = unconfirmed._basic_publish
            producer = Producer(unconfirmed)  # type: ignore[no-untyped-call]
            setattr(self._used, _PRODUCER, (self._used.channel, producer))
        producer.publish(content, exchange="", routing_key=queue)


def _is_connected(used: Any) -> bool:
    """Check whether oslo.messaging's connection can be used as it is.

    Without a channel there was no connection yet, or it broke. After a fork it is another process's.
    """
    return used.channel is not None and used._initial_pid == os.getpid()


# --- long-polls

#: Seconds for which oslo.messaging first waits for the next message after one.
FIRST_POLL = 0.25


def _poll_longer() -> None:
    """Wait longer for the next message after each one.

    After a message, oslo.messaging waits 1, 2, 4 ms and so on, up to 5 s, because acknowledgements of notifications may
    have to be sent in between. Each of these waits ends with an error and its preparations for a lost connection. No
    daemon receives notifications.
    """
    amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = FIRST_POLL


# --- direct-ensure


def _try_without_preparation() -> None:
    """Do what is to be done on a connection without kombu's preparations for its failure.

    oslo.messaging lets kombu repeat each action until it works. That takes four functions and a class for each message.
    A failure of the direct attempt counts as that of oslo.messaging's first attempt.
    """
    ensure = impl_rabbit.Connection.ensure

    def try_first(used: Any, method: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        if not _is_connected(used):
            return ensure(used, method, *arguments, **options)
        failures: list[BaseException] = []
        try:
            method()
            return None
        except Exception as error:
            failures.append(error)

        def attempt() -> Any:
            if failures:
                raise failures.pop()
            return method()

        return ensure(used, attempt, *arguments, **options)

    impl_rabbit.Connection.ensure = try_first


# --- read-ahead and direct-sockets

#: The smallest number of bytes to read at a time.
AHEAD = 16384

#: Errors of a socket, plain or with TLS, that mean: no data yet.
_AGAIN = {errno.EAGAIN, errno.EINTR, errno.ENOENT}

#: Head of a frame: its type, its channel, and the size of its payload, without the end byte.
_HEAD = struct.Struct(">BHI")

_having_timeout = transport._AbstractTransport.having_timeout
_blocking_read = connection.Connection.blocking_read


def has_frame(used: Any) -> bool:
    """Check whether amqp's transport has read a whole frame ahead."""
    buffer: bytes = used._read_buffer
    return len(buffer) > _HEAD.size and len(buffer) > _HEAD.size + _HEAD.unpack_from(buffer)[2]


def _read_ahead() -> None:
    """Read everything that has arrived by one system call. amqp makes nine for a message, one per part of a frame.

    Each system call releases the interpreter's lock, so a busy daemon's only reading thread waits for it again.
    """
    transport._AbstractTransport.having_timeout = _having_timeout_if_needed
    transport.TCPTransport._read = transport.SSLTransport._read = _read_buffered


def _use_sockets_directly() -> None:
    """Wait once for a frame, then read it, and write without waiting first.

    A Python socket with a timeout polls before each read and write, and changing its timeout is a system call. Not
    for TLS, where unread data may be in the TLS layer, nor for eventlet's sockets.
    """
    if not concurrency.is_eventlet():
        connection.Connection.blocking_read = _blocking_read_directly
        transport.TCPTransport._setup_transport = _set_up


def _having_timeout_if_needed(self: Any, timeout: float | None) -> Any:
    if has_frame(self):
        return contextlib.nullcontext()
    return _having_timeout(self, timeout)


def _blocking_read_directly(self: Any, timeout: float | None = None) -> Any:
    """Take the next frame. Raises TimeoutError after ``timeout`` seconds (None: the socket's own timeout).

    Raises the error of a lost connection if another thread has closed the connection.
    """
    used = self.transport
    if not isinstance(used, transport.TCPTransport):
        return _blocking_read(self, timeout)
    if not has_frame(used):
        sock = used.sock
        if sock is None:
            raise RecoverableConnectionError("connection already closed")
        limit = used.nova_lite_timeout[0] = sock.gettimeout() if timeout is None else timeout
        _wait(sock, limit)
    return self.on_inbound_frame(used.read_frame())


def _set_up(self: Any) -> None:
    """Prepare amqp's transport. The functions do not refer to it, so that it is freed as soon as it is unused."""
    self._read_buffer = b""
    #: Seconds to wait for the rest of a frame.
    self.nova_lite_timeout = [self.sock.gettimeout()]
    self._quick_recv = functools.partial(_receive, self.sock, self.nova_lite_timeout)
    self._write = functools.partial(_send, self.sock)


def _wait(sock: Any, timeout: float | None) -> None:
    number = sock.fileno()
    if number < 0:
        raise OSError(errno.EBADF, "The connection is closed")
    readable = select.poll()
    readable.register(number, select.POLLIN)
    if not readable.poll(None if timeout is None else math.ceil(timeout * 1000)):
        raise TimeoutError("timed out")


def _receive(sock: Any, timeout: list[float | None], count: int) -> bytes:
    """Return the available data. Without any, wait for more and raise BlockingIOError."""
    try:
        if sock.gettimeout() is None:  # a blocking socket: os.read would wait without end
            received: bytes = sock.recv(count, socket.MSG_DONTWAIT)
            return received
        return os.read(sock.fileno(), count)
    except BlockingIOError:
        _wait(sock, timeout[0])
        raise


def _send(sock: Any, data: Any) -> None:
    try:
        sent = os.write(sock.fileno(), data)
    except BlockingIOError:
        sent = 0
    if sent < len(data):
        sock.sendall(data[sent:])


def _read_buffered(self: Any, count: int, initial: bool = False) -> bytes:
    """Return exactly ``count`` bytes. Raises OSError when the connection is closed, and the socket's errors."""
    buffer: bytes = self._read_buffer
    try:
        while len(buffer) < count:
            try:
                received = self._quick_recv(max(count - len(buffer), AHEAD))
            except OSError as error:
                if error.errno not in _AGAIN:
                    raise
                if initial and self.raise_on_initial_eintr:
                    raise TimeoutError from error
                continue
            if not received:
                raise OSError("Server unexpectedly closed connection")
            buffer += received
    finally:
        self._read_buffer = buffer
    self._read_buffer = buffer[count:]
    return buffer[:count]


_RABBIT, _TCP, _TLS = impl_rabbit.Connection, transport.TCPTransport, transport.SSLTransport
_PUBLISH = (
    "self",
    "msg",
    "exchange",
    "routing_key",
    "mandatory",
    "immediate",
    "timeout",
    "confirm_timeout",
    "argsig",
)
_READ = ("self", "n", "initial", "_errnos")
_SEND = (
    "self",
    "target",
    "ctxt",
    "message",
    "wait_for_reply",
    "timeout",
    "call_monitor_timeout",
    "retry",
    "transport_options",
)

#: All patches, in the order in which they wrap each other's functions.
PATCHES = (
    Patch(
        "reply-queue-names",
        "the broker can keep daemons from reading the replies to others",
        (Target(impl_rabbit.RabbitDriver, "_get_reply_queue_name", ("self",)),),
        lambda: None,  # `name_reply_queues`, for each transport
        essential=True,
    ),
    Patch(
        "auth-retry",
        "a daemon that the broker refuses tries again every 5 seconds",
        (Target(_RABBIT, "consume", ("self", "timeout")),),
        _retry_refused_consumers,
        essential=True,
    ),
    Patch(
        "broker-alarms",
        "requests fail at once while the broker takes no messages",
        (
            Target(_RABBIT, "_publish", ("self", "exchange", "msg", "routing_key", "timeout", "transport_options")),
            Target(_RABBIT, "_on_connection_blocked", ("reason",)),
        ),
        _give_up_during_alarms,
        essential=True,
    ),
    Patch(
        "stalled-connections",
        "a connection on which a message was not confirmed in time is replaced",
        (Target(_RABBIT, "_publish", ("self", "exchange", "msg", "routing_key", "timeout", "transport_options")),),
        _leave_stalled_connections,
        essential=True,
    ),
    Patch(
        "refused-messages",
        "a connection stays usable after the broker has refused a message",
        (
            Target(_RABBIT, "_publish", ("self", "exchange", "msg", "routing_key", "timeout", "transport_options")),
            Target(_RABBIT, "_set_current_channel", ("self", "new_channel")),
            Target(kombu.connection.Connection, "revive", ("self", "new_channel")),
        ),
        _survive_refusals,
        essential=True,
    ),
    Patch(
        "repeated-reads",
        "a read that a server leaves without a reply is sent to another one",
        (
            Target(amqpdriver.AMQPDriverBase, "send", _SEND),
            Target(amqpdriver.ReplyWaiters, "get", ("self", "msg_id", "timeout")),
        ),
        _repeat_late_reads,
        essential=True,
    ),
    Patch(
        "stop-consuming",
        "a server that stops takes no further message, and loses none",
        (
            Target(amqpdriver.AMQPListener, "poll", ("in_self", "timeout", "batch_size", "batch_timeout")),
            Target(impl_rabbit.Consumer, "cancel", ("self", "tag")),
            Target(_RABBIT, "_transport_socket_timeout", ("self", "timeout")),
        ),
        _cancel_consumers_at_stop,
        essential=True,
    ),
    Patch(
        "unconfirmed-replies",
        "replies are not confirmed by the broker",
        (
            Target(amqpdriver.AMQPIncomingMessage, "reply", ("self", "reply", "failure")),
            Target(amqpdriver.AMQPIncomingMessage, "_send_reply", ("self", "conn", "reply", "failure", "ending")),
            Target(channel.Channel, "_basic_publish", _PUBLISH),
        ),
        _reply_unconfirmed,
    ),
    Patch(
        "later-replies",
        "an RPC method may return a future, and release its thread",
        (Target(amqpdriver.AMQPIncomingMessage, "reply", ("self", "reply", "failure")),),
        _reply_later,
        essential=True,
    ),
    Patch(
        "long-polls",
        "after a message, a daemon does not wake up every few milliseconds",
        (Target(amqpdriver, "ACK_REQUEUE_EVERY_SECONDS_MIN", None),),
        _poll_longer,
    ),
    Patch(
        "direct-ensure",
        "messages are sent and read without preparations for a failure",
        (
            Target(
                _RABBIT,
                "ensure",
                ("self", "method", "retry", "recoverable_error_callback", "error_callback", "timeout_is_error"),
            ),
        ),
        _try_without_preparation,
    ),
    Patch(
        "read-ahead",
        "one system call reads all messages that have arrived",
        (
            Target(_TCP, "_read", _READ),
            Target(_TLS, "_read", _READ),
            Target(transport._AbstractTransport, "having_timeout", ("self", "timeout")),
        ),
        _read_ahead,
    ),
    Patch(
        "direct-sockets",
        "a frame is waited for once, and written without waiting",
        (
            Target(connection.Connection, "blocking_read", ("self", "timeout")),
            Target(_TCP, "_setup_transport", ("self",)),
        ),
        _use_sockets_directly,
    ),
)
