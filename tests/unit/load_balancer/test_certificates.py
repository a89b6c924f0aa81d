"""Certificates of listeners are read by a process with limits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.certificates import Source
from tests.support.certificates import Made, make

ONE, OTHER = make("one.example.org"), make("other.example.org")


def blocks(pem: str) -> list[str]:
    return re.findall("BEGIN ([A-Z ]+)-", pem)


def test_certificate_is_followed_by_its_key() -> None:
    for source in (Source(pkcs12=ONE.pkcs12), Source(certificate=ONE.certificate, private_key=ONE.key)):
        pem = certificates.read(source)
        assert blocks(pem) == ["CERTIFICATE", "PRIVATE KEY"]
        assert pem.startswith(ONE.certificate.decode())


def test_intermediates_are_behind_the_certificate() -> None:
    source = Source(certificate=ONE.certificate, private_key=ONE.key, intermediates=OTHER.certificate)
    pem = certificates.read(source)
    assert blocks(pem) == ["CERTIFICATE", "CERTIFICATE", "PRIVATE KEY"]
    assert pem.startswith((ONE.certificate + OTHER.certificate).decode())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Source(), "no PKCS12"),
        (Source(pkcs12=b"junk"), "no PKCS12"),
        (Source(pkcs12=ONE.certificate), "no PKCS12"),
        (Source(certificate=ONE.certificate), "no PKCS12"),
        (Source(certificate=ONE.certificate, private_key=OTHER.key), "not the certificate's"),
        (Source(certificate=ONE.certificate, private_key=ONE.key, private_key_passphrase=b"x"), "no PKCS12"),
    ],
)
def test_source_without_certificate_and_key_is_refused(source: Source, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        certificates.read(source)


def test_password_that_takes_years_to_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes too long"):
        certificates.read(Source(pkcs12=slow(tmp_path, ONE)))


def slow(path: Path, made: Made) -> bytes:
    """Return a PKCS12 whose checksum is made of 2^31 - 1 rounds of a hash."""
    (path / "one.pem").write_bytes(made.certificate + made.key)
    command = ["openssl", "pkcs12", "-export", "-in", "one.pem", "-passout", "pass:", "-iter", "70000"]
    data = subprocess.run(command, cwd=path, capture_output=True, check=True).stdout
    # The end has the length of the checksum's data, and its number of rounds. The beginning has the length of all.
    rounds, more = bytes.fromhex("0203011170"), bytes.fromhex("02047fffffff")
    assert data.endswith(rounds) and data[:2] == b"\x30\x82"
    mac = data.rindex(b"\x30", 0, data.rindex(b"\x30\x31"))
    changed = data[: mac + 1] + bytes([data[mac + 1] + 1]) + data[mac + 2 : -len(rounds)] + more
    return changed[:2] + (int.from_bytes(changed[2:4], "big") + 1).to_bytes(2, "big") + changed[4:]
