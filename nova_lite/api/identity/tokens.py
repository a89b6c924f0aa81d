"""Fernet tokens: user, project and expiry, encrypted and signed with a key that only API daemons read.

The keys are records of the identity service. The newest key that every API daemon has encrypts new tokens, and all keys
decrypt. A replaced key decrypts until its last token expires: whoever has stolen it makes no tokens afterwards. A
revoked token has a record with its audit id. The clock of all API daemons decides whether a token is valid. So the
record outlives the expiry by a token's lifetime, measured by a clock that does not jump: the token is then expired,
whatever the clock says later.
"""

from __future__ import annotations

import base64
import binascii
import math
import secrets
import threading
import time

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Revocation, TokenKey
from nova_lite.api.identity.replica import Replica
from nova_lite.base import exceptions

#: Seconds by which another API daemon's clock may be ahead. A token from later is of a clock that was wrong.
CLOCK_SKEW = 300.0

#: Seconds after which every API daemon has read a new key, so that tokens may be made with it.
KEY_DELAY = 10.0


class Token(msgspec.Struct, array_like=True):
    """Content of a token. Times are Unix times.

    ``audit_ids``: the token's own, and that of the token that a password made, from which this one was derived.
    """

    user_id: str
    project_id: str | None
    methods: list[str]
    issued_at: float
    expires_at: float
    audit_ids: list[str]
    #: Id of the application credential that limits the token.
    credential_id: str | None = None
    #: Id of the trust that the token is of. Its user is the trustee, also with impersonation.
    trust_id: str | None = None
    #: Id of the domain that the token is for, instead of a project.
    domain_id: str | None = None
    #: True for a token for the whole cloud, instead of a project or domain.
    system: bool = False
    #: `Credential.digest` of the EC2 credential that signed the log-in.
    ec2_digest: str | None = None


def new_token(user_id: str, project_id: str | None, lifetime: int, parent: Token | None = None) -> Token:
    """Make a token. With a ``parent``, it expires when the parent expires."""
    now = time.time()
    audit_id = secrets.token_urlsafe(16)
    if parent is None:
        return Token(user_id, project_id, ["password"], now, now + lifetime, [audit_id])
    methods = sorted({*parent.methods, "token"})
    audit_ids = [audit_id, parent.audit_ids[-1]]
    return Token(
        user_id,
        project_id,
        methods,
        now,
        parent.expires_at,
        audit_ids,
        credential_id=parent.credential_id,
        ec2_digest=parent.ec2_digest,
    )


def add_key(content: Content, keep: int) -> TokenKey:
    """Add a new key, and delete all but the ``keep`` newest ones."""
    number = max((int(key.id) for key in content.keys), default=0) + 1
    key = TokenKey(id=str(number), key=Fernet.generate_key().decode(), created_at=time.time())
    content.keys.append(key)
    content.keys = _by_age(content)[-keep:]
    return key


def _by_age(content: Content) -> list[TokenKey]:
    """Return the keys, the oldest first."""
    return sorted(content.keys, key=lambda key: int(key.id))


def _encode(token: Token) -> bytes:
    """Encode a token. Daemons that know no limits of tokens cannot decode a limited one."""
    limits = token.credential_id, token.trust_id, token.domain_id
    is_special = token.system or any(limit is not None for limit in limits)
    return msgspec.msgpack.encode((token,) if is_special else token)


def _decode(data: bytes) -> Token:
    try:
        return msgspec.msgpack.decode(data, type=Token)
    except msgspec.ValidationError:
        return msgspec.msgpack.decode(data, type=tuple[Token])[0]


class Tokens:
    """Makes, reads and revokes tokens."""

    def __init__(self, replica: Replica, lifetime: float = 3600.0) -> None:
        """Use the keys and revocations of ``replica``. Tokens are valid for at most ``lifetime`` seconds."""
        self._replica = replica
        self._lifetime = lifetime
        self._lock = threading.Lock()
        self._ciphers: tuple[list[TokenKey], list[tuple[float, Fernet]]] | None = None
        #: Audit ids of expired tokens, and when this process found that they are expired.
        self._expired: dict[str, float] = {}

    def seal(self, token: Token) -> str:
        keys = _by_age(self._replica.content)
        if not keys:
            raise exceptions.ServiceUnavailable(
                "This cloud has no key for tokens yet: its operator has to run nova-lite-manage user init."
            )
        now = time.time()
        key = next((key for key in reversed(keys) if key.created_at <= now - KEY_DELAY), keys[0])
        return Fernet(key.key).encrypt(_encode(token)).rstrip(b"=").decode()

    def open(self, text: str) -> Token | None:
        """Return the token, or None if it is invalid, expired or revoked."""
        content = self._replica.content
        now = time.time()
        ciphers = [cipher for end, cipher in self._ciphers_of(content) if now < end]
        if not ciphers:
            return None
        try:
            raw = text.encode("ascii")
            base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
            data = MultiFernet(ciphers).decrypt(raw + b"=" * (-len(raw) % 4))
            token = _decode(data)
        except (InvalidToken, UnicodeEncodeError, binascii.Error, msgspec.DecodeError):
            return None
        if not token.issued_at - CLOCK_SKEW <= now < token.expires_at:
            return None
        return None if content.find(Revocation, token.audit_ids[0]) is not None else token

    def _ciphers_of(self, content: Content) -> list[tuple[float, Fernet]]:
        """Return each key's cipher and the time at which its last token expires, the newest first."""
        known = self._ciphers
        if known is not None and known[0] == content.keys:
            return known[1]
        ciphers, end = [], math.inf
        for key in reversed(_by_age(content)):
            ciphers.append((end, Fernet(key.key)))
            if key.created_at:  # An older version has stored no time.
                end = min(end, key.created_at + KEY_DELAY + CLOCK_SKEW + self._lifetime)
        self._ciphers = content.keys, ciphers
        return ciphers

    def revoke(self, token: Token) -> None:
        """Revoke a token for all API daemons. The record is deleted long after the token expired."""
        self._replica.add(Revocation(id=token.audit_ids[0], expires_at=token.expires_at))
        if forgotten := self._long_expired():
            self._replica.remove(Revocation, forgotten)

    def _long_expired(self) -> list[str]:
        """Return the audit ids of tokens that this process has known to be expired for a token's lifetime."""
        now, uptime = time.time(), time.monotonic()
        with self._lock:
            expired = [item.id for item in self._replica.content.revocations if item.expires_at < now]
            self._expired = {id: self._expired.get(id, uptime) for id in expired}
            forgotten = [id for id, since in self._expired.items() if uptime - since >= self._lifetime]
            for id in forgotten:
                del self._expired[id]
        return forgotten
