"""Messages are signed by the key of who sends them, and verified before anything is done.

A signature is an item of the message's context. It covers the topic and the server that the message is for, method,
version, arguments, context, an id that is new for each time that it is sent, and the time of that. The receiver knows
by the key who has sent it (`nova_lite.rpc.keys`), refuses what is too old or was there before, and asks the contract's
rows (`nova_lite.rpc.permissions`) whether that one may ask this. Answers are signed, too, for the id of their call.

Who asks says that it takes the answer as text, which is encoded once, signed as it is, and decoded when it has been
verified. Others, and daemons of earlier versions, are answered by a value, of which both sides have to make the same
text first, and the bus two more: of a list of 50 servers that was a third of what it took.

Who sends again signs anew, so that a repeated message is none that was replayed.
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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from oslo_config import cfg
from oslo_messaging._drivers import common

from nova_lite.base import exceptions
from nova_lite.base.batching import ResponseFuture, wait_for
from nova_lite.rpc import keys
from nova_lite.rpc.client import ECHO, Message, to_typed
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.keys import ROLES, Keyring, Peer, TrustedKey
from nova_lite.rpc.permissions import AccessRule

LOG = logging.getLogger(__name__)

#: Modules whose errors cross the bus as themselves.
ALLOWED_REMOTE_EXMODS = [exceptions.WIRE_MODULE]

OFF, PERMISSIVE, REQUIRED = "off", "permissive", "required"

#: The items of a context in which a message's signature travels, and in which the verified sender is told within the
#: process; and the one that tells a signed answer.
SIGNATURE, SENDER, ANSWER = "signature", "verified_sender", "nova_lite.signed"

#: What oslo.messaging adds to a context on its way.
_ADDED = frozenset({SIGNATURE, SENDER, "client_timeout", "msg_id", "reply_q", "conf"})

_MESSAGE, _ANSWER, _ANSWER_TEXT = b"nova_lite message 1\n", b"nova_lite answer 1\n", b"nova_lite answer 2\n"

#: The item of a signature by which an answer is asked for as text, and that of an answer which has it.
_TEXT = "text"

#: Into how many parts the time is cut for which ids are remembered, bytes of an id, and how many of them are few.
_PARTS = 8
_ID_BYTES = 16
_FEW = 512


class Clock:
    """The time, in seconds since 1970. The machine's clock is believed to have jumped once it has stood so for
    ``patience`` seconds; until then the time goes on from what it was."""

    def __init__(self, patience: float = 30.0) -> None:
        self._patience = patience
        self._offset = time.time() - _uptime()
        self._since: float | None = None
        self._lock = threading.Lock()

    def time(self) -> float:
        uptime, wall = _uptime(), time.time()
        with self._lock:
            if abs(wall - uptime - self._offset) < 1.0:
                self._offset, self._since = wall - uptime, None
            elif self._since is None:
                self._since = uptime
            elif uptime - self._since >= self._patience:
                LOG.warning("This machine's clock has jumped by %.0f s", wall - uptime - self._offset)
                self._offset, self._since = wall - uptime, None
            return uptime + self._offset


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _has(ids: bytes | bytearray, message_id: bytes) -> bool:
    """Whether it is one of ``ids``, which are one after the other."""
    at = ids.find(message_id)
    while at > 0 and at % _ID_BYTES:  # the end of one and the beginning of the next
        at = ids.find(message_id, at + 1)
    return at >= 0


class _Ids:
    """Many ids, each of `_ID_BYTES`, one after the other: 100,000 of a busy sender take 2 MB so, and took 10.6 as a
    set. They are divided by their hash, which no sender knows before, so that few are looked through."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, ids: bytes) -> None:
        self._count = 0
        self._buckets = tuple(bytearray() for _ in range(256))
        for at in range(0, len(ids), _ID_BYTES):
            self.add(ids[at : at + _ID_BYTES])

    def __len__(self) -> int:
        return self._count

    def add(self, message_id: bytes) -> bool:
        """False if it is there."""
        bucket = self._buckets[hash(message_id) % len(self._buckets)]
        if _has(bucket, message_id):
            return False
        bucket += message_id
        self._count += 1
        return True


class ReplayCache:
    """The ids of one sender's messages that were there, for ``lifetime`` seconds of their own time. When there are more
    than ``limit``, the oldest are forgotten, and nothing as old as they is taken any more."""

    def __init__(self, lifetime: float, limit: int) -> None:
        self._slice = lifetime / _PARTS
        self._limit = limit
        #: Few ids as one string: there are thousands of senders that have few.
        self._parts: dict[int, bytes | _Ids] = {}
        self._count = 0
        self._floor = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def add(self, message_id: bytes, sent: float, oldest: float) -> bool:
        """False if it was there before, or may have been. ``oldest``: what is older is refused anyway."""
        part = int(sent // self._slice)
        with self._lock:
            self._floor = max(self._floor, int(oldest // self._slice))
            if self._parts and min(self._parts) < self._floor:
                for old in [each for each in self._parts if each < self._floor]:
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
        """False if it is there."""
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


class Signing:
    """What one process signs with, and what it believes. ``role`` and ``host``: who it is.

    Raises `ConfigurationError` unless ``[rpc] keys_directory`` has what it needs; without that option nothing is signed
    or verified.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        role: str | None = None,
        host: str | None = None,
        beside: Signing | None = None,
    ) -> None:
        """``beside``: what another daemon of this process signs with, whose list and clock are shared."""
        options = conf.rpc
        self.mode = options.signing or (REQUIRED if options.keys_directory else OFF)
        self.clock: Clock = beside.clock if beside else Clock()
        self._lifetime, self._skew = float(options.signature_lifetime), float(options.clock_skew)
        self._limit = options.replay_cache_size
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
        ring = beside._ring if beside else None
        self._ring = Keyring(options.keys_directory, role, host or conf.host, _tell_of_file, ring)

    # --- who sends

    def signed(self, message: Message) -> tuple[dict[str, Any], str | None]:
        """The message's context as it is to be sent, and the id that the answer will be about."""
        values = message.context.to_rpc()
        if self._ring is None:
            return values, None
        key, message_id, sent = self._ring.own, uuid.uuid4().hex, round(self.clock.time(), 3)
        data = _covered(
            message.topic, message.server, message.method, message.version, message.arguments, values, message_id, sent
        )
        header = {"key": key.id, "id": message_id, "time": sent, "server": message.server, _TEXT: True}
        return values | {SIGNATURE: header | {"signature": _text(key.sign(data))}}, message_id

    def opened(self, message: Message, message_id: str | None, answer: Any) -> Any:
        """What an answer says, of the type that the message ``returns``; raises the error that it tells. One that its
        receiver has not signed for this call is none: `MessagingUnavailable`."""
        header = answer.get(ANSWER) if isinstance(answer, dict) else None
        if self._ring is None or message_id is None:
            return to_typed(answer, message.returns)
        if header is None:
            if self.mode == REQUIRED:
                self._distrust(message, "it is not signed")
            return to_typed(answer, message.returns)
        text, failure = answer.get(_TEXT), answer.get("failure")
        try:
            if text is None:
                data = _answer(message_id, answer.get("result"), failure)
            else:
                data, failure = _answer_text(message_id, text), None
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
        return to_typed(answer.get("result"), message.returns)

    def unsigned_failure(self, message: Message, message_id: str | None, error: Exception) -> Exception:
        """What is to be raised for an error that came back without a signature: that the service is not available is
        believed, as whoever can say so could also have kept the answer back."""
        if self.mode != REQUIRED or message_id is None:
            return error
        if isinstance(error, exceptions.ServiceUnavailable) and not isinstance(error, exceptions.HostNotAdmitted):
            return error
        LOG.error("The answer of %s to %s is not believed: it is not signed", message.topic, message.method)
        return exceptions.MessagingUnavailable(what=message.method)

    @staticmethod
    def _distrust(message: Message, why: str) -> NoReturn:
        LOG.error("The answer of %s to %s is not believed: %s", message.topic, message.method, why)
        raise exceptions.MessagingUnavailable(what=message.method)

    # --- who receives

    def sender_of(self, topic: str, server: str, incoming: Any) -> Peer | None:
        """Who has sent a message, which is taken for the first time; None for an unsigned one that is let through.
        Raises `_Refused`."""
        header = incoming.ctxt.get(SIGNATURE)
        if self._ring is None:
            return None
        if header is None:
            self._unsigned_came(incoming.message.get("method"))
            return None
        try:
            sent, message_id, to = float(header["time"]), str(header["id"]), header["server"]
            content = incoming.message
            values = {key: value for key, value in incoming.ctxt.items() if key not in _ADDED}
            method, version = content.get("method"), content.get("version", "1.0")
            data = _covered(topic, to, method, version, content.get("args", {}), values, message_id, header["time"])
            entry = self._verified(header, data)
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
            seen = self._seen.get(key) or self._seen.setdefault(key, ReplayCache(self._lifetime, self._limit))
        if not seen.add(packed, sent, oldest):
            raise _Refused("it was taken before: it is replayed", peer)
        return peer

    def answer(self, incoming: Any, result: Any, failure: str | None) -> Any:
        """What is sent back to a signed call, with its ``result`` or the ``failure`` as oslo.messaging writes it."""
        asked = incoming.ctxt[SIGNATURE]
        message_id = asked["id"]
        assert self._ring is not None
        key = self._ring.own
        text = _encoded(result) if failure is None and asked.get(_TEXT) is True else None
        body: dict[str, Any]
        if text is not None:
            body, data = {_TEXT: text}, _answer_text(message_id, text)
        else:
            body = {"result": result} if failure is None else {"failure": failure}
            data = _answer(message_id, result, failure)
        return body | {ANSWER: {"key": key.id, "signature": _text(key.sign(data))}}

    def _unsigned_came(self, method: str) -> None:
        if self.mode == REQUIRED:
            raise _Refused("it is not signed")
        if method not in self._unsigned and len(self._unsigned) < 1000:
            self._unsigned.add(method)
            LOG.warning("Messages that are not signed come in (%s), as [rpc] signing = permissive lets them", method)

    def _check_time(self, peer: Peer, sent: float) -> float:
        """Returns the time before which nothing is taken."""
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
        """Whose key it is that has signed ``data``."""
        assert self._ring is not None
        found: tuple[TrustedKey, Ed25519PublicKey] | None = self._ring.find(str(header["key"]))
        if found is None:
            raise _Refused(f"its key {str(header['key'])[:16]!r} is not trusted")
        entry, public = found
        if not entry.is_valid(self.clock.time(), self._skew):
            raise _Refused(f"its key {entry.id} is not valid now", entry.peer)
        try:
            signature = base64.b64decode(header["signature"], validate=True)
        except binascii.Error as error:
            raise ValueError from error
        if not keys.verifies(public, signature, data):
            raise _Refused("its signature is wrong", entry.peer)
        return entry


class _Refused(Exception):
    """``peer``: whose message it is, as far as that is known."""

    def __init__(self, why: str, peer: Peer | None = None) -> None:
        super().__init__(why)
        self.peer = peer


class SignatureVerifier:
    """Before oslo.messaging's ``dispatcher`` of one server: verifies each message, and signs what is answered."""

    def __init__(self, dispatcher: Any, signing: Signing, endpoint: Endpoint, server: str) -> None:
        self._dispatcher = dispatcher
        self._signing = signing
        self._endpoint = endpoint
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    def dispatch(self, incoming: Any) -> Any:
        method = incoming.message.get("method")
        try:
            sender = self._signing.sender_of(self._endpoint.topic, self._server, incoming)
            if sender is not None:
                self._check(method, sender, incoming.message.get("args", {}))
                self._check_once(method, sender, incoming)
        except _Refused as refused:
            self._refuse(method, refused)
        incoming.ctxt = {**incoming.ctxt, SENDER: sender}
        if sender is None:
            answer = self._dispatcher.dispatch(incoming)
        else:
            answer = self._answered(incoming, method, lambda: self._dispatcher.dispatch(incoming))
        # RabbitMQ's messages can be answered later (`nova_lite.rpc.patches`), another driver's cannot.
        return answer if hasattr(incoming, "reply_q") else wait_for(answer)

    def _answered(self, incoming: Any, method: str, get: Callable[[], Any]) -> Any:
        try:
            result, failure = get(), None
        except messaging.ExpectedException as expected:
            result, failure = None, expected.exc_info
        except Exception as error:
            LOG.error("RPC method %s cannot be served: %s: %s", method, type(error).__name__, error)
            result, failure = None, sys.exc_info()
        if isinstance(result, ResponseFuture):
            return result.map(lambda get: self._answered(incoming, method, get))
        return self._answer(incoming, result, failure)

    def _answer(self, incoming: Any, result: Any, failure: Any) -> Any:
        if not incoming.msg_id:
            return None
        told = None if failure is None else common.serialize_remote_exception(failure)
        return self._signing.answer(incoming, result, told)

    def _check(self, method: str, sender: Peer, arguments: Mapping[str, Any]) -> None:
        rules = self._endpoint.access
        if rules is None or method == ECHO:
            return
        rule = rules.get(method, _NOBODY if hasattr(self._endpoint, method) else _ANYBODY)
        if why := rule.refusal(sender, arguments):
            raise _Refused(why, sender)

    def _check_once(self, method: str, sender: Peer, incoming: Any) -> None:
        once = self._endpoint.once
        try:
            if once is not None and not once(sender, method, str(incoming.ctxt[SIGNATURE]["id"])):
                raise _Refused("it was taken before, by another one or before this one began: it is replayed", sender)
        except exceptions.NovaLiteException as error:
            LOG.info("RPC method %s: %s", method, error.message)
            raise messaging.ExpectedException() from None

    def _refuse(self, method: str, refused: _Refused) -> NoReturn:
        """One line here, and the same to whoever asked: an operator's mistake is to be seen on either side."""
        who = f" of {refused.peer}" if refused.peer else ""
        method = (method if str(method).isidentifier() else repr(method))[:64]
        error = exceptions.MessageRefused(topic=self._endpoint.topic, server=self._server, method=method, why=refused)
        LOG.error("Message %s%s is refused: %s", method, who, refused)
        try:
            raise error from None
        except exceptions.MessageRefused:
            raise messaging.ExpectedException() from None


_NOBODY = AccessRule(frozenset())
#: What the endpoint does not serve, which is told by oslo.messaging's own error.
_ANYBODY = AccessRule(frozenset(ROLES))


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
    """What the signature of a message is about."""
    return _MESSAGE + _plain([topic, server, method, version, message_id, sent, context, arguments])


def _answer(message_id: str, result: Any, failure: str | None) -> bytes:
    return _ANSWER + _plain([message_id, result, failure])


def _answer_text(message_id: str, text: str) -> bytes:
    """The id is in quotes, so that no other one with the beginning of a text makes the same bytes."""
    return _ANSWER_TEXT + _plain(message_id) + text.encode()


def _encoded(result: Any) -> str | None:
    """None of what is no UTF-8, as a lone surrogate that came by a file's name."""
    try:
        return msgspec.json.encode(result).decode()
    except (ValueError, OverflowError):
        return None


@functools.cache
def _decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(hint)


def _plain(value: Any) -> bytes:
    """The same bytes for the same plain value, on either side of the bus."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _text(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


def _tell_of_file(trouble: str) -> None:
    LOG.error("The keys in use are kept: %s", trouble)
