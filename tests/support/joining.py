"""Tokens and requests of machines that join a cloud."""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from nova_lite.base import host_certificates, join_requests
from nova_lite.base.join_requests import JoinBody, JoinToken
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import joins
from nova_lite.objects import JoinRequest
from nova_lite.rpc.broker import hashed


def make_token(db: Database | None = None, lifetime: int = 3600, pin: bytes = bytes(32)) -> JoinToken:
    """Make a token, and its record if there is a database."""
    token = JoinToken.generate("192.0.2.10:8780", pin)
    if db is not None:
        db.write(lambda uow: joins.create_token(uow, token.public_key, lifetime))
    return token


class NewHost:
    """A machine that wants to join as ``name``, which is h and a number, with keys of its own."""

    def __init__(self, name: str = "h1") -> None:
        self.key = Ed25519PrivateKey.generate()
        self.host_key, self.console_key = host_certificates.new_key(), host_certificates.new_key()
        self.body = JoinBody(
            host=name,
            addresses=[f"192.0.2.{10 + int(name[1:])}"],
            key=join_requests.public_key(self.key),
            password_hash=hashed("secret"),
            host_key=_public(self.host_key),
            console_key=_public(self.console_key),
            version="1",
            sent=time.time(),
        )

    def request(self, token: JoinToken, signer: Ed25519PrivateKey | None = None, /, **changes: Any) -> JoinRequest:
        """Return a signed request. ``changes``: of the body, or of the request itself after it was signed."""
        of_body = {name: changes.pop(name) for name in list(changes) if name in JoinBody.__struct_fields__}
        body = msgspec.json.encode(msgspec.structs.replace(self.body, **of_body)).decode()
        made = JoinRequest(
            token=token.id,
            body=body,
            token_signature=token.sign(body),
            key_signature=join_requests.sign(signer or self.key, body),
        )
        return msgspec.structs.replace(made, **changes)

    def renewal(self, signer: Ed25519PrivateKey, **changes: Any) -> JoinRequest:
        """Return a request without a token, that ``signer``, the host's key until now, signs in its place."""
        made = self.request(make_token(), **changes)
        return msgspec.structs.replace(made, token="", token_signature=join_requests.sign(signer, made.body))


def _public(pem: bytes) -> str:
    return host_certificates.public_pem(load_pem_private_key(pem, None))  # type: ignore[arg-type]


def other_signature() -> str:
    return base64.b64encode(bytes(64)).decode()
