"""Join tokens, and the requests that are signed with them: by a token, a machine becomes a host of the cloud.

A token has the address of the join API, the SHA-256 of the authority's certificate, and the seed of an Ed25519 key. The
machine signs its request with that key. The database has only the public half, so that no machine can join with what
the database, an API, or the network shows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from nova_lite.base import exceptions, host_certificates, ip, sealing
from nova_lite.base.context import is_host_name

PREFIX = "nlj1-"
#: Roles whose keys a controller has. The first one signs its requests to join.
CONTROLLER_ROLES = ("manage", "conductor", "scheduler", "api", "console")
#: Roles that a machine can have alone, with the certificates that their daemons need.
FRONT_ENDS = {"api": ("api",), "console": ("consoles", "proxies")}
#: Kinds of machines that join, besides the roles of front ends.
COMPUTE_HOST, CONTROLLER = "compute", "controller"
#: Seconds for which a key that was replaced is still trusted.
KEY_OVERLAP = 3600
#: Largest number of bytes of a request's body.
MAX_BODY = 16384
_MAX_ADDRESSES = 16
#: Bytes of a password's hash at RabbitMQ: salt and SHA-256.
_HASH_BYTES = 36

_SEED, _PIN, _SUM = 32, 32, 4
_DOMAIN = b"nova_lite join request 1\0"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,64}\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252}):([1-9][0-9]{0,4})")
_ID = re.compile(r"[0-9a-f]{16}")


class JoinToken(NamedTuple):
    """A token. ``address``: host and port of the join API. ``pin``: SHA-256 of the authority's certificate in DER."""

    address: str
    pin: bytes
    seed: bytes

    @classmethod
    def generate(cls, address: str, pin: bytes) -> JoinToken:
        """Make a token. Raises `InvalidInput` for an address that is none."""
        if not _ADDRESS.fullmatch(address):
            raise exceptions.InvalidInput(reason=f"{address[:300]!r} is not of the form HOST:PORT")
        return cls(address, pin, secrets.token_bytes(_SEED))

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Parse a token. Raises `InvalidInput` for a text that is no whole token."""
        text = text.strip()
        if not text.startswith(PREFIX) or len(text) > 1024:
            raise exceptions.InvalidInput(reason=f"a token begins with {PREFIX}: nova-lite-manage host token makes it")
        encoded = text.removeprefix(PREFIX)
        try:
            content = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
            body, found = content[:-_SUM], content[-_SUM:]
            address = body[_SEED + _PIN :].decode("ascii")
        except (binascii.Error, ValueError):
            body, found, address = b"", b"-", ""
        if not hmac.compare_digest(_sum(body), found) or not _ADDRESS.fullmatch(address):
            raise exceptions.InvalidInput(reason="the token is incomplete: copy the whole line")
        return cls(address, body[_SEED : _SEED + _PIN], body[:_SEED])

    def text(self) -> str:
        body = self.seed + self.pin + self.address.encode("ascii")
        return PREFIX + base64.urlsafe_b64encode(body + _sum(body)).decode().rstrip("=")

    @property
    def public_key(self) -> str:
        return public_key(self._key)

    @property
    def id(self) -> str:
        return token_id(self.public_key)

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def sign(self, body: str) -> str:
        return sign(self._key, body)


def public_key(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def token_id(public: str) -> str:
    return hashlib.sha256(base64.b64decode(public)).hexdigest()[:16]


def is_token_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def is_public_key(text: str) -> bool:
    """Check whether a text is an Ed25519 public key in base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except (binascii.Error, ValueError):
        return False


def sign(key: Ed25519PrivateKey, body: str) -> str:
    return base64.b64encode(key.sign(_DOMAIN + body.encode())).decode()


def verifies(public: str, signature: str, body: str) -> bool:
    """Check the signature of a request's body. ``public``: key in base64."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
        key.verify(base64.b64decode(signature, validate=True), _DOMAIN + body.encode())
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _sum(body: bytes) -> bytes:
    """Return a checksum, by which an incomplete copy is noticed. It protects against no attacker."""
    return hashlib.sha256(b"nova_lite join token" + body).digest()[:_SUM]


# --- requests


class ControllerBody(msgspec.Struct, kw_only=True):
    """Public keys of a machine that becomes a controller.

    ``message_keys``: Ed25519 in base64 by role. ``certificate_keys``: PEM by name of the certificate. ``seal_key``: the
    key to which the secrets of the cloud are sealed.
    """

    message_keys: dict[str, str]
    certificate_keys: dict[str, str]
    seal_key: str


class FrontEndBody(msgspec.Struct, kw_only=True):
    """Public keys of a machine that becomes a front end: it has the APIs, or the console proxies, alone.

    ``role``: of `FRONT_ENDS`. ``certificate_keys``: PEM by name of the certificate. ``seal_key``: the key to which its
    configuration is sealed.
    """

    role: str
    certificate_keys: dict[str, str]
    seal_key: str


class JoinBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Description of a machine, and its public keys.

    ``addresses``: by which others reach it, the most important one first. ``key``: Ed25519, in base64, that signs its
    messages. ``password_hash``: of its account at the broker, as RabbitMQ stores it. ``host_key``, ``console_key``: PEM
    of the keys for its certificates. ``sent``: seconds since 1970, by its clock.

    ``controller``: what a machine that becomes a controller sends in place of password and keys for certificates, which
    are empty then. ``key`` is that of its role ``manage``. ``front_end``: the same for a machine with one role, which
    has a password.
    """

    host: str
    addresses: list[str]
    key: str
    password_hash: str
    host_key: str
    console_key: str
    version: str
    sent: float
    controller: ControllerBody | None = None
    front_end: FrontEndBody | None = None

    @property
    def kind(self) -> str:
        """Return what the machine becomes: `COMPUTE_HOST`, `CONTROLLER`, or a role of `FRONT_ENDS`."""
        if self.front_end is not None:
            return self.front_end.role
        return COMPUTE_HOST if self.controller is None else CONTROLLER


def confirmation_code(body: JoinBody) -> str:
    """Return the code by which an operator recognises a machine that becomes a controller: 80 bits of a hash.

    It covers every key, so no attacker can put another machine in its place, nor another key for the secrets.
    """
    fixed = msgspec.structs.replace(body, sent=0.0, version="")
    digest = hashlib.sha256(b"nova_lite controller\0" + msgspec.json.encode(fixed, order="deterministic")).digest()
    text = base64.b32encode(digest[:10]).decode()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def parse_body(text: str) -> JoinBody:
    """Return a request's body whose values are fit for the programs that get them. Raises `InvalidInput`."""
    if len(text.encode()) > MAX_BODY:
        raise exceptions.InvalidInput(reason=f"the request has more than {MAX_BODY} bytes.")
    try:
        body = msgspec.json.decode(text, type=JoinBody)
    except msgspec.DecodeError as error:
        raise exceptions.InvalidInput(reason=f"the request cannot be read: {error}") from error
    if not is_host_name(body.host) or ip.is_address(body.host):  # Programs may take it for the address.
        raise exceptions.InvalidInput(reason=f"{body.host[:300]!r} is not a host name.")
    if not 1 <= len(body.addresses) <= _MAX_ADDRESSES or not all(map(ip.is_address, body.addresses)):
        raise exceptions.InvalidInput(reason=f"addresses have to be 1 to {_MAX_ADDRESSES} IP addresses.")
    if not is_public_key(body.key):
        raise exceptions.InvalidInput(reason="key is no Ed25519 key.")
    if body.controller is not None:
        _check_controller(body, body.controller)
        return body
    if not _is_hash(body.password_hash):
        raise exceptions.InvalidInput(reason="password_hash is no salted SHA-256.")
    if body.front_end is not None:
        _check_front_end(body, body.front_end)
        return body
    for pem in (body.host_key, body.console_key):
        host_certificates.check_public(pem)
    return body


def _check_controller(body: JoinBody, controller: ControllerBody) -> None:
    """Raise `InvalidInput` unless a controller's request has each key once."""
    if body.password_hash or body.host_key or body.console_key or body.front_end is not None:
        raise exceptions.InvalidInput(reason="a controller sends no password and no keys of a host.")
    if set(controller.message_keys) != set(CONTROLLER_ROLES):
        raise exceptions.InvalidInput(reason=f"message_keys have to be of {', '.join(CONTROLLER_ROLES)}.")
    if body.key != controller.message_keys[CONTROLLER_ROLES[0]]:
        raise exceptions.InvalidInput(reason=f"key has to be that of {CONTROLLER_ROLES[0]}.")
    if not all(map(is_public_key, controller.message_keys.values())):
        raise exceptions.InvalidInput(reason="message_keys have to be Ed25519 keys.")
    _check_keys(controller.certificate_keys, host_certificates.CONTROLLER_CERTIFICATES, controller.seal_key)


def _check_front_end(body: JoinBody, front_end: FrontEndBody) -> None:
    """Raise `InvalidInput` unless a front end's request has a known role, and each key once."""
    if front_end.role not in FRONT_ENDS:
        raise exceptions.InvalidInput(reason=f"role has to be one of {', '.join(FRONT_ENDS)}.")
    if body.host_key or body.console_key:
        raise exceptions.InvalidInput(reason="a front end sends no keys of a host.")
    _check_keys(front_end.certificate_keys, FRONT_ENDS[front_end.role], front_end.seal_key)


def _check_keys(certificate_keys: Mapping[str, str], names: Sequence[str], seal_key: str) -> None:
    if set(certificate_keys) != set(names):
        raise exceptions.InvalidInput(reason=f"certificate_keys have to be of {', '.join(names)}.")
    for pem in certificate_keys.values():
        host_certificates.check_public(pem)
    try:
        sealing.seal(seal_key, b"")
    except sealing.Unreadable as error:
        raise exceptions.InvalidInput(reason="seal_key is no X25519 key.") from error


def _is_hash(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _HASH_BYTES
    except (binascii.Error, ValueError):
        return False
