"""Repositories of restic whose keys open at once.

`restic init` measures for seconds which scrypt parameters take half a second, and each later command takes that half a
second. Tests run dozens of commands, so theirs are made here, with the cheapest parameters. A repository is encrypted
as restic's design says: AES-256-CTR with Poly1305-AES.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from nova_lite.backups.repository import Repository

_CHEAPEST = {"N": 2, "r": 1, "p": 1}
#: An irreducible polynomial of degree 53, by which restic cuts streams into chunks.
_POLYNOMIAL = "3da3358b4dc173"


def _encrypted(key: bytes, text: dict[str, object]) -> bytes:
    """Return a text as restic encrypts it.

    ``key``: 32 bytes for AES-256-CTR, then the two halves of the key of Poly1305-AES.
    """
    nonce = os.urandom(16)
    cipher = Cipher(algorithms.AES(key[:32]), modes.CTR(nonce)).encryptor().update(json.dumps(text).encode())
    pad = Cipher(algorithms.AES(key[32:48]), modes.ECB()).encryptor().update(nonce)
    return nonce + cipher + Poly1305.generate_tag(key[48:] + pad, cipher)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def make_repository(place: Path, password: str) -> None:
    """Make an empty repository of version 2."""
    place.mkdir(parents=True)
    for name in ("data", "index", "keys", "locks", "snapshots"):
        (place / name).mkdir()
    master, salt = os.urandom(64), os.urandom(64)
    parts = {"mac": {"k": _text(master[32:48]), "r": _text(master[48:])}, "encrypt": _text(master[:32])}
    user_key = hashlib.scrypt(password.encode(), salt=salt, n=2, r=1, p=1, dklen=64)
    said = {"created": "2026-01-01T00:00:00Z", "username": "root", "hostname": "test", "kdf": "scrypt", **_CHEAPEST}
    key = json.dumps({**said, "salt": _text(salt), "data": _text(_encrypted(user_key, parts))}).encode()
    (place / "keys" / hashlib.sha256(key).hexdigest()).write_bytes(key)
    config = {"version": 2, "id": os.urandom(32).hex(), "chunker_polynomial": _POLYNOMIAL}
    (place / "config").write_bytes(_encrypted(master, config))


@pytest.fixture
def quick_restic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make repositories of this process with keys that open at once. restic does all the rest."""

    def init(self: Repository) -> None:
        place, password = (self._environment[f"RESTIC_{name}"] for name in ("REPOSITORY", "PASSWORD_FILE"))
        make_repository(Path(place), Path(password).read_text())

    monkeypatch.setattr(Repository, "_init", init)
