"""Public keys of key pairs. What OpenSSH refuses is refused, with every key cut off at every place."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nova_lite.api.compute import certificates, ssh_keys
from nova_lite.base.exceptions import InvalidKeypair
from tests.support.api_client import Client, fault

SK_ED25519, SK_ECDSA = "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def line(name: str, *parts: bytes) -> str:
    return f"{name} {base64.b64encode(b''.join(map(string, (name.encode(), *parts)))).decode()}"


def blob_of(key: str) -> bytes:
    return base64.b64decode(key.split()[1])


def point(curve: ec.EllipticCurve) -> bytes:
    public = ec.derive_private_key(12345, curve).public_key()
    return public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _keys() -> dict[str, str]:
    p256, ed25519 = point(ec.SECP256R1()), bytes(range(32))
    made = [
        line("ssh-ed25519", ed25519),
        line("ssh-rsa", b"\1\0\1", b"\0" + b"\xab" * 256),
        line("ecdsa-sha2-nistp256", b"nistp256", p256),
        line("ecdsa-sha2-nistp384", b"nistp384", point(ec.SECP384R1())),
        line("ecdsa-sha2-nistp521", b"nistp521", point(ec.SECP521R1())),
        line("ssh-dss", *(value.to_bytes(129, "big") for value in (2**1023 + 1, 3, 4, 5))),
        line(SK_ED25519, ed25519, b"ssh:"),
        line(SK_ECDSA, b"nistp256", p256, b"ssh:"),
    ]
    return {key.split()[0]: key for key in made}


KEYS = _keys()


def accepts(key: str) -> bool:
    try:
        ssh_keys.checked(key)
    except InvalidKeypair:
        return False
    return True


def openssh_fingerprints(keys: list[str]) -> list[bool]:
    """Return for each key whether ``ssh-keygen -l`` prints a fingerprint. It reads all lines of its input at once."""
    command = ["ssh-keygen", "-E", "md5", "-l", "-f", "-"]
    numbered = "".join(f"{key} number-{index}\n" for index, key in enumerate(keys))
    output = subprocess.run(command, input=numbered, capture_output=True, text=True, check=False).stdout
    comments = {row.split()[-2] for row in output.splitlines()}
    return [f"number-{index}" in comments for index in range(len(keys))]


def cut_off(key: str) -> Iterator[str]:
    """Yield the key with its data cut off at every byte, and its text at every character."""
    name, encoded = key.split()
    blob = base64.b64decode(encoded)
    for size in range(len(blob)):
        yield f"{name} {base64.b64encode(blob[:size]).decode() or '='}"
    for size in range(1, len(encoded)):
        yield f"{name} {encoded[:size]}"


def spoiled(key: str) -> Iterator[str]:
    """Yield the key with one byte more, with each length field changed, and with another type."""
    name, encoded = key.split()
    blob = base64.b64decode(encoded)
    changed = [blob + b"\0", blob + string(b""), b"\0" + blob, blob[:4] + b"\0" + blob[5:]]
    at = 0
    while at < len(blob):
        length = int.from_bytes(blob[at : at + 4], "big")
        for other in (0, 1, length - 1, length + 1, 2**31, 2**32 - 1):
            changed.append(blob[:at] + other.to_bytes(4, "big") + blob[at + 4 :])
        at += 4 + length
    for data in changed:
        yield f"{name} {base64.b64encode(data).decode()}"
    for other_name in KEYS.keys() - {name}:
        yield f"{other_name} {encoded}"


@pytest.mark.parametrize("name", KEYS)
def test_public_key_complete_is_accepted_as_by_openssh(name: str) -> None:
    assert ssh_keys.checked(KEYS[name] + " comment of a user\n") == KEYS[name] + " comment of a user\n"
    known = subprocess.run(["ssh", "-Q", "key"], capture_output=True, text=True, check=True).stdout.split()
    assert openssh_fingerprints([KEYS[name]]) == [name in known]
    assert name in known or name == "ssh-dss", "OpenSSH 10 has no DSA"


@pytest.mark.parametrize("name", KEYS)
def test_public_key_cut_off_or_spoiled_is_judged_as_by_openssh(name: str) -> None:
    keys = [*cut_off(KEYS[name]), *spoiled(KEYS[name])]
    expected = openssh_fingerprints(keys)
    differences = [key for key, good in zip(keys, expected, strict=True) if accepts(key) is not good]
    assert not differences
    assert len(keys) > 100


@pytest.mark.parametrize("name", KEYS)
def test_public_key_cut_off_or_spoiled_is_refused(name: str) -> None:
    """The same without OpenSSH: nothing of it is a key."""
    assert [key for key in (*cut_off(KEYS[name]), *spoiled(KEYS[name])) if accepts(key)] == []


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("ssh-rsa AAAAB3NzaC1yc2E=", "it is not complete"),
        ("ssh-rsa AAAAB3NzaC1yc2", "its second word is not base64"),
        (KEYS["ssh-ed25519"] + "=", "its second word is not base64"),
        (f"ssh-ed25519 {base64.b64encode(blob_of(KEYS['ssh-ed25519']) + b'more').decode()}", "bytes follow the key"),
        (line("ssh-rsa", b"\1\0\1", b"\x7f" * 64), "an RSA key has at least 1024 bits"),
        (line("ssh-rsa", b"\1\0\1", b"\xff" * 256), "one of its numbers is not positive, or too large"),
        (line("ssh-rsa", b"", b"\x7f" * 256), "one of its numbers is not positive, or too large"),
        (line("ssh-rsa", b"\1\0\1", b"\x7f" * 4096), "one of its numbers is not positive, or too large"),
        (line("ssh-ed25519", b"\1" * 31), "an Ed25519 key has 32 bytes"),
        (line("ecdsa-sha2-nistp256", b"nistp256", b"\4" + b"\1" * 64), "its point is not on nistp256"),
        (line("ecdsa-sha2-nistp256", b"nistp256", b"\2" + b"\1" * 32), "its point is compressed"),
        (line("ecdsa-sha2-nistp256", b"nistp384", point(ec.SECP384R1())), "its curve is not nistp256"),
        (line(SK_ED25519, b"\1" * 32, b"ssh\0:"), "its application has no valid name"),
        (line(SK_ED25519, b"rest"), "an Ed25519 key has 32 bytes"),
        (line("ssh-ed25519-cert-v01@openssh.com", b"\1" * 32), "it is a certificate, not a key"),
        (line("ssh-new", b"\1"), "its type is none of ssh-ed25519, "),
        (line("ssh-rsa", b"\1").replace("ssh-rsa", "ssh-ed25519"), "its data are not those of the type ssh-ed25519"),
        ("ssh-rsa " + base64.b64encode(string("ssh-rsä".encode())).decode(), "one of its texts is not ASCII"),
        ('from="10.0.0.1" ' + KEYS["ssh-ed25519"], "its type is none of ssh-ed25519, "),
    ],
)
def test_public_key_invalid_is_refused_with_its_reason(api: Client, key: str, why: str) -> None:
    response = api("POST", "/os-keypairs", {"keypair": {"name": "k", "public_key": key}})
    start = f"Keypair data is invalid: failed to generate fingerprint: {why}"
    assert fault(response, "badRequest", 400).startswith(start)


def test_certificate_with_other_text_around_is_refused() -> None:
    """Text after the certificate, perhaps a private key, would be stored and given to the guest."""
    private, certificate = certificates.generate("alice")
    assert certificates.checked(certificate.strip()) == certificate.strip()
    for text in (certificate + private, certificate + certificate, certificate + "more", certificate[:-20]):
        with pytest.raises(InvalidKeypair):
            certificates.checked(text)


def test_certificate_cut_off_is_refused(tmp_path: Path) -> None:
    _, certificate = certificates.generate("alice")
    head, *rows, end = certificate.strip().splitlines()
    der = base64.b64decode("".join(rows))
    for size in [*range(0, len(der), 7), len(der) - 1]:
        text = "\n".join((head, base64.b64encode(der[:size]).decode(), end))
        with pytest.raises(InvalidKeypair):
            certificates.checked(text)
    with pytest.raises(InvalidKeypair):
        certificates.checked("\n".join((head, base64.b64encode(der + b"\0").decode(), end)))
