"""Certificates with keys, for tests of load balancers."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import NameOID


class Made(NamedTuple):
    """Certificate and key in PEM, and both as PKCS12."""

    certificate: bytes
    key: bytes
    pkcs12: bytes


def make(name: str) -> Made:
    """Make a certificate for a name, signed by its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    signed = made.not_valid_after(now + datetime.timedelta(30)).sign(key, hashes.SHA256())
    return Made(
        signed.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        pkcs12.serialize_key_and_certificates(name.encode(), key, signed, None, NoEncryption()),
    )
