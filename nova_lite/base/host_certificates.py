"""X.509 certificates with which libvirt hosts and console proxies recognise each other, and their authority.

The authority is a directory of the operator's machine, with its key (``ca-key.pem``, mode 0600) and its certificate.
A host's directory has the files that qemu expects (``ca-cert.pem``, ``server-cert.pem``, ``client-key.pem`` and so on).
Server and client have the same key. A certificate names the host and its addresses.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nova_lite.base import exceptions, files, ip

CA_KEY, CA_CERTIFICATE = "ca-key.pem", "ca-cert.pem"
#: Files of a host with its certificate and with its key, by qemu's names.
SERVER_CERTIFICATE, CLIENT_CERTIFICATE = CERTIFICATES = ("server-cert.pem", "client-cert.pem")
SERVER_KEY, CLIENT_KEY = KEYS = ("server-key.pem", "client-key.pem")
#: Directory of the hosts' certificates and their authority, below the directory of keys.
HOST_CERTIFICATES = "hosts"
#: Directory of the consoles' files in the directory of a host.
CONSOLES = "consoles"
CONSOLE_FILES = (CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY)
#: Files of a host that `Authority.certify` makes.
HOST_FILES = (
    CA_CERTIFICATE,
    *CERTIFICATES,
    *(f"{CONSOLES}/{name}" for name in (CA_CERTIFICATE, SERVER_CERTIFICATE)),
)

#: Certificates of a controller that joins: those by which clients recognise its daemons, of the console proxies, and
#: those by which the brokers and databases of controllers recognise each other.
SERVICES, PROXIES, CLUSTER = (
    ("api", "consoles", "broker", "database"),
    ("proxies",),
    ("broker-cluster", "database-cluster"),
)
CONTROLLER_CERTIFICATES = (*SERVICES, *PROXIES, *CLUSTER)

CA_LIFETIME = datetime.timedelta(days=3650)
#: The clock of a host may be behind by this time.
SKEW = datetime.timedelta(hours=1)

_PRIVATE, _PUBLIC = 0o600, 0o644
#: Limit of a common name. The whole name of a host is among the alternative names.
_LONGEST_NAME = 64


class Found(NamedTuple):
    """A certificate in a file. ``names``: DNS names and addresses, its host's name first. Times are UTC."""

    path: str
    names: list[str]
    start: datetime.datetime
    end: datetime.datetime


def find(directory: str) -> list[Found]:
    """Return the certificates of a host or proxy in ``directory``, and those of its consoles.

    Raises `ConfigurationError` for a file that is no certificate.
    """
    paths = [os.path.join(directory, name) for name in (CA_CERTIFICATE, *CERTIFICATES)]
    paths += [os.path.join(directory, CONSOLES, name) for name in (CA_CERTIFICATE, SERVER_CERTIFICATE)]
    return [read(path) for path in paths if os.path.exists(path)]


def read(path: str) -> Found:
    """Return the first certificate in a file. Raises `ConfigurationError`."""
    try:
        with open(path, "rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read())
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise exceptions.ConfigurationError(reason=f"{path} is no certificate: {error}") from error
    names: list[str] = []
    with contextlib.suppress(x509.ExtensionNotFound):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(name.value) for name in found]
    return Found(path, names, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def fingerprint(pem: str) -> bytes:
    """Return the SHA-256 of a certificate. Raises `InvalidInput` if it is none."""
    try:
        return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256())
    except ValueError as error:
        raise exceptions.InvalidInput(reason="this is no certificate in PEM") from error


def verifies(pem: str, signature: str, content: bytes) -> bool:
    """Check a signature of `Authority.sign`. ``pem``: the certificate of `Authority.services_certificate`."""
    try:
        key = x509.load_pem_x509_certificate(pem.encode()).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(base64.b64decode(signature, validate=True), content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


class Authority:
    """The authority in ``directory``.

    It has five roots. Hosts recognise each other by the first. Proxies recognise the consoles of hosts by the second,
    and hosts the proxies by the third. So no host can pass for a proxy. Clients recognise APIs and broker by the
    fourth. Brokers and databases of several controllers recognise each other by the fifth.
    """

    def __init__(self, directory: str) -> None:
        self._hosts = _Root(directory, CA_KEY, CA_CERTIFICATE, "nova_lite hosts", 0)
        self._consoles = _Root(directory, "consoles-ca-key.pem", "consoles-ca-cert.pem", "nova_lite consoles", 1)
        self._proxies = _Root(directory, "proxies-ca-key.pem", "proxies-ca-cert.pem", "nova_lite console proxies", 0)
        self._services = _Root(directory, "services-ca-key.pem", "services-ca-cert.pem", "nova_lite services", 0)
        self._cluster = _Root(directory, "cluster-ca-key.pem", "cluster-ca-cert.pem", "nova_lite controllers", 0)

    def create(self) -> None:
        """Create the roots that do not exist."""
        for root in (self._hosts, self._consoles, self._proxies, self._services, self._cluster):
            root.create()

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
        key = ec.generate_private_key(ec.SECP256R1())
        issuer, certificate = self._certify_host(host, addresses, key.public_key(), days)
        content = dict.fromkeys(CERTIFICATES, certificate)
        _write(directory, [issuer], key, KEYS, content, owner)
        return certificate

    def _certify_host(
        self, host: str, addresses: Sequence[str], public: ec.EllipticCurvePublicKey, days: int
    ) -> tuple[x509.Certificate, x509.Certificate]:
        """Return the certificate of the root, and one for a host's key."""
        issuer = self._hosts.read()
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        lifetime = datetime.timedelta(days=days)
        return issuer.certificate, _leaf(issuer, host, _names(host, addresses), public, lifetime, purposes)

    def issue_console(
        self, host: str, addresses: Sequence[str], directory: str, owner: tuple[int, int] | None = None
    ) -> x509.Certificate:
        """Make a key and a certificate for the consoles of a host, and write them to ``directory``.

        qemu accepts clients whose certificates are signed by any authority that signed its own. So each host has an
        intermediate authority, which signs one certificate and whose key is dropped. A guest reads the files only at
        its start, so the certificate lasts as long as the root.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        trusted, certificate, own = self._certify_console(host, addresses, key.public_key())
        _write(directory, trusted, key, (SERVER_KEY,), {SERVER_CERTIFICATE: certificate}, owner, own)
        return certificate

    def _certify_console(
        self, host: str, addresses: Sequence[str], public: ec.EllipticCurvePublicKey
    ) -> tuple[list[x509.Certificate], x509.Certificate, x509.Certificate]:
        """Return the certificates that the consoles trust, one for their key, and that of their own authority."""
        root = self._consoles.read()
        own_key = ec.generate_private_key(ec.SECP256R1())
        lifetime = root.certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        own = _Issuer(own_key, _authority(root, f"nova_lite consoles of {host}", own_key, 0, lifetime))
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
        certificate = _leaf(own, host, _names(host, addresses), public, lifetime, purposes)
        return [self._proxies.read().certificate, own.certificate], certificate, own.certificate

    def certify(
        self, host: str, addresses: Sequence[str], host_key: str, console_key: str, days: int
    ) -> dict[str, str]:
        """Return the files of a host, except keys, whose keys were made there: PEM by file name.

        ``host_key``, ``console_key``: PEM of the public keys. Raises `InvalidInput` for any other kind of key.
        """
        root, certificate = self._certify_host(host, addresses, _public(host_key), days)
        trusted, console, own = self._certify_console(host, addresses, _public(console_key))
        made = {CA_CERTIFICATE: [root], SERVER_CERTIFICATE: [certificate], CLIENT_CERTIFICATE: [certificate]}
        made |= {f"{CONSOLES}/{CA_CERTIFICATE}": trusted, f"{CONSOLES}/{SERVER_CERTIFICATE}": [console, own]}
        return {name: _pems(*certificates).decode() for name, certificates in made.items()}

    def sign(self, content: bytes) -> str:
        """Sign what clients of APIs and broker are to believe. `verifies` checks it."""
        signature = self._services.read().key.sign(content, ec.ECDSA(hashes.SHA256()))
        return base64.b64encode(signature).decode()

    def services_certificate(self) -> str:
        """Return the certificate, in PEM, by which clients recognise APIs and broker."""
        return _pems(self._services.read().certificate).decode()

    def issue_service(
        self, name: str, addresses: Sequence[str], directory: str, days: int, owner: tuple[int, int] | None = None
    ) -> x509.Certificate:
        """Make a key and a certificate for the APIs or the broker of a machine, and write them to ``directory``.

        ``ca-cert.pem`` there is what clients need.
        """
        root = self._services.read()
        key = ec.generate_private_key(ec.SECP256R1())
        names = _names(name, addresses)
        lifetime, purposes = datetime.timedelta(days=days), [ExtendedKeyUsageOID.SERVER_AUTH]
        certificate = _leaf(root, name, names, key.public_key(), lifetime, purposes)
        _write(directory, [root.certificate], key, (SERVER_KEY,), {SERVER_CERTIFICATE: certificate}, owner)
        return certificate

    def issue_cluster(
        self, name: str, addresses: Sequence[str], directory: str, days: int, owner: tuple[int, int] | None = None
    ) -> x509.Certificate:
        """Make a key and a certificate by which a controller's broker or database recognises those of others."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer, certificate = self._certify_cluster(name, addresses, key.public_key(), days)
        _write(directory, [issuer], key, (SERVER_KEY,), {SERVER_CERTIFICATE: certificate}, owner)
        return certificate

    def _certify_cluster(
        self, name: str, addresses: Sequence[str], public: ec.EllipticCurvePublicKey, days: int
    ) -> tuple[x509.Certificate, x509.Certificate]:
        """Return the certificate of the root, and one for a key."""
        root = self._cluster.read()
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = _names(name, [*{name.partition(".")[0]} - {name}, *addresses])  # Brokers use the short name.
        return root.certificate, _leaf(root, name, names, public, datetime.timedelta(days=days), purposes)

    def certify_controller(
        self, name: str, addresses: Sequence[str], public: Mapping[str, str], days: int
    ) -> dict[str, tuple[str, str]]:
        """Return the trusted certificate and the own one, in PEM, for each of ``public``.

        ``public``: PEM of the public keys by name, of `CONTROLLER_CERTIFICATES`. Raises `InvalidInput` for any other
        kind of key.
        """
        made: dict[str, tuple[x509.Certificate, x509.Certificate]] = {}
        lifetime = datetime.timedelta(days=days)
        for which in public.keys() & SERVICES:
            root, purposes = self._services.read(), [ExtendedKeyUsageOID.SERVER_AUTH]
            leaf = _leaf(root, name, _names(name, addresses), _public(public[which]), lifetime, purposes)
            made[which] = root.certificate, leaf
        for which in public.keys() & PROXIES:
            root, purposes = self._proxies.read(), [ExtendedKeyUsageOID.CLIENT_AUTH]
            leaf = _leaf(root, name, [x509.DNSName(name)], _public(public[which]), lifetime, purposes)
            made[which] = self._consoles.read().certificate, leaf
        for which in public.keys() & CLUSTER:
            made[which] = self._certify_cluster(name, addresses, _public(public[which]), days)
        return {which: (_pems(trusted).decode(), _pems(own).decode()) for which, (trusted, own) in made.items()}

    def issue_proxy(
        self, name: str, directory: str, days: int, owner: tuple[int, int] | None = None
    ) -> x509.Certificate:
        """Make a key and a certificate for the console proxies on a machine, and write them to ``directory``."""
        key = ec.generate_private_key(ec.SECP256R1())
        lifetime, purposes = datetime.timedelta(days=days), [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [x509.DNSName(name)]
        certificate = _leaf(self._proxies.read(), name, names, key.public_key(), lifetime, purposes)
        trusted = [self._consoles.read().certificate]
        _write(directory, trusted, key, (CLIENT_KEY,), {CLIENT_CERTIFICATE: certificate}, owner)
        return certificate


class _Issuer(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class _Root:
    """Root of the authority: the files ``key`` and ``certificate`` in ``directory``."""

    def __init__(self, directory: str, key: str, certificate: str, name: str, path_length: int) -> None:
        self._directory = directory
        self._key = os.path.join(directory, key)
        self._certificate = os.path.join(directory, certificate)
        self._name = name
        self._path_length = path_length

    def create(self) -> None:
        if os.path.exists(self._key):
            return
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _authority(None, self._name, key, self._path_length, CA_LIFETIME)
        with files.locked_directory(self._directory):
            files.write_atomically(self._certificate, certificate.public_bytes(Encoding.PEM), mode=_PUBLIC)
            # The key comes last: without it the root does not exist yet.
            files.write_atomically(self._key, _pem(key), mode=_PRIVATE)

    def read(self) -> _Issuer:
        try:
            with open(self._key, "rb") as file:
                key = load_pem_private_key(file.read(), None)
            with open(self._certificate, "rb") as file:
                certificate = x509.load_pem_x509_certificate(file.read())
        except OSError as error:
            raise exceptions.ConfigurationError(reason=f"{error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise exceptions.ConfigurationError(reason=f"{self._directory} is no authority: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise exceptions.ConfigurationError(reason=f"{self._key} is not a key of an authority")
        return _Issuer(key, certificate)


def _authority(
    issuer: _Issuer | None,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    path_length: int,
    lifetime: datetime.timedelta,
) -> x509.Certificate:
    """Make the certificate of an authority. Without an issuer it is a root."""
    subject = _name(name)
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    made = _builder(subject, issuer, key.public_key(), lifetime)
    made = made.add_extension(constraints, critical=True)
    made = made.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    return made.sign(issuer.key if issuer else key, hashes.SHA256())


def _leaf(
    issuer: _Issuer,
    subject: str,
    names: Sequence[x509.GeneralName],
    public: ec.EllipticCurvePublicKey,
    lifetime: datetime.timedelta,
    purposes: list[x509.ObjectIdentifier],
) -> x509.Certificate:
    made = _builder(_name(subject), issuer, public, lifetime)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    # libvirt refuses a certificate without key encipherment, although TLS does not need it for such keys.
    usage = _usage(digital_signature=True, key_encipherment=True)
    made = made.add_extension(usage, critical=True)
    made = made.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(issuer.key, hashes.SHA256())


def _write(
    directory: str,
    trusted: Sequence[x509.Certificate],
    key: ec.EllipticCurvePrivateKey,
    key_files: Sequence[str],
    certificates: dict[str, x509.Certificate],
    owner: tuple[int, int] | None,
    *chain: x509.Certificate,
) -> None:
    """Write the files of a host or proxy. ``chain``: certificates that follow each of ``certificates``."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with files.locked_directory(directory):
        files.write_atomically(os.path.join(directory, CA_CERTIFICATE), _pems(*trusted), mode=_PUBLIC)
        for file in key_files:
            files.write_atomically(os.path.join(directory, file), _pem(key), mode=_PRIVATE, owner=owner)
        for file, certificate in certificates.items():
            files.write_atomically(os.path.join(directory, file), _pems(certificate, *chain), mode=_PUBLIC)


def _pems(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _names(host: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    return [x509.DNSName(host), *map(_general_name, addresses)]


def new_key() -> bytes:
    """Return a new private key for a certificate, in PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def check_public(pem: str) -> None:
    """Raise `InvalidInput` unless a text is a public key, in PEM, that a certificate can have."""
    _public(pem)


def _public(pem: str) -> ec.EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise exceptions.InvalidInput(reason="the key of a certificate has to be of the curve P-256")
    return key


def _general_name(address: str) -> x509.GeneralName:
    if ip.is_address(address):
        return x509.IPAddress(ip.parse(address))
    return x509.DNSName(address)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _builder(
    subject: x509.Name, issuer: _Issuer | None, public: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
) -> x509.CertificateBuilder:
    """Begin a certificate. Without an issuer it is a root's. Python 3.13 demands the identifiers of both keys."""
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).public_key(public)
    made = made.issuer_name(issuer.certificate.subject if issuer else subject)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    if issuer:
        issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        made = made.add_extension(issued_by, critical=False)
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
