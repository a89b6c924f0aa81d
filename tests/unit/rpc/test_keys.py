"""Keys of daemons: libsodium and OpenSSL make and accept the same signatures."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey

from nova_lite.rpc import keys
from nova_lite.rpc.keys import PrivateKey, PublicKey

SIZES = [0, 500, 4096, 4097, 16384, 16385]


@pytest.mark.parametrize("size", SIZES)
def test_signature_is_openssls_and_verified_whatever_the_size(size: int) -> None:
    data, theirs = b"x" * size, Ed25519PrivateKey.generate()
    ours = PrivateKey(theirs)
    signature = ours.sign(data)
    assert signature == theirs.sign(data)
    assert PublicKey(ours.public).verifies(signature, data)


@pytest.mark.parametrize("size", SIZES)
def test_signature_that_is_wrong_is_refused_whatever_the_size(size: int) -> None:
    data, key = b"x" * size, PrivateKey.generate()
    signature, public = key.sign(data), PublicKey(key.public)
    flipped = bytes([signature[0] ^ 1]) + signature[1:]
    assert not any(public.verifies(wrong, data) for wrong in (flipped, signature[:-1], signature + b"x", b""))
    assert not public.verifies(signature, data + b"x")
    assert not PublicKey(PrivateKey.generate().public).verifies(signature, data)


def test_short_data_is_signed_and_verified_by_libsodium(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    monkeypatch.setattr(keys, "SigningKey", lambda seed: _Counted(seed, used))
    key = PrivateKey.generate()
    for size in SIZES:
        key.sign(b"x" * size)
    assert used == [0, 500, 4096]


class _Counted(SigningKey):
    def __init__(self, seed: bytes, used: list[int]) -> None:
        super().__init__(seed)
        self._used = used

    def sign(self, message: bytes) -> object:  # type: ignore[override]
        self._used.append(len(message))
        return super().sign(message)


@pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33])
def test_public_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="32"):
        PublicKey(key)
