"""The list of trusted keys as hosts fetch it, and replies to hosts that join, both signed by the authority.

Conductor and API only pass them on. A host that has the authority's certificate believes neither of them.
"""

from __future__ import annotations

import datetime
import http.client
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from nova_lite.base import exceptions, files, host_certificates
from nova_lite.base.host_certificates import Authority
from nova_lite.objects import Controller, FrontEnd, JoinReply, JoinRequest, JoinState, TrustList
from nova_lite.rpc import keys
from nova_lite.rpc.keys import TrustedKey

LOG = logging.getLogger(__name__)

#: File beside the list of trusted keys with the number of the list.
SERIAL = "trusted.serial"

_LIST, _REPLY = b"nova_lite trust list 1\0", b"nova_lite join reply 1\0"
#: Limit of a response. A key takes some 250 bytes.
_MAX_RESPONSE = 16 << 20
_SECONDS = 15.0

T = TypeVar("T")


class _Content(msgspec.Struct, kw_only=True):
    serial: int
    keys: list[TrustedKey]
    controllers: list[Controller] = []
    front_ends: list[FrontEnd] = []


# --- signing and checking


def signed_list(
    authority: Authority,
    trusted: Sequence[TrustedKey],
    previous: int,
    controllers: Sequence[Controller] = (),
    front_ends: Sequence[FrontEnd] = (),
) -> TrustList:
    """Sign a list. Its number is above ``previous``, and above that of each list that was lost with a database."""
    serial = max(previous + 1, int(datetime.datetime.now(datetime.UTC).timestamp() * 1000))
    made = _Content(serial=serial, keys=list(trusted), controllers=list(controllers), front_ends=list(front_ends))
    content = msgspec.json.encode(made).decode()
    signature = authority.sign(_LIST + content.encode())
    return TrustList(serial=serial, content=content, signature=signature, authority=authority.services_certificate())


def keys_of(trust: TrustList, authority: str) -> list[TrustedKey]:
    """Return the keys of a list. Raises `InvalidInput` unless ``authority`` (PEM) signed it."""
    if not host_certificates.verifies(authority, trust.signature, _LIST + trust.content.encode()):
        raise exceptions.InvalidInput(reason="the list of trusted keys is not signed by the cloud's authority")
    content = msgspec.json.decode(trust.content, type=_Content)
    if content.serial != trust.serial:
        raise exceptions.InvalidInput(reason="the list of trusted keys has another number than it says")
    return content.keys


def published_keys(trust: TrustList) -> list[TrustedKey]:
    """Return the keys of a list, unchecked: for whoever signed it."""
    return msgspec.json.decode(trust.content, type=_Content).keys


def controllers_of(trust: TrustList) -> list[Controller]:
    """Return the controllers of a list that was checked, or is one's own."""
    return msgspec.json.decode(trust.content, type=_Content).controllers


def front_ends_of(trust: TrustList) -> list[FrontEnd]:
    """Return the machines with one role of a list that was checked, or is one's own."""
    return msgspec.json.decode(trust.content, type=_Content).front_ends


def signed_reply(authority: Authority, reply: JoinReply) -> tuple[str, str]:
    """Return the JSON of a reply, and its signature."""
    content = msgspec.json.encode(reply).decode()
    return content, authority.sign(_REPLY + content.encode())


def reply_of(state: JoinState, authority: str, host: str, key: str) -> JoinReply:
    """Return the reply for a host's key. Raises `InvalidInput` unless ``authority`` (PEM) signed it for this key."""
    if not host_certificates.verifies(authority, state.signature, _REPLY + state.reply.encode()):
        raise exceptions.InvalidInput(reason="the reply is not signed by the cloud's authority")
    reply = msgspec.json.decode(state.reply, type=JoinReply)
    if (reply.host, reply.key) != (host, key):
        raise exceptions.InvalidInput(reason="the reply is for another host")
    return reply


# --- the join API's client


class JoinClient:
    """Client of the join API at ``address`` (HOST:PORT). ``authority``: PEM of its certificate's authority; None
    believes any certificate, which is fit only for what is signed.
    """

    def __init__(self, address: str, authority: str | None = None) -> None:
        self.address = address
        self._host, _, port = address.rpartition(":")
        self._host, self._port = self._host.strip("[]"), int(port)
        self._tls = ssl.create_default_context(cadata=authority)
        if authority is None:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def trust(self, known: int = 0) -> TrustList | None:
        """Return the signed list, or None if ``known`` is its number."""
        return self._request("GET", f"/v1/trust?known={known}", None, TrustList)

    def join(self, request: JoinRequest) -> JoinState:
        """Send a request. Raises `JoinRefused` with the reason."""
        state = self._request("POST", "/v1/hosts", msgspec.json.encode(request), JoinState)
        if state is None:
            raise exceptions.ServiceUnavailable(f"{self.address} answers without a body.")
        return state

    def _request(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T | None:
        """Return the decoded response. Raises `ServiceUnavailable` while there is no useful one."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_SECONDS, context=self._tls)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            status, content = response.status, response.read(_MAX_RESPONSE)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            hint = " Check this machine's clock." if "not yet valid" in why or "expired" in why else ""
            raise exceptions.ServiceUnavailable(f"{self.address} has a wrong certificate: {why}.{hint}") from error
        except (OSError, http.client.HTTPException) as error:
            raise exceptions.ServiceUnavailable(f"{self.address} cannot be reached: {_why(error)}.") from error
        finally:
            connection.close()
        return self._decode(status, content, kind)

    def _decode(self, status: int, content: bytes, kind: type[T]) -> T | None:
        if status == 204:
            return None
        try:
            if status == 200:
                return msgspec.json.decode(content, type=kind)
            message = str(json.loads(content)["error"]["message"])
        except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
            raise exceptions.ServiceUnavailable(
                f"{self.address} is no join API of a nova_lite cloud (HTTP status {status})."
            ) from error
        if 400 <= status < 500 and status != 429:
            raise exceptions.JoinRefused(reason=message)
        raise exceptions.ServiceUnavailable(message)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within 15 seconds"
    if isinstance(error, socket.gaierror):
        return "its name is unknown"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


class TrustUpdater:
    """Keeps a host's list of trusted keys in ``directory`` as the join API publishes it.

    ``receive`` gets each new list before the files are written.
    """

    def __init__(
        self, directory: str, client: JoinClient, authority: str, receive: Callable[[TrustList], None] | None = None
    ) -> None:
        self._receive = receive
        self._directory = directory
        self._client = client
        self._authority = authority

    def update(self) -> bool:
        """Fetch the list if it has changed, and write it. Returns whether it was written.

        Raises `ServiceUnavailable`, and `InvalidInput` for a list that is older than the present one or not signed.
        """
        known = read_serial(self._directory)
        trust = self._client.trust(known)
        if trust is None or trust.serial == known:
            return False
        write(self._directory, trust, self._authority, self._receive)
        return True


def write(directory: str, trust: TrustList, authority: str, receive: Callable[[TrustList], None] | None = None) -> None:
    """Write a list that is newer than the present one. Raises `InvalidInput` for any other."""
    trusted = keys_of(trust, authority)
    with files.locked_directory(directory):
        if trust.serial < read_serial(directory):
            raise exceptions.InvalidInput(reason="the list of trusted keys is older than the present one")
        if receive is not None:
            receive(trust)
        keys.write_trusted(os.path.join(directory, keys.TRUSTED), trusted)
        # Last: after an interruption, the list is written again.
        files.write_atomically(os.path.join(directory, SERIAL), f"{trust.serial}\n".encode(), mode=0o644)


def read_serial(directory: str) -> int:
    """Return the number of the present list; 0 if there is none."""
    try:
        with open(os.path.join(directory, SERIAL), encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return 0


def updater(conf: Any, receive: Callable[[TrustList], None] | None = None) -> Callable[[], None] | None:
    """Return the periodic task of a daemon with ``[rpc] trust_address``; None without. Raises `ConfigurationError`."""
    options = conf.rpc
    if not options.trust_address:
        return None
    if not options.keys_directory or not options.trust_ca_file:
        raise exceptions.ConfigurationError(reason="[rpc] trust_address needs keys_directory and trust_ca_file.")
    try:
        with open(options.trust_ca_file, encoding="ascii") as file:
            authority = file.read()
        host_certificates.fingerprint(authority)
        client = JoinClient(options.trust_address, authority)
    except (OSError, ValueError, exceptions.InvalidInput) as error:
        raise exceptions.ConfigurationError(reason=f"[rpc] trust_ca_file, trust_address: {error}") from error
    made = TrustUpdater(options.keys_directory, client, authority, receive)

    def update() -> None:
        try:
            if made.update():
                LOG.info("The list of trusted keys was updated")
        except (exceptions.InvalidInput, OSError) as error:
            why = error.message if isinstance(error, exceptions.InvalidInput) else error
            LOG.error("The daemon continues with its previous list of trusted keys: %s", why)

    return update
