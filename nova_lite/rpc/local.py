"""Calls to a conductor over a Unix socket, for APIs on its machine. Off unless ``[rpc] conductor_socket`` is set.

A call and its reply are the same as over the broker: signed, checked, admitted and served by the same functions. A
frame is its length in four bytes, and JSON. A connection carries one call at a time, so replies need no ids.

With signatures, a connection begins with a session (`nova_lite.rpc.session`), whose frames need none. A frame then is
its length, its MAC and its content. A reply is the form of its content in one byte, and the content as it was encoded.

A change that was not answered goes to the broker, with the same signature: the replay cache lets it run once at most.
A read may run twice, and is signed again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import selectors
import socket
import stat
import struct
import threading
import uuid
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_messaging._drivers import common

from nova_lite.base import clock, exceptions, unix_sockets
from nova_lite.base.context import get_admin_context
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc.client import Message
from nova_lite.rpc.keys import CONDUCTOR
from nova_lite.rpc.patches import LATE_SECONDS, send_result
from nova_lite.rpc.session import CALL, FAILURE, OPEN_SESSION, REPLY, KeyPair, Session, SessionReply
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS, SIGNATURE, SIGNED, Draft, Signing

LOG = logging.getLogger(__name__)

OPTION = "[rpc] conductor_socket"

#: Largest frame in bytes. Larger calls use the broker.
MAX_FRAME = 64 << 20
#: Connections of a server. Callers beyond it use the broker.
MAX_CONNECTIONS = 256
#: Seconds for which a caller uses the broker after it could not connect.
RETRY_SECONDS = 1.0
#: The same after a read without a reply: the conductor stands still.
LATE_RETRY_SECONDS = 10.0
#: Seconds for which a caller signs each call after a conductor has opened no session.
SIGNED_SECONDS = 60.0
#: Seconds for which a server waits for a caller that does not read its reply.
SEND_SECONDS = 10.0

_LENGTH = struct.Struct(">I")
_READ = 1 << 18


class Undelivered(Exception):
    """The call has no reply, and may be sent again by the broker."""


def check_directory(path: str) -> None:
    """Raise `ConfigurationError` if others than its owner may replace the socket at ``path``."""
    directory = os.path.dirname(os.path.abspath(path))
    try:
        mode = stat.S_IMODE(os.stat(directory).st_mode)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{OPTION}: {directory}: {error.strerror}") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise exceptions.ConfigurationError(
            reason=f"{OPTION}: directory {directory} can be written by others (mode {mode:04o}): chmod go-w"
        )


def _frame(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


# --- the API's side


class _Line:
    """A connection to a conductor. ``session``: None if each call is signed. ``calls``: number of its calls so far."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.session: Session | None = None
        self.calls = 0

    def frame(self, content: bytes) -> bytes:
        return _frame(self.session.sealed(CALL, self.calls, content) if self.session is not None else content)

    def receive(self, end: float) -> Any:
        """Return the next reply. Raises `TimeoutError` at ``end``, and `OSError` or `ValueError` without a reply."""
        data = _receive(self.sock, end)
        if self.session is not None:
            content = self.session.opened(REPLY, self.calls, data)
            self.calls += 1
            return SessionReply(content[:1], content[1:])
        reply = json.loads(data)
        if not isinstance(reply, dict):
            raise ValueError("not a reply")
        return reply


class LocalClient:
    """Connections to the conductor's socket at ``path``. ``seconds``: for a reply of a call without a timeout.

    ``is_signed``: what is sent and received is signed. Otherwise only root's and the own user's conductor is believed.
    ``signing`` opens sessions; None: each call is signed.
    """

    def __init__(
        self,
        path: str,
        seconds: float,
        is_signed: bool,
        retry_seconds: float = RETRY_SECONDS,
        signing: Signing | None = None,
    ) -> None:
        check_directory(path)
        self._path = path
        self._seconds = seconds
        self._retry_seconds = retry_seconds
        self._is_signed = is_signed
        self._signing = signing if is_signed else None
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._retry_at: float | None = None
        #: The time from which connections without a session are replaced.
        self._signed_until = 0.0
        self._closed = False

    def carries(self, message: Message) -> bool:
        """Check whether a call can go this way: it is for any conductor, and the socket worked lately."""
        if message.topic != CONDUCTOR or message.server is not None or message.fanout:
            return False
        return self._retry_at is None or clock.monotonic() >= self._retry_at

    def call(self, draft: Draft, message: Message) -> Any:
        """Send a call and return its reply, or raise the error in it. A session's reply may contain an error.

        Raises `Undelivered` without a reply, also to a read after `LATE_SECONDS`, which then goes by the broker, and
        oslo.messaging's `MessagingTimeout` when none comes in time.
        """
        seconds = self._seconds if message.timeout is None else message.timeout
        is_soon = message.is_read and seconds > LATE_SECONDS
        end = clock.monotonic() + (LATE_SECONDS if is_soon else seconds)
        line = self._send(draft, message, seconds)
        try:
            reply = line.receive(end)
        except TimeoutError as error:
            line.sock.close()
            if is_soon:
                raise self._failed(error, LATE_RETRY_SECONDS) from error
            raise messaging.MessagingTimeout(f"No reply over {self._path}") from error
        except (OSError, ValueError) as error:
            line.sock.close()
            # The replay cache knows a signed call. Other calls could run twice.
            if not self._is_signed:
                raise messaging.MessagingTimeout(f"The connection over {self._path} has ended") from error
            raise Undelivered from error
        self._put_back(line)
        return _opened(reply)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.sock.close()

    def _send(self, draft: Draft, message: Message, seconds: float) -> _Line:
        """Send a call, and return its connection. An idle connection may have been closed by its server."""
        while True:
            idle = self._take_idle()
            line = idle or self._connect()
            context = draft.signed()[0] if line.session is None else draft.context
            frame = line.frame(_content(context, message, seconds))
            if len(frame) > MAX_FRAME:
                self._put_back(line)
                raise Undelivered
            try:
                line.sock.settimeout(seconds)
                line.sock.sendall(frame)
                return line
            except OSError as error:
                # The server has no whole frame, so it does nothing.
                line.sock.close()
                if idle is None:
                    raise self._failed(error) from error

    def _take_idle(self) -> _Line | None:
        """Return an idle connection whose session, or its absence, is still right."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                line = self._idle.pop()
            if self._signing is None:
                return line
            if line.session is None:
                is_right = clock.monotonic() < self._signed_until
            else:
                is_right = self._signing.is_current(line.session)
            if is_right:
                return line
            line.sock.close()

    def _connect(self) -> _Line:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self._path)
            if not self._is_signed and not unix_sockets.is_trusted(sock):
                raise PermissionError("it is another user's")
            line = _Line(sock)
            if self._signing is not None and clock.monotonic() >= self._signed_until:
                self._open_session(line, self._signing)
        except OSError as error:
            sock.close()
            raise self._failed(error, LATE_RETRY_SECONDS if isinstance(error, TimeoutError) else None) from error
        if self._retry_at is not None:
            self._retry_at = None
            LOG.info("Calls to the conductor use %s again", self._path)
        return line

    def _open_session(self, line: _Line, signing: Signing) -> None:
        """Give a new connection a session if its conductor opens one. Raises `OSError` if it does not reply."""
        pair = KeyPair()
        arguments = {"public": pair.public}
        message = Message(CONDUCTOR, OPEN_SESSION, get_admin_context(), arguments=arguments, returns=dict[str, str])
        context, message_id = signing.signed(message)
        line.sock.sendall(line.frame(_content(context, message, LATE_SECONDS)))
        try:
            reply = line.receive(clock.monotonic() + LATE_SECONDS)
            public = signing.opened(message, message_id, _opened(reply))["public"]
            line.session = pair.as_caller(context[SIGNATURE]["key"], reply["result"][SIGNED]["key"], public)
        except (exceptions.NovaLiteException, messaging.RemoteError, KeyError, ValueError) as error:
            LOG.info("Calls over %s are signed one by one: %s", self._path, type(error).__name__)
            self._signed_until = clock.monotonic() + SIGNED_SECONDS

    def _failed(self, error: OSError, seconds: float | None = None) -> Undelivered:
        if self._retry_at is None:
            LOG.warning("Calls to the conductor use the broker: %s: %s", self._path, error.strerror or error)
        self._retry_at = clock.monotonic() + (self._retry_seconds if seconds is None else seconds)
        return Undelivered()

    def _put_back(self, line: _Line) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(line)
                return
        line.sock.close()


def _content(context: dict[str, Any], message: Message, seconds: float) -> bytes:
    body = {"method": message.method, "args": message.arguments, "version": message.version}
    return _json({"context": context, "message": body, "timeout": seconds})


def _opened(reply: Any) -> Any:
    """Return the result in a reply, or raise the error in it. A session's reply is opened with its type later."""
    if isinstance(reply, SessionReply):
        return reply
    if reply.get("failure") is not None:
        raise common.deserialize_remote_exception(reply["failure"], ALLOWED_REMOTE_EXMODS)
    return reply.get("result")


def _receive(sock: socket.socket, end: float) -> bytes:
    """Return the next frame of a connection. Raises `TimeoutError` at ``end``, and `OSError` at the end of file."""
    buffer = bytearray()
    size = _LENGTH.size
    while len(buffer) < size:
        sock.settimeout(max(0.001, end - clock.monotonic()))
        received = sock.recv(_READ)
        if not received:
            raise ConnectionResetError("closed without a reply")
        buffer += received
        if size == _LENGTH.size and len(buffer) >= size:
            size += _LENGTH.unpack_from(buffer)[0]
    return bytes(buffer[_LENGTH.size : size])


# --- the conductor's side


class LocalRequest:
    """A received call, in place of oslo.messaging's incoming message.

    ``seconds``: the time for which its caller waits. ``session``: what its frame was opened with. ``number``: of
    the call in the session. Raises `KeyError` or `TypeError` for content that is no call.
    """

    client_timeout = None
    reply_q = "local"

    def __init__(self, connection: _Connection, content: dict[str, Any], session: Session | None, number: int) -> None:
        self.ctxt, self.message = dict(content["context"]), dict(content["message"])
        self.seconds = float(content["timeout"])
        self.msg_id = uuid.uuid4().hex
        self.session = session
        self._number = number
        self._connection = connection
        dict(self.message["args"])

    def open_session(self, own: str) -> dict[str, str]:
        """Give the connection a session, which begins after the reply to this call. ``own``: id of the conductor's key.

        Return the content of the reply. Raises `ValueError` if there is a session, or the caller's part is invalid.
        """
        if self._connection.session is not None:
            raise ValueError("the connection has a session")
        pair = KeyPair()
        public = str(self.message["args"]["public"])
        self._connection.session = pair.as_conductor(own, self.ctxt[SIGNATURE]["key"], public)
        return {"public": pair.public}

    def acknowledge(self) -> None:
        """Do nothing: there is no broker that would send the call again."""

    def requeue(self) -> None:
        """Do nothing: there is no queue."""

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        if isinstance(reply, ResponseFuture):
            reply.add_callback(functools.partial(send_result, self))
            return
        text = common.serialize_remote_exception(failure) if failure else None
        if self.session is None:
            frame = _json({"result": reply, "failure": text})
        else:
            form, content = reply if text is None else (FAILURE, text.encode())
            frame = self.session.sealed(REPLY, self._number, form + content)
        self._connection.send(_frame(frame))


class _Connection:
    """A caller's connection. It is closed after its end, once each call has its reply."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.session: Session | None = None
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._calls = 0
        self._waiting = 0
        self._has_ended = False

    def read(self) -> list[LocalRequest] | None:
        """Return the calls that have arrived, or None at the end. Raises `ValueError` or `OSError`."""
        received = self.sock.recv(_READ, socket.MSG_DONTWAIT)
        if not received:
            return None
        self._buffer += received
        requests = []
        while len(self._buffer) >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if size > MAX_FRAME:
                raise ValueError("a frame is too large")
            if len(self._buffer) < size:
                break
            content = bytes(self._buffer[_LENGTH.size : size])
            del self._buffer[:size]
            session, number = self.session, self._calls
            if session is not None:
                content = session.opened(CALL, number, content)
                self._calls += 1
            try:
                requests.append(LocalRequest(self, json.loads(content), session, number))
            except (KeyError, TypeError) as error:
                raise ValueError("a frame is no call") from error
        with self._lock:
            self._waiting += len(requests)
        return requests

    def send(self, frame: bytes) -> None:
        """Send a reply. A caller that has gone needs none."""
        with self._lock:
            try:
                self.sock.settimeout(SEND_SECONDS)
                self.sock.sendall(frame)
            except OSError as error:
                LOG.info("A reply over %s could not be sent: %s", OPTION, error)
                self._shut()
            self._waiting -= 1
            if self._has_ended and not self._waiting:
                self.sock.close()

    def end(self) -> None:
        """Close the connection after the last reply."""
        with self._lock:
            self._has_ended = True
            if not self._waiting:
                self.sock.close()

    def stop_reading(self) -> None:
        """Let the caller send nothing more. What it has sent can still be read."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def _shut(self) -> None:
        """Let the reader find the end. It closes the socket, so that no other file gets its number before."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class LocalServer:
    """The socket at ``path``, from which one thread reads calls.

    ``submit`` takes each call. ``is_signed``: calls without a signature are refused. Otherwise only root and the own
    user may connect. Raises `ConfigurationError` if the socket cannot be made.
    """

    def __init__(self, path: str, submit: Callable[[LocalRequest], None], is_signed: bool) -> None:
        check_directory(path)
        self._path = path
        self._submit = submit
        self._is_signed = is_signed
        self._listener = _listen(path)
        self._inode = os.stat(path).st_ino
        self._wake, self._woken = socket.socketpair()
        self._connections: set[_Connection] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._stop_reading)
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="rpc-local", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more calls. Calls that were sent before are submitted when this returns."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:  # not a socket that has replaced it
                os.unlink(self._path)
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.closing(self._selector), self._wake, self._woken, self._listener:
            while not self._stopping or self._connections:
                for key, _ in self._selector.select():
                    key.data()

    def _stop_reading(self) -> None:
        self._stopping = True
        self._selector.unregister(self._woken)
        self._accept()  # connections that wait may have sent calls
        self._selector.unregister(self._listener)
        self._listener.close()
        for connection in self._connections:
            connection.stop_reading()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                if len(self._connections) >= MAX_CONNECTIONS or not (self._is_signed or unix_sockets.is_trusted(sock)):
                    LOG.warning("A connection to %s is refused", self._path)
                    sock.close()
                    continue
                connection = _Connection(sock)
                self._connections.add(connection)
                self._selector.register(sock, selectors.EVENT_READ, functools.partial(self._read, connection))

    def _read(self, connection: _Connection) -> None:
        try:
            requests = connection.read()
            for request in requests or ():
                self._submit(request)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            LOG.warning("A connection over %s is closed: %s", self._path, error)
            requests = None
        if requests is None:
            self._selector.unregister(connection.sock)
            self._connections.discard(connection)
            connection.end()


def _listen(path: str) -> socket.socket:
    try:
        return unix_sockets.listen(path, MAX_CONNECTIONS)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{OPTION} = {path}: {error.strerror or error}") from error
