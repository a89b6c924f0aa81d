"""Certificates of listeners: checked, and made into the form that HAProxy reads, by a process of their own.

Users choose how often a password of PKCS12 is hashed, which may take years. So the process has limits of time and of
memory. Its standard input is a `Source` as JSON. Its output is the PEM text, or the reason of a refusal with status 1.
"""

from __future__ import annotations

import hashlib
import os
import resource
import sys

import msgspec

from nova_lite.base import concurrency

#: Seconds of CPU time, and in all; bytes of memory; certificates of a chain.
_CPU, _SECONDS, _MEMORY, _MAX_CHAIN = 2, 20, 2**30, 20
_TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_REFUSED = 1
_UNREADABLE = "It is no PKCS12 without a password, and no certificate and key in PEM."


class Source(msgspec.Struct, kw_only=True):
    """Data of a user: ``pkcs12``, or a certificate with its key and perhaps certificates between it and the root, in
    PEM.
    """

    pkcs12: bytes = b""
    certificate: bytes = b""
    private_key: bytes = b""
    intermediates: bytes = b""
    private_key_passphrase: bytes = b""


def digest(pem: str) -> str:
    return hashlib.sha256(pem.encode()).hexdigest()


def read(source: Source) -> str:
    """Return certificate, chain and key as one PEM text. Raises ValueError with the reason, a sentence."""
    subprocess = concurrency.native("subprocess")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nova_lite.load_balancer.certificates"],
            input=msgspec.json.encode(source),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": _TOP, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError("It takes too long to read.") from error
    if done.returncode:
        raise ValueError(done.stdout.decode() if done.returncode == _REFUSED else "It takes too long to read.")
    return str(done.stdout.decode())


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        sys.stdout.write(_pem(msgspec.json.decode(sys.stdin.buffer.read(), type=Source)))
    except ValueError as error:
        sys.stdout.write(str(error))
        return _REFUSED
    return 0


def _pem(source: Source) -> str:
    """Return the PEM text. Raises ValueError."""
    # The API imports this module without the needs of its process.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        pkcs12,
    )

    try:
        if source.pkcs12:
            key, first, more = pkcs12.load_key_and_certificates(source.pkcs12, None)
            chain = [*([first] if first is not None else []), *more]
        else:
            key = load_pem_private_key(source.private_key, source.private_key_passphrase or None)
            chain = x509.load_pem_x509_certificates(source.certificate)
            if source.intermediates:
                chain += x509.load_pem_x509_certificates(source.intermediates)
        if key is None or not 0 < len(chain) <= _MAX_CHAIN:
            raise ValueError
        whole, public = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), chain[0].public_key()
        fits = key.public_key().public_bytes(*whole) == public.public_bytes(*whole)
        written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(_UNREADABLE) from error
    if not fits:
        raise ValueError("The key is not the certificate's.")
    return b"".join([*(one.public_bytes(Encoding.PEM) for one in chain), written]).decode()


if __name__ == "__main__":
    sys.exit(main())
