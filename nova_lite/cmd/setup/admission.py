"""Admission of this machine by the cloud: its request, and the files that the reply brings."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from nova_lite.base import exceptions, files, host_certificates, join_requests, version
from nova_lite.base.host_certificates import CONSOLES, SERVER_KEY
from nova_lite.base.join_requests import JoinBody, JoinToken
from nova_lite.cmd.setup import machine
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.objects import JoinReply, JoinRequest, JoinState
from nova_lite.objects.join import JOINED
from nova_lite.rpc import keys, trust
from nova_lite.rpc.broker import hashed
from nova_lite.rpc.trust import JoinClient

STATE = Path("/var/lib/nova-lite")
#: The daemon replaces the list of trusted keys itself, and may write below its state directory alone.
KEYS = STATE / "keys"
#: Values that an interrupted set-up has to find again: the password of the account at the broker, and its hash.
MEMORY = CONFIGURATION / "join.json"
AUTHORITY = CONFIGURATION / "ca.pem"
CERTIFICATES = Path("/etc/pki/qemu")

#: Seconds that the registrar may take.
_JOIN_SECONDS = 90
#: Seconds that an operator has to compare the code.
_CONFIRM_SECONDS = 1800
#: Seconds for which a join API that has answered before may be away: a virtual address moves, or an API restarts.
PATIENCE = 60.0
#: Seconds between two requests. A client may send one a second.
POLL = 2.0

T = TypeVar("T")


class Memory(msgspec.Struct, kw_only=True):
    """Values that the set-up made up on this machine, besides keys."""

    host: str
    password: str
    password_hash: str


def memory(path: Path | None = None) -> Memory | None:
    """Return what an earlier set-up made up. Raises `ConfigurationError` if it cannot be read."""
    path = path or MEMORY
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be read: {error}. Remove it.") from error


def make_memory(path: Path, host: str) -> None:
    """Make up a password, and store it for root alone."""
    _store(path, host, secrets.token_urlsafe(24))


def adopt_password(path: Path, file: Path) -> bool:
    """Store the password that an operator has written into a daemon's ``file``. Returns whether it has changed.

    The cloud gets its hash with the next request.
    """
    known = memory(path)
    password = unquote(urlsplit(machine.setting(file, "DEFAULT", "transport_url") or "").password or "")
    if known is None or password in ("", known.password):
        return False
    _store(path, known.host, password)
    return True


def _store(path: Path, host: str, password: str) -> None:
    made = Memory(host=host, password=password, password_hash=hashed(password))
    files.write_atomically(str(path), msgspec.json.encode(made), mode=0o600)


def message_key(host: str) -> Path:
    return Path(keys.private_path(str(KEYS), keys.COMPUTE, host))


def body(address: str, key: Path) -> JoinBody:
    """Return the body of the request, for the key for messages in a file."""
    known = memory()
    assert known is not None, "An earlier step made it."
    return JoinBody(
        host=known.host,
        addresses=[address],
        key=public(key),
        password_hash=known.password_hash,
        host_key=public_pem(CERTIFICATES / SERVER_KEY),
        console_key=public_pem(CERTIFICATES / CONSOLES / SERVER_KEY),
        version=version.VERSION,
        sent=time.time(),
    )


def request(token: str, text: str, token_signature: str, key: Path) -> JoinRequest:
    """Return a request with this body. The key in the file is the new one's."""
    signature = signature_of(key, text)
    return JoinRequest(token=token, body=text, token_signature=token_signature, key_signature=signature)


def signature_of(key: Path, text: str) -> str:
    own = load_pem_private_key(key.read_bytes(), None)
    if not isinstance(own, Ed25519PrivateKey):
        raise exceptions.ConfigurationError(reason=f"{key} is no Ed25519 key.")
    return join_requests.sign(own, text)


def renewed(client: JoinClient, text: str, present: Path, following: Path) -> JoinState:
    """Send a request that replaces the present key. Raises `ConfigurationError`.

    After an interruption of an hour the cloud believes only the following key, which it has already.
    """

    def send() -> JoinState:
        try:
            return client.join(request("", text, signature_of(present, text), following))
        except exceptions.JoinRefused as error:
            time.sleep(POLL)
            try:
                return client.join(request("", text, signature_of(following, text), following))
            except exceptions.JoinRefused:
                raise error from None

    return asked(send, PATIENCE)


def reach(token: JoinToken) -> str:
    """Fetch the signed list, and compare its authority with the token's. Returns the authority's certificate."""
    found = asked(lambda: JoinClient(token.address).trust())
    assert found is not None, "The list was not requested with a number."
    if host_certificates.fingerprint(found.authority) != token.pin:
        raise exceptions.ConfigurationError(
            reason=f"{token.address} is not the cloud that made this token: its certificate is another one."
        )
    trust.keys_of(found, found.authority)
    asked(lambda: JoinClient(token.address, found.authority).trust(found.serial))
    return found.authority


def wait_until_joined(send: Callable[[], JoinState]) -> JoinState:
    """Send the request until the registrar has admitted this host. Raises `ConfigurationError`."""
    deadline = time.monotonic() + _JOIN_SECONDS
    while True:
        state = send()
        if state.state == JOINED:
            return state
        if state.problem or time.monotonic() > deadline:
            problem = state.problem or "nova-lite-registrar does not answer there."
            raise exceptions.ConfigurationError(reason=f"the controller cannot admit this host: {problem}")
        time.sleep(POLL)


def wait_until_confirmed(send: Callable[[], JoinState], command: str) -> JoinState:
    """Print the command by which an operator confirms this machine, and send the request until the registrar has
    admitted it. Raises `ConfigurationError`.
    """
    print(f"\n\n    On the first controller: nova-lite-manage {command}\n\n       ", end=" ", flush=True)
    deadline = time.monotonic() + _CONFIRM_SECONDS
    while (state := send()).state != JOINED:
        if state.problem or time.monotonic() > deadline:
            problem = state.problem or "no operator has confirmed the code there, or nova-lite-registrar does not run."
            raise exceptions.ConfigurationError(reason=f"the first controller cannot admit this machine: {problem}")
        time.sleep(POLL)
    return state


def accept(state: JoinState, authority: str, address: str, host: str, key: Path) -> JoinReply:
    """Write the certificates of a reply, and the list of trusted keys. ``address``: of the join API."""
    reply = trust.reply_of(state, authority, host, public(key))
    for name, pem in reply.certificates.items():
        if name not in host_certificates.HOST_FILES:
            raise exceptions.ConfigurationError(reason=f"the cloud sent an unknown file: {name[:64]!r}.")
        machine.replace(CERTIFICATES / name, pem)
    machine.replace(AUTHORITY, authority)
    listed = asked(JoinClient(address, authority).trust, PATIENCE)
    assert listed is not None, "The list was not requested with a number."
    trust.write(str(KEYS), listed, authority)
    return reply


def asked(ask: Callable[[], T], patience: float = 0.0) -> T:
    """Return the result of a request, which is repeated for ``patience`` seconds while no API answers.

    Raises `ConfigurationError` for each problem.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask()
        except exceptions.JoinRefused as error:
            raise exceptions.ConfigurationError(reason=error.message) from error
        except exceptions.ServiceUnavailable as error:
            if time.monotonic() >= deadline:
                raise exceptions.ConfigurationError(reason=error.message) from error
        time.sleep(POLL)


def public(path: Path) -> str:
    """Return the public half of a key for messages, in base64."""
    return base64.b64encode(keys.PrivateKey.read(str(path)).public).decode()


def public_pem(path: Path) -> str:
    """Return the public half of a certificate's key, in PEM. Raises `ConfigurationError`."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise exceptions.ConfigurationError(reason=f"{path} is no private key. Remove it.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise exceptions.ConfigurationError(reason=f"{path} is no key of the curve P-256. Remove it.")
    return host_certificates.public_pem(key)
