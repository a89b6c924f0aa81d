"""X.509 certificates with which libvirt hosts recognise each other: an authority, and a certificate for each host.

The authority is a directory of the operator's machine, with its key (``ca-key.pem``, mode 0600) and its certificate.
A host's directory has the files that qemu expects (``ca-cert.pem``, ``server-cert.pem``, ``client-key.pem`` and so on).
Server and client have the same key. A certificate names the host and its addresses.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nova_lite.base import exceptions, files, ip

CA_KEY, CA_CERTIFICATE = "ca-key.pem", "ca-cert.pem"
#: Files of a host with its certificate and with its key, by qemu's names.
CERTIFICATES, KEYS = ("server-cert.pem", "client-cert.pem"), ("server-key.pem", "client-key.pem")

CA_LIFETIME = datetime.timedelta(days=3650)
#: The clock of a host may be behind by this time.
SKEW = datetime.timedelta(hours=1)

_PRIVATE, _PUBLIC = 0o600, 0o644


class Authority:
    """The authority in ``directory``."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create(self) -> None:
        """Create the authority, unless it exists."""
        if os.path.exists(self._path(CA_KEY)):
            return
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("nova_lite hosts")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        usage = _usage(key_cert_sign=True, crl_sign=True)
        made = _builder(name, name, key.public_key(), CA_LIFETIME).add_extension(constraints, critical=True)
        certificate = made.add_extension(usage, critical=True).sign(key, hashes.SHA256())
        files.write_atomically(self._path(CA_CERTIFICATE), certificate.public_bytes(Encoding.PEM), mode=_PUBLIC)
        # The key comes last: without it the authority does not exist yet.
        files.write_atomically(self._path(CA_KEY), _pem(key), mode=_PRIVATE)

    def issue(
        self,
        host: str,
        addresses: Sequence[str],
        directory: str,
        days: int,
        owner: tuple[int, int] | None = None,
    ) -> x509.Certificate:
        """Make a key and a certificate for a host, and write them to ``directory``. Existing ones are replaced.

        ``addresses``: IP addresses and names by which others reach the host. ``owner``: user and group of the keys.
        """
        authority_key, authority = self._read()
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(host), *map(_general_name, addresses)]
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = _builder(_name(host), authority.subject, key.public_key(), datetime.timedelta(days=days))
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # libvirt refuses a certificate without key encipherment, although TLS does not need it for such keys.
        usage = _usage(digital_signature=True, key_encipherment=True)
        made = made.add_extension(usage, critical=True)
        made = made.add_extension(purposes, critical=False)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = made.sign(authority_key, hashes.SHA256())
        os.makedirs(directory, mode=0o755, exist_ok=True)
        authority_pem, pem = authority.public_bytes(Encoding.PEM), certificate.public_bytes(Encoding.PEM)
        files.write_atomically(os.path.join(directory, CA_CERTIFICATE), authority_pem, mode=_PUBLIC)
        for file in KEYS:
            files.write_atomically(os.path.join(directory, file), _pem(key), mode=_PRIVATE, owner=owner)
        for file in CERTIFICATES:
            files.write_atomically(os.path.join(directory, file), pem, mode=_PUBLIC)
        return certificate

    def _read(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        try:
            with open(self._path(CA_KEY), "rb") as file:
                key = load_pem_private_key(file.read(), None)
            with open(self._path(CA_CERTIFICATE), "rb") as file:
                certificate = x509.load_pem_x509_certificate(file.read())
        except OSError as error:
            raise exceptions.ConfigurationError(reason=f"{error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise exceptions.ConfigurationError(reason=f"{self._directory} is no authority: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise exceptions.ConfigurationError(reason=f"{self._path(CA_KEY)} is not a key of an authority")
        return key, certificate

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _general_name(address: str) -> x509.GeneralName:
    if ip.is_address(address):
        return x509.IPAddress(ip.parse(address))
    return x509.DNSName(address)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - SKEW).not_valid_after(now + lifetime)


def _usage(**uses: bool) -> x509.KeyUsage:
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{use: uses.get(use, False) for use in every.split()})


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
