"""SSH keys of key pairs: generation, checks, and fingerprints.

A public key is checked field by field, as OpenSSH does (``sshkey_from_blob``). cryptography's own check is not used,
since the key types that it knows depend on its version.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from nova_lite.base import exceptions

MAX_LENGTH = 16 * 1024

#: OpenSSH's limits of RSA keys, in bits.
_MIN_RSA_BITS, _MAX_RSA_BITS = 1024, 16384
_ED25519_BYTES = 32
_CERTIFICATE = "-cert-v01@openssh.com"


def generate() -> tuple[str, str]:
    """Return a new private key (OpenSSH format, no passphrase) and its public key in one line without a comment."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


def checked(public_key: str) -> str:
    """Return the key unchanged. Raise `InvalidKeypair` unless it is a single OpenSSH public key on one line."""
    text = public_key.strip()
    if not text or len(text) > MAX_LENGTH or not text.isprintable():
        raise _refusal("it is not one line of text")
    name = text.split()[0]
    if name.endswith(_CERTIFICATE):
        raise _refusal("it is a certificate, not a key")
    check = _TYPES.get(name)
    if check is None:
        raise _refusal(f"its type is none of {', '.join(_TYPES)}")
    blob = _Blob(_blob(text))
    try:
        if blob.text() != name:
            raise ValueError(f"its data are not those of the type {name}")
        check(blob)
        blob.end()
    except ValueError as error:
        raise _refusal(str(error)) from error
    return public_key


def fingerprint(public_key: str) -> str:
    """Return the MD5 of the key's blob as pairs of hex digits, as OpenSSH's ``-E md5`` prints it.

    It is a name, not a protection.
    """
    digest = hashlib.md5(_blob(public_key), usedforsecurity=False).hexdigest()
    return ":".join(digest[index : index + 2] for index in range(0, len(digest), 2))


def _refusal(why: str) -> exceptions.InvalidKeypair:
    return exceptions.InvalidKeypair(reason=f"failed to generate fingerprint: {why}")


def _blob(public_key: str) -> bytes:
    """Return the data of the key. Raise `InvalidKeypair` unless they are in base64, padded, and with no spare bits."""
    try:
        encoded = public_key.split()[1]
        blob = base64.b64decode(encoded, validate=True)
        if base64.b64encode(blob).decode() != encoded:
            raise ValueError("spare bits are set")
    except (IndexError, ValueError, binascii.Error) as error:
        raise _refusal("its second word is not base64") from error
    return blob


class _Blob:
    """The data of a key, a sequence of strings: four bytes with the length, then the bytes.

    Every method raises ValueError if the data end early, or are not those of a key.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def string(self) -> bytes:
        head = self._data[self._at : self._at + 4]
        end = self._at + 4 + int.from_bytes(head, "big")
        if len(head) < 4 or end > len(self._data):
            raise ValueError("it is not complete")
        value = self._data[self._at + 4 : end]
        self._at = end
        return value

    def text(self) -> str:
        try:
            return self.string().decode("ascii")
        except UnicodeDecodeError as error:
            raise ValueError("one of its texts is not ASCII") from error

    def number(self) -> int:
        """Return a positive number."""
        value = self.string()
        if not value.strip(b"\0") or value[0] & 0x80 or len(value.lstrip(b"\0")) * 8 > _MAX_RSA_BITS:
            raise ValueError("one of its numbers is not positive, or too large")
        return int.from_bytes(value, "big")

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError("bytes follow the key")


def _check_rsa(blob: _Blob) -> None:
    blob.number()
    if blob.number().bit_length() < _MIN_RSA_BITS:
        raise ValueError(f"an RSA key has at least {_MIN_RSA_BITS} bits")


def _check_dsa(blob: _Blob) -> None:
    for _ in range(4):
        blob.number()


def _check_ed25519(blob: _Blob) -> None:
    if len(blob.string()) != _ED25519_BYTES:
        raise ValueError(f"an Ed25519 key has {_ED25519_BYTES} bytes")


def _check_ecdsa(curve: ec.EllipticCurve, name: str) -> Callable[[_Blob], None]:
    def check(blob: _Blob) -> None:
        if blob.text() != name:
            raise ValueError(f"its curve is not {name}")
        point = blob.string()
        if point[:1] != b"\4":
            raise ValueError("its point is compressed")
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
        except ValueError as error:
            raise ValueError(f"its point is not on {name}") from error

    return check


def _check_hardware(check: Callable[[_Blob], None]) -> Callable[[_Blob], None]:
    """Return the check of a key in a hardware token. The name of its application follows the key."""

    def check_both(blob: _Blob) -> None:
        check(blob)
        if b"\0" in blob.string():
            raise ValueError("its application has no valid name")

    return check_both


_P256 = _check_ecdsa(ec.SECP256R1(), "nistp256")

#: Checks of the data after the type, by type.
_TYPES: dict[str, Callable[[_Blob], None]] = {
    "ssh-ed25519": _check_ed25519,
    "ssh-rsa": _check_rsa,
    "ecdsa-sha2-nistp256": _P256,
    "ecdsa-sha2-nistp384": _check_ecdsa(ec.SECP384R1(), "nistp384"),
    "ecdsa-sha2-nistp521": _check_ecdsa(ec.SECP521R1(), "nistp521"),
    "sk-ssh-ed25519@openssh.com": _check_hardware(_check_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _check_hardware(_P256),
    "ssh-dss": _check_dsa,
}
