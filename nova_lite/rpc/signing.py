"""Signatures of messages: the sender signs with its key, and the receiver verifies before anything is done.

A signature is an item of the message's context. It covers topic, server, method, version, arguments, context, a unique
id and the time of sending. The receiver derives the sender from the key (`nova_lite.rpc.keys`). It refuses messages
that are too old or were received before. Then it checks the method's access rule (`nova_lite.rpc.permissions`). Replies
are signed for the id of their call.

A caller may accept the reply as text. Such a reply is encoded once, signed as it is, and decoded after verification.
Other callers, and daemons of earlier versions, get a value. Both sides then encode it once more to sign and to verify
it.

A sender that repeats a message signs it again, so that it does not count as replayed.

Messages of a session (`nova_lite.rpc.session`) have an id and a time, and no signature.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import logging
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging._drivers import common

from nova_lite.base import exceptions
from nova_lite.base.context import DaemonIdentity, ReceivedMessage
from nova_lite.base.futures import ResponseFuture, wait_for
from nova_lite.rpc import keys
from nova_lite.rpc.client import ECHO, Message, to_plain, to_typed
from nova_lite.rpc.contract import FIRST_VERSION
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.keys import ROLES, Keyring, TrustedKey
from nova_lite.rpc.permissions import AccessRule
from nova_lite.rpc.session import ENCODED, FAILURE, OPEN_SESSION, PLAIN, Session, SessionReply

LOG = logging.getLogger(__name__)

#: Modules whose errors cross the bus as themselves.
ALLOWED_REMOTE_EXMODS = [exceptions.WIRE_MODULE]

OFF, PERMISSIVE, REQUIRED = "off", "permissive", "required"

#: Items of a context: the signature of a message, and (within the process) the verified sender and the message that its
#: handler records. And the item that marks a signed reply.
SIGNATURE, SENDER, MESSAGE, SIGNED = "signature", "verified_sender", "verified_message", "nova_lite.signed"

#: Items that oslo.messaging adds to a context.
_ADDED = frozenset({SIGNATURE, SENDER, MESSAGE, "client_timeout", "msg_id", "reply_q", "conf"})

_MESSAGE, _REPLY, _REPLY_TEXT = b"nova_lite message 1\n", b"nova_lite answer 1\n", b"nova_lite answer 2\n"

#: Item of a signature: the caller accepts the reply as text. Item of a reply: the text.
_TEXT = "text"

#: Number of parts of a replay cache's lifetime, bytes of an id, and the largest number of ids in one string.
_PARTS = 8
#: Message ids of each sender that the replay cache holds. When it is full, it drops the oldest ones, and refuses
#: messages of their age.
REPLAY_CACHE_SIZE = 100_000
_ID_BYTES = 16
_FEW = 512


class Clock:
    """The time, in seconds since 1970.

    A jump of the machine's clock counts only after ``patience`` seconds. Until then the time continues from its old
    value. ``jumps_back``: number of jumps into the past.
    """

    def __init__(self, patience: float = 30.0) -> None:
        self._patience = patience
        self._offset = time.time() - _uptime()
        self._since: float | None = None
        self._lock = threading.Lock()
        self.jumps_back = 0

    def time(self) -> float:
        uptime, wall = _uptime(), time.time()
        with self._lock:
            if abs(wall - uptime - self._offset) < 1.0:
                self._offset, self._since = wall - uptime, None
            elif self._since is None:
                self._since = uptime
            elif uptime - self._since >= self._patience:
                LOG.warning("This machine's clock has jumped by %.0f s", wall - uptime - self._offset)
                self.jumps_back += wall - uptime < self._offset
                self._offset, self._since = wall - uptime, None
            return uptime + self._offset


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _has(ids: bytes | bytearray, message_id: bytes) -> bool:
    """Check whether ``message_id`` is in ``ids``, which are concatenated."""
    at = ids.find(message_id)
    while at > 0 and at % _ID_BYTES:  # the end of one and the beginning of the next
        at = ids.find(message_id, at + 1)
    return at >= 0


class _Ids:
    """A set of many ids of `_ID_BYTES` each, in concatenated form, which needs a fifth of a set's memory.

    The ids are divided by their hash, which no sender can predict, so that each search is short.
    """

    __slots__ = ("_buckets", "_count")

    def __init__(self, ids: bytes) -> None:
        self._count = 0
        self._buckets = tuple(bytearray() for _ in range(256))
        for at in range(0, len(ids), _ID_BYTES):
            self.add(ids[at : at + _ID_BYTES])

    def __len__(self) -> int:
        return self._count

    def add(self, message_id: bytes) -> bool:
        """Add an id. Return False if it is there already."""
        bucket = self._buckets[hash(message_id) % len(self._buckets)]
        if _has(bucket, message_id):
            return False
        bucket += message_id
        self._count += 1
        return True


class ReplayCache:
    """The ids of one sender's messages of the last ``lifetime`` seconds, by the messages' own time.

    Beyond ``limit`` ids, the oldest are dropped. Messages as old as those are then refused. After a jump of this
    machine's clock into the past, messages from before the jump are refused.
    """

    def __init__(self, lifetime: float, limit: int, jumps_back: int = 0) -> None:
        self._slice = lifetime / _PARTS
        self._jumps_back = jumps_back
        self._limit = limit
        #: Few ids are one string, because there are thousands of senders with few messages.
        self._parts: dict[int, bytes | _Ids] = {}
        self._count = 0
        self._floor = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def add(self, message_id: bytes, sent: float, oldest: float, now: float = 0.0, jumps_back: int = 0) -> bool:
        """Add an id. Return False if the message was received before, or may have been. ``oldest``: the time limit of
        messages. ``jumps_back``: of the clock (`Clock`).
        """
        part = int(sent // self._slice)
        with self._lock:
            if jumps_back != self._jumps_back:
                self._jumps_back = jumps_back
                self._parts, self._count, self._floor = {}, 0, int(now // self._slice) + 1
            self._floor = max(self._floor, int(oldest // self._slice))
            if self._parts and min(self._parts) < self._floor:
                for old in [part for part in self._parts if part < self._floor]:
                    self._forget(old)
            if part < self._floor or not self._put(part, message_id):
                return False
            self._count += 1
            while self._count > self._limit and len(self._parts) > 1:
                oldest_part = min(self._parts)
                self._forget(oldest_part)
                self._floor = oldest_part + 1
            return True

    def _put(self, part: int, message_id: bytes) -> bool:
        """Store an id. Return False if it is there already."""
        ids = self._parts.get(part, b"")
        if isinstance(ids, _Ids):
            return ids.add(message_id)
        if _has(ids, message_id):
            return False
        ids += message_id
        self._parts[part] = ids if len(ids) <= _FEW * _ID_BYTES else _Ids(ids)
        return True

    def _forget(self, part: int) -> None:
        ids = self._parts.pop(part)
        self._count -= len(ids) if isinstance(ids, _Ids) else len(ids) // _ID_BYTES


class Draft:
    """A message with an id and a time, but without a signature: what a session sends.

    ``message_id``: None if nothing is signed.
    """

    def __init__(self, message: Message, ring: Keyring | None, now: float) -> None:
        self._message = message
        self._ring = ring
        self._values = message.context.to_rpc()
        self.message_id = None if ring is None else uuid.uuid4().hex
        self._header = {"id": self.message_id, "time": round(now, 3), "server": message.server, _TEXT: True}

    @property
    def context(self) -> dict[str, Any]:
        return self._values if self._ring is None else self._values | {SIGNATURE: self._header}

    def signed(self) -> tuple[dict[str, Any], str | None]:
        """Return the message's context with a signature, and the id that the reply will be signed for."""
        if self._ring is None or self.message_id is None:
            return self._values, None
        message, key = self._message, self._ring.own
        data = _covered(
            message.topic,
            message.server,
            message.method,
            message.version,
            message.arguments,
            self._values,
            self.message_id,
            self._header["time"],
        )
        header = self._header | {"key": key.id, "signature": _text(key.sign(data))}
        return self._values | {SIGNATURE: header}, self.message_id


class Signing:
    """Signs and verifies messages for one daemon, ``role`` on ``host``.

    Raises `ConfigurationError` if ``[rpc] keys_directory`` lacks a file. Without that option nothing is signed or
    verified.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        role: str | None = None,
        host: str | None = None,
        shared: Signing | None = None,
    ) -> None:
        """Read the keys. ``shared``: signing of another daemon in this process, with the same list and clock."""
        options = conf.rpc
        self.mode = options.signing or (REQUIRED if options.keys_directory else OFF)
        self.clock: Clock = shared.clock if shared else Clock()
        self._lifetime, self._skew = float(options.signature_lifetime), float(options.clock_skew)
        self._limit = REPLAY_CACHE_SIZE
        self._seen: dict[tuple[str, str, str], ReplayCache] = {}
        self._unsigned: set[str] = set()
        self._lock = threading.Lock()
        self._ring: Keyring | None = None
        if self.mode == OFF:
            return
        if not options.keys_directory:
            raise exceptions.ConfigurationError(reason=f"[rpc] signing = {self.mode} needs [rpc] keys_directory")
        if role is None:
            raise exceptions.ConfigurationError(reason="[rpc] signing: this program has no role to sign as")
        ring = shared._ring if shared else None
        self._ring = Keyring(options.keys_directory, role, host or conf.host, _report_file, ring)

    # --- sending

    def draft(self, message: Message) -> Draft:
        return Draft(message, self._ring, self.clock.time())

    def signed(self, message: Message) -> tuple[dict[str, Any], str | None]:
        """Return the message's context with a signature, and the id that the reply will be signed for."""
        return self.draft(message).signed()

    @property
    def own(self) -> str:
        """The id of this daemon's key."""
        assert self._ring is not None
        return self._ring.own.id

    def is_current(self, session: Session) -> bool:
        """Check whether this daemon still has the key that has opened the session, and trusts the other one."""
        try:
            return self.own == session.own and bool(self._trusted(session.peer))
        except _Refused:
            return False

    def opened(self, message: Message, message_id: str | None, response: Any) -> Any:
        """Return the content of a reply, of the type that the message ``returns``, or raise the error in it.

        Raises `MessagingUnavailable` for a reply that its server has not signed for this call.
        """
        if isinstance(response, SessionReply):
            return _content(response, message.returns)
        header = response.get(SIGNED) if isinstance(response, dict) else None
        if self._ring is None or message_id is None:
            return to_typed(response, message.returns)
        if header is None:
            if self.mode == REQUIRED:
                self._distrust(message, "it is not signed")
            return to_typed(response, message.returns)
        text, failure = response.get(_TEXT), response.get("failure")
        try:
            if text is None:
                data = _reply(message_id, response.get("result"), failure)
            else:
                data, failure = _reply_text(message_id, text.encode()), None
            peer = self._verified(header, data).peer
        except _Refused as refused:
            self._distrust(message, str(refused))
        except (AttributeError, KeyError, TypeError, ValueError):
            self._distrust(message, "its signature cannot be read")
        if peer.role != message.topic or message.server not in (None, peer.host):
            self._distrust(message, f"it is signed by {peer}")
        if failure is not None:
            raise common.deserialize_remote_exception(failure, ALLOWED_REMOTE_EXMODS)
        if text is not None:
            return _decoder(message.returns).decode(text)
        return to_typed(response.get("result"), message.returns)

    def unsigned_failure(self, message: Message, message_id: str | None, error: Exception) -> Exception:
        """Return the error to raise for an error without a signature.

        A report that the service is unavailable is trusted: whoever can forge it could also drop the reply.
        """
        if self.mode != REQUIRED or message_id is None:
            return error
        if isinstance(error, exceptions.ServiceUnavailable) and not isinstance(error, exceptions.HostNotAdmitted):
            return error
        LOG.error("The reply of %s to %s is not trusted: it is not signed", message.topic, message.method)
        return exceptions.MessagingUnavailable(what=message.method)

    @staticmethod
    def _distrust(message: Message, why: str) -> NoReturn:
        LOG.error("The reply of %s to %s is not trusted: %s", message.topic, message.method, why)
        raise exceptions.MessagingUnavailable(what=message.method)

    # --- receiving

    def sender_of(self, topic: str, server: str, incoming: Any) -> DaemonIdentity | None:
        """Verify a message and return its sender, or None for an unsigned message that is let through. Raises
        `_Refused`.
        """
        header = incoming.ctxt.get(SIGNATURE)
        session: Session | None = getattr(incoming, "session", None)
        if self._ring is None:
            return None
        if header is None:
            self._unsigned_came(incoming.message.get("method"))
            return None
        try:
            sent, message_id, to = float(header["time"]), str(header["id"]), header["server"]
            if session is not None:
                entry, _ = self._trusted(session.peer)
            else:
                entry = self._verified(header, _received(topic, header, incoming))
            packed = bytes.fromhex(message_id)
            if not math.isfinite(sent) or len(packed) != _ID_BYTES:
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _Refused("its signature cannot be read") from error
        peer = entry.peer
        if to not in (None, server):
            raise _Refused(f"it is for {topic} on {to}", peer)
        oldest = self._check_time(peer, sent)
        with self._lock:
            key = (topic, server, entry.id)
            cache = ReplayCache(self._lifetime, self._limit, self.clock.jumps_back)
            seen = self._seen.get(key) or self._seen.setdefault(key, cache)
        if not seen.add(packed, sent, oldest, self.clock.time(), self.clock.jumps_back):
            raise _Refused(f"it was taken before: {exceptions.MessageRefused.REPLAYED}", peer)
        return peer

    def reply(self, incoming: Any, result: Any, failure: str | None) -> Any:
        """Return the signed reply to a call, with its ``result`` or the ``failure`` as oslo.messaging encodes it.

        A reply in a session is signed by its frame.
        """
        header = incoming.ctxt[SIGNATURE]
        if getattr(incoming, "session", None) is not None:
            return _session_reply(result, failure)
        message_id = header["id"]
        assert self._ring is not None
        key = self._ring.own
        encoded = _encoded(result) if failure is None and header.get(_TEXT) is True else None
        body: dict[str, Any]
        if encoded is not None:
            body, data = {_TEXT: encoded.decode()}, _reply_text(message_id, encoded)
        else:
            plain = to_plain(result)
            body = {"result": plain} if failure is None else {"failure": failure}
            data = _reply(message_id, plain, failure)
        return body | {SIGNED: {"key": key.id, "signature": _text(key.sign(data))}}

    def _unsigned_came(self, method: str) -> None:
        if self.mode == REQUIRED:
            raise _Refused("it is not signed")
        if method not in self._unsigned and len(self._unsigned) < 1000:
            self._unsigned.add(method)
            LOG.warning("Unsigned messages arrive (%s); [rpc] signing = permissive accepts them", method)

    def _check_time(self, peer: DaemonIdentity, sent: float) -> float:
        """Return the time before which messages are refused. Raises `_Refused`."""
        now = self.clock.time()
        if sent > now + self._skew:
            raise _Refused(
                f"its time is {sent - now:.0f} s ahead of ours ([rpc] clock_skew is {self._skew:.0f}): one of the two "
                "machines' clocks is wrong",
                peer,
            )
        oldest = now - self._lifetime - self._skew
        if sent < oldest:
            raise _Refused(
                f"its time is {now - sent:.0f} s behind ours ([rpc] signature_lifetime is {self._lifetime:.0f}): it "
                "has waited so long, or one of the two machines' clocks is wrong",
                peer,
            )
        return oldest

    def _verified(self, header: Mapping[str, Any], data: bytes) -> TrustedKey:
        """Return the key that has signed ``data``. Raises `_Refused`."""
        entry, public = self._trusted(str(header["key"]))
        try:
            signature = base64.b64decode(header["signature"], validate=True)
        except binascii.Error as error:
            raise ValueError from error
        if not public.verifies(signature, data):
            raise _Refused("its signature is wrong", entry.peer)
        return entry

    def _trusted(self, key: str) -> tuple[TrustedKey, keys.PublicKey]:
        """Return a trusted key, by its id. Raises `_Refused`."""
        assert self._ring is not None
        known = self._ring.find(key)
        if known is None:
            raise _Refused(f"its key {key[:16]!r} is not trusted")
        entry, _ = known
        if not entry.is_valid(self.clock.time(), self._skew):
            raise _Refused(f"its key {entry.id} is not valid now", entry.peer)
        return known


class _Refused(Exception):
    """A refused message. ``peer``: its sender, if known."""

    def __init__(self, why: str, peer: DaemonIdentity | None = None) -> None:
        super().__init__(why)
        self.peer = peer


class SignatureVerifier:
    """Wraps oslo.messaging's ``dispatcher`` of one server: verifies each message, and signs the replies."""

    def __init__(self, dispatcher: Any, signing: Signing, endpoint: Endpoint, server: str) -> None:
        self._dispatcher = dispatcher
        self._signing = signing
        self._endpoint = endpoint
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    def dispatch(self, incoming: Any) -> Any:
        method = incoming.message.get("method")
        message: ReceivedMessage | None = None
        try:
            sender = self._signing.sender_of(self._endpoint.topic, self._server, incoming)
            if sender is not None and method == OPEN_SESSION and hasattr(incoming, "open_session"):
                return self._signed_reply(incoming, method, lambda: incoming.open_session(self._signing.own))
            if sender is not None:
                self._check(method, sender, incoming.message.get("args", {}))
                if method in self._endpoint.recorders:
                    message = ReceivedMessage(str(incoming.ctxt[SIGNATURE]["id"]))
                else:
                    self._check_once(method, sender, incoming)
        except _Refused as refused:
            self._refuse(method, refused)
        incoming.ctxt = {**incoming.ctxt, SENDER: sender, MESSAGE: message}
        if sender is None:
            response = self._dispatcher.dispatch(incoming)
        else:
            response = self._signed_reply(incoming, method, lambda: self._handled(incoming, method, sender, message))
        # RabbitMQ's messages accept a later reply (`nova_lite.rpc.patches`), those of other drivers do not.
        return response if hasattr(incoming, "reply_q") else wait_for(response)

    def _handled(self, incoming: Any, method: str, sender: DaemonIdentity, message: ReceivedMessage | None) -> Any:
        """Return what the handler returns. A message that it has not recorded has changed nothing, and is recorded now.

        Without the database, neither can be done.
        """
        is_away = False
        try:
            return self._dispatcher.dispatch(incoming)
        except messaging.ExpectedException as expected:
            is_away = isinstance(expected.exc_info[1], exceptions.DatabaseUnavailable)
            raise
        finally:
            if message is not None and not message.is_recorded and not is_away:
                try:
                    self._check_once(method, sender, incoming)
                except _Refused as refused:
                    self._refuse(method, refused)

    def _signed_reply(self, incoming: Any, method: str, get: Callable[[], Any]) -> Any:
        """Return the signed result of ``get``, which may be typed values, or the signed error."""
        try:
            result = get()
            if not isinstance(result, ResponseFuture):
                return self._signing.reply(incoming, result, None) if incoming.msg_id else None
            return result.map(lambda get: self._signed_reply(incoming, method, get))
        except messaging.ExpectedException as expected:
            failure = expected.exc_info
        except Exception as error:
            LOG.error("RPC method %s cannot be served: %s: %s", method, type(error).__name__, error)
            failure = sys.exc_info()
        if not incoming.msg_id:
            return None
        return self._signing.reply(incoming, None, common.serialize_remote_exception(failure))

    def _check(self, method: str, sender: DaemonIdentity, arguments: Mapping[str, Any]) -> None:
        rules = self._endpoint.access
        if rules is None or method == ECHO:
            return
        rule = rules.get(method, _NOBODY if hasattr(self._endpoint, method) else _ANYBODY)
        if why := rule.refusal(sender, arguments):
            raise _Refused(why, sender)

    def _check_once(self, method: str, sender: DaemonIdentity, incoming: Any) -> None:
        once = self._endpoint.once
        try:
            if once is not None and not once(sender, method, str(incoming.ctxt[SIGNATURE]["id"])):
                replayed = exceptions.MessageRefused.REPLAYED
                raise _Refused(f"it was taken before, by another one or before this one began: {replayed}", sender)
        except exceptions.NovaLiteException as error:
            LOG.info("RPC method %s: %s", method, error.message)
            raise messaging.ExpectedException() from None

    def _refuse(self, method: str, refused: _Refused) -> NoReturn:
        """Log the refusal, and send the same text to the caller: operators look on either side."""
        who = f" of {refused.peer}" if refused.peer else ""
        method = (method if str(method).isidentifier() else repr(method))[:64]
        error = exceptions.MessageRefused(topic=self._endpoint.topic, server=self._server, method=method, why=refused)
        LOG.error("Message %s%s is refused: %s", method, who, refused)
        try:
            raise error from None
        except exceptions.MessageRefused:
            raise messaging.ExpectedException() from None


_NOBODY = AccessRule(frozenset())
#: Rule of methods that the endpoint does not serve: oslo.messaging has an error of its own for them.
_ANYBODY = AccessRule(frozenset(ROLES))


def _received(topic: str, header: Mapping[str, Any], incoming: Any) -> bytes:
    """Return the bytes that the signature of a received message covers."""
    content = incoming.message
    values = {key: value for key, value in incoming.ctxt.items() if key not in _ADDED}
    method, version, arguments = content.get("method"), content.get("version", FIRST_VERSION), content.get("args", {})
    return _covered(topic, header["server"], method, version, arguments, values, str(header["id"]), header["time"])


def _covered(
    topic: str,
    server: str | None,
    method: Any,
    version: Any,
    arguments: Mapping[str, Any],
    context: Mapping[str, Any],
    message_id: str,
    sent: Any,
) -> bytes:
    """Return the bytes that the signature of a message covers."""
    return _MESSAGE + _plain([topic, server, method, version, message_id, sent, context, arguments])


def _reply(message_id: str, result: Any, failure: str | None) -> bytes:
    return _REPLY + _plain([message_id, result, failure])


def _reply_text(message_id: str, text: bytes) -> bytes:
    """Return the signed bytes of a reply. The id is quoted, so that no other id and text give the same bytes."""
    return _REPLY_TEXT + _plain(message_id) + text


def _session_reply(result: Any, failure: str | None) -> SessionReply:
    if failure is not None:
        return SessionReply(FAILURE, failure.encode())
    encoded = _encoded(result)
    return SessionReply(PLAIN, _plain(to_plain(result))) if encoded is None else SessionReply(ENCODED, encoded)


def _content(reply: SessionReply, hint: Any) -> Any:
    """Return the result of a reply, of type ``hint``, or raise the error in it."""
    if reply.form == FAILURE:
        raise common.deserialize_remote_exception(reply.content.decode(), ALLOWED_REMOTE_EXMODS)
    return _decoder(hint).decode(reply.content) if reply.form == ENCODED else to_typed(json.loads(reply.content), hint)


def _encoded(result: Any) -> bytes | None:
    """Encode a result. Return None for text that is not UTF-8, such as a lone surrogate from a file name."""
    try:
        return msgspec.json.encode(result)
    except (ValueError, OverflowError):
        return None


@functools.cache
def _decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(hint)


def _plain(value: Any) -> bytes:
    """Encode a plain value. Both sides get the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _text(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


def _report_file(problem: str) -> None:
    LOG.error("The daemon continues with its previous keys: %s", problem)
