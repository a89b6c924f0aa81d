"""Key pairs of the type x509."""

from __future__ import annotations

import re
import ssl
import subprocess
from hashlib import sha1
from typing import Any

import pytest

from nova_lite.api.compute import certificates
from nova_lite.objects.keypair import type_of
from tests.support.api_client import Client, fault

PATH = "/os-keypairs"


@pytest.fixture(scope="module")
def made() -> tuple[str, str]:
    """Return a private key and its certificate."""
    return certificates.generate("alice")


def openssl(*arguments: str, text: str) -> str:
    return subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, check=True).stdout


def test_certificate_is_generated_without_a_public_key(api: Client) -> None:
    body = {"keypair": {"name": "w", "type": "x509"}}
    keypair = api.json("POST", PATH, body, 201, version="2.2")["keypair"]
    assert (keypair["type"], keypair["user_id"], type_of(keypair["public_key"])) == ("x509", "alice", "x509")
    der = ssl.PEM_cert_to_DER_cert(keypair["public_key"])
    assert keypair["fingerprint"] == sha1(der, usedforsecurity=False).digest().hex(":")
    assert keypair["private_key"].startswith("-----BEGIN PRIVATE KEY-----")
    shown = api.json("GET", f"{PATH}/w", version="2.2")["keypair"]
    assert (shown["type"], "private_key" in shown) == ("x509", False)
    assert api.last_call("keypair_create")[0].private_key is None


def test_certificate_is_readable_by_openssl(made: tuple[str, str]) -> None:
    private, certificate = made
    output = openssl("x509", "-noout", "-text", "-nameopt", "RFC2253", "-fingerprint", "-sha1", text=certificate)
    assert "Subject: CN=alice" in output
    assert "TLS Web Client Authentication" in output
    assert re.search(r"UPN::?alice@localhost", output)  # one colon since OpenSSL 3.5
    assert f"={certificates.fingerprint(certificate).upper()}" in output
    public = openssl("x509", "-noout", "-pubkey", text=certificate)
    assert openssl("pkey", "-pubout", text=private) == public


@pytest.mark.parametrize("length", [64, 120, 255])
def test_certificate_is_generated_for_user_names_of_any_length(length: int) -> None:
    user = "u" * length
    output = openssl("x509", "-noout", "-text", "-nameopt", "RFC2253", text=certificates.generate(user)[1])
    assert f"Subject: CN={user[:64]}\n" in output
    assert f"{user}@localhost" in output


def test_given_certificate_is_imported(api: Client, made: tuple[str, str]) -> None:
    body = {"keypair": {"name": "w.x@y", "type": "x509", "public_key": made[1]}}
    keypair = api.json("POST", PATH, body, 201, version="2.92")["keypair"]
    assert (keypair["type"], keypair["public_key"]) == ("x509", made[1])
    assert keypair["fingerprint"] == certificates.fingerprint(made[1])
    assert "private_key" not in keypair


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519 AAAA",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----" + "A" * 20000,
        "-----BEGIN CERTIFICATE-----\n\u00e4\n-----END CERTIFICATE-----\n",
    ],
)
def test_invalid_certificate_is_refused(api: Client, text: Any) -> None:
    body = {"keypair": {"name": "w", "type": "x509", "public_key": text}}
    assert "failed to generate fingerprint" in fault(api("POST", PATH, body, version="2.2"), "badRequest", 400)


def test_private_key_instead_of_certificate_is_refused(api: Client, made: tuple[str, str]) -> None:
    body = {"keypair": {"name": "w", "type": "x509", "public_key": made[0]}}
    fault(api("POST", PATH, body, version="2.2"), "badRequest", 400)
