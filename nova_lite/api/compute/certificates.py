"""Certificates of key pairs of type x509, by which a guest recognizes its user: generation, checks, fingerprints."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nova_lite.api.compute import ssh_keys
from nova_lite.base import exceptions
from nova_lite.objects.keypair import CERTIFICATE_START

_PEM_START, _CERTIFICATE_END = "-----BEGIN ", "-----END CERTIFICATE-----"
_BITS = 2048
_VALID = datetime.timedelta(days=3650)
#: Microsoft's user principal name, by which Windows maps a certificate to an account.
_PRINCIPAL_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
#: Maximum length of a common name.
_NAME_LENGTH = 64
_DER_UTF8_STRING = 0x0C


def generate(user_id: str) -> tuple[str, str]:
    """Return a new private key (PKCS 8, no passphrase) and its self-signed client certificate, both in PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user_id[:_NAME_LENGTH])])
    principal = x509.OtherName(_PRINCIPAL_NAME, _utf8_string(f"{user_id}@localhost"))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALID)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([principal]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()


def checked(certificate: str) -> str:
    """Return the certificate unchanged. Raise `InvalidKeypair` unless it is one certificate in PEM and nothing else."""
    text = certificate.strip()
    if (
        len(certificate) > ssh_keys.MAX_LENGTH
        or not certificate.startswith(CERTIFICATE_START)
        or not text.endswith(_CERTIFICATE_END)
        or text.count(_PEM_START) > 1
    ):
        raise exceptions.InvalidKeypair(reason="failed to generate fingerprint: it is not one certificate in PEM")
    _load(certificate)
    return certificate


def fingerprint(certificate: str) -> str:
    """Return the SHA-1 of the certificate in DER, as pairs of hex digits. It is a name, not a protection."""
    return _load(certificate).fingerprint(hashes.SHA1()).hex(":")  # noqa: S303 clients compare it


def _load(certificate: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate.encode())
    except ValueError as error:
        raise exceptions.InvalidKeypair(reason="failed to generate fingerprint") from error


def _utf8_string(text: str) -> bytes:
    """Encode ``text`` in DER: tag, length, value.

    A length from 128 on is written as its number of bytes, followed by these bytes.
    """
    value = text.encode()
    length = len(value)
    size = (length.bit_length() + 7) // 8
    head = bytes([length]) if length < 128 else bytes([0x80 | size]) + length.to_bytes(size, "big")
    return bytes([_DER_UTF8_STRING]) + head + value
