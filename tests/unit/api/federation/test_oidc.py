"""Checks of tokens of OpenID Connect providers."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk

from nova_lite.api.identity import oidc
from nova_lite.api.identity.gate import Gate
from nova_lite.api.identity.oidc import KEYS_AGE, KEYS_RETRY, KEYS_STALE, OidcTokens, RefusedTokenError
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from tests.support import issuer as issuers
from tests.support.api_client import make_conf
from tests.support.issuer import AUDIENCE, Issuer, signed_by_secret, unsigned


@pytest.fixture(scope="module")
def running() -> Iterator[Issuer]:
    yield from issuers.running()


@pytest.fixture
def issuer(running: Issuer) -> Issuer:
    running.requests.clear()
    running.raw = None
    running.keys = running.keys[:1]
    return running


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clients = dataclasses.replace(TIMING.clients, identity_timeout=seconds)
    monkeypatch.setattr(oidc, "TIMING", dataclasses.replace(TIMING, clients=clients))


def tokens_of(path: Path, url: str, clock: Any = None, **options: Any) -> OidcTokens:
    lines = {"issuers": url, "audiences": f"other, {AUDIENCE}", **options}
    text = "[oidc]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    return OidcTokens(make_conf(path, text), clock or Clock())


@pytest.fixture
def tokens(tmp_path: Path, issuer: Issuer) -> OidcTokens:
    return tokens_of(tmp_path, issuer.url)


def test_valid_token_gives_its_claims_and_the_keys_are_read_once(tokens: OidcTokens, issuer: Issuer) -> None:
    for _ in range(3):
        assert tokens.claims([issuer.url], issuer.token())["sub"] == "s-1"
    assert issuer.requests == ["/.well-known/openid-configuration", "/keys"]
    typed = issuer.token({"typ": "at+jwt"}, aud=["x", AUDIENCE])
    assert tokens.claims([issuer.url], typed)["aud"] == ["x", AUDIENCE]


def test_token_of_an_elliptic_key_is_accepted(tokens: OidcTokens, issuer: Issuer) -> None:
    issuer.keys = [*issuer.keys, jwk.ECKey.generate_key("P-256", {"kid": "two"})]
    token = issuer.token({"alg": "ES256", "kid": "two"}, issuer.keys[1])
    assert tokens.claims([issuer.url], token)["sub"] == "s-1"


ANOTHER = jwk.RSAKey.generate_key(2048, {"kid": "one"})


@pytest.mark.parametrize(
    ("header", "claims", "reason"),
    [
        ({}, {"iss": "https://evil.example"}, "its issuer is"),
        ({}, {"iss": None}, "its issuer is"),
        ({}, {"iss": ["x"]}, "its issuer is"),
        ({}, {"aud": "another"}, "it is for another"),
        ({}, {"aud": None}, "it is for None"),
        ({}, {"aud": [[AUDIENCE]]}, "it is for"),
        ({}, {"exp": int(time.time()) - 120}, "not valid at this time: exp"),
        ({}, {"exp": None}, "never expires"),
        ({}, {"exp": "tomorrow"}, "never expires"),
        ({}, {"nbf": int(time.time()) + 600}, "not valid at this time: nbf"),
        ({}, {"iat": int(time.time()) + 600}, "not valid at this time: iat"),
        ({}, {"iat": True}, "not valid at this time: iat"),
        ({}, {"sub": None}, "no claim sub"),
        ({}, {"sub": 7}, "no claim sub"),
        ({"kid": "unknown"}, {}, "its key is none of the provider's"),
        ({"alg": "RS512"}, {}, "its algorithm is 'RS512'"),
        ({"typ": "logout+jwt"}, {}, "a token of another type"),
    ],
)
def test_token_with_a_wrong_claim_or_header_is_refused(
    tokens: OidcTokens, issuer: Issuer, header: dict[str, Any], claims: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedTokenError, match=reason):
        tokens.claims([issuer.url], issuer.token(header, **claims))


def test_token_signed_by_another_key_is_refused(tokens: OidcTokens, issuer: Issuer) -> None:
    with pytest.raises(RefusedTokenError, match="its signature is wrong"):
        tokens.claims([issuer.url], issuer.token(key=ANOTHER))


@pytest.mark.parametrize("header", [{"jwk": ANOTHER.as_dict(private=False)}, {"jku": "https://evil.example/keys"}])
def test_key_that_the_token_itself_names_is_not_used(
    tokens: OidcTokens, issuer: Issuer, header: dict[str, Any]
) -> None:
    with pytest.raises(RefusedTokenError):
        tokens.claims([issuer.url], issuer.token(header, ANOTHER))
    assert set(issuer.requests) == {"/.well-known/openid-configuration", "/keys"}


def test_token_signed_by_the_public_key_as_a_shared_secret_is_refused(tokens: OidcTokens, issuer: Issuer) -> None:
    token = signed_by_secret(issuer.claims(), issuer.keys[0].as_pem(private=False))
    with pytest.raises(RefusedTokenError, match="its algorithm is 'HS256'"):
        tokens.claims([issuer.url], token)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "RS256"])
def test_token_without_a_signature_is_refused(tokens: OidcTokens, issuer: Issuer, algorithm: str) -> None:
    with pytest.raises(RefusedTokenError):
        tokens.claims([issuer.url], unsigned(issuer.claims(), algorithm))


@pytest.mark.parametrize("algorithm", [["RS256"], {"RS256": 1}, 1, None, True])
def test_token_whose_algorithm_is_no_text_is_refused(tokens: OidcTokens, issuer: Issuer, algorithm: Any) -> None:
    with pytest.raises(RefusedTokenError, match="its algorithm is"):
        tokens.claims([issuer.url], unsigned(issuer.claims(), algorithm))


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "..", "e30.e30.e30", "W10.W10.", "\xe9.b.c", "a" * 20000])
def test_text_that_is_no_token_is_refused(tokens: OidcTokens, issuer: Issuer, token: str) -> None:
    with pytest.raises(RefusedTokenError):
        tokens.claims([issuer.url], token)


def test_issuer_that_the_options_do_not_have_is_never_contacted(tmp_path: Path, issuer: Issuer) -> None:
    tokens = tokens_of(tmp_path, "https://id.example.org")
    with pytest.raises(RefusedTokenError, match="remote_ids"):
        tokens.claims([issuer.url], issuer.token())
    assert issuer.requests == []


def test_changed_keys_are_read_again_but_not_for_each_unknown_one(tmp_path: Path, issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(tmp_path, issuer.url, clock)
    tokens.claims([issuer.url], issuer.token())
    issuer.keys = [*issuer.keys, jwk.RSAKey.generate_key(2048, {"kid": "two"})]
    new = issuer.token({"kid": "two"}, issuer.keys[1])
    issuer.requests.clear()
    for _ in range(3):
        with pytest.raises(RefusedTokenError):
            tokens.claims([issuer.url], new)
    assert issuer.requests == []
    clock.now += KEYS_RETRY + 1
    assert tokens.claims([issuer.url], new)["sub"] == "s-1"
    assert issuer.requests.count("/keys") == 1


def test_known_keys_are_used_for_a_while_when_the_provider_is_down(tmp_path: Path, issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(tmp_path, issuer.url, clock)
    tokens.claims([issuer.url], issuer.token())
    issuer.raw = b"not json"
    clock.now += KEYS_AGE + 1
    assert tokens.claims([issuer.url], issuer.token())["sub"] == "s-1"
    clock.now += KEYS_STALE
    with pytest.raises(exceptions.ServiceUnavailable, match="does not answer"):
        tokens.claims([issuer.url], issuer.token())


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"issuer": "https://evil"}', b"[" * 100_000])
def test_useless_response_of_a_provider_is_a_503_with_one_line(
    tokens: OidcTokens, issuer: Issuer, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.raw = raw
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable):
            tokens.claims([issuer.url], issuer.token())
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1


def test_response_that_is_too_long_is_not_read(tokens: OidcTokens, issuer: Issuer) -> None:
    issuer.raw = b" " * (oidc.MAX_RESPONSE + 10_000)
    with pytest.raises(exceptions.ServiceUnavailable):
        tokens.claims([issuer.url], issuer.token())


def test_silent_provider_is_given_up(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch, 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tokens = tokens_of(tmp_path, url)
        with pytest.raises(exceptions.ServiceUnavailable):
            tokens.claims([url], issuer.token(iss=url))


def test_provider_whose_response_trickles_is_given_up(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, 0.5)
    given_up, refused = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        tokens = tokens_of(tmp_path, url)

        def trickle() -> None:
            accepted = listening.accept()[0]
            with accepted, contextlib.suppress(OSError):
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not given_up.wait(0.05):
                    accepted.sendall(b" ")

        def log_in() -> None:
            with pytest.raises(exceptions.ServiceUnavailable):
                tokens.claims([url], issuer.token(iss=url))
            refused.set()

        threads = [threading.Thread(target=work) for work in (trickle, log_in)]
        for thread in threads:
            thread.start()
        try:
            assert refused.wait(30)
        finally:
            given_up.set()
            for thread in threads:
                thread.join()


def test_threads_beyond_the_limit_do_not_wait_for_keys_that_another_one_reads(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of(tmp_path, issuer.url)
    (provider,) = tokens._providers.values()
    monkeypatch.setattr(provider, "_gate", Gate("The provider", max_calls=1))
    fetch, reading, go_on, refused = provider._fetch_keys, threading.Event(), threading.Event(), threading.Event()

    def fetch_slowly() -> list[Any]:
        reading.set()
        assert go_on.wait(60)
        return fetch()

    def log_in() -> None:
        with pytest.raises(exceptions.ServiceUnavailable):
            tokens.claims([issuer.url], issuer.token())
        refused.set()

    monkeypatch.setattr(provider, "_fetch_keys", fetch_slowly)
    first, second = threading.Thread(target=tokens.reach), threading.Thread(target=log_in)
    try:
        first.start()
        assert reading.wait(30)
        second.start()
        assert refused.wait(30)
    finally:
        go_on.set()
        for thread in (first, second):
            thread.join()
    assert tokens.claims([issuer.url], issuer.token())["sub"] == "s-1"


# --- tokens that are no JWT


@pytest.fixture
def introspecting(tmp_path: Path, issuer: Issuer) -> OidcTokens:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    secret.chmod(0o600)
    return tokens_of(tmp_path, issuer.url, introspection_client_id="nova", introspection_secret_file=secret)


def test_opaque_token_is_checked_by_the_provider(introspecting: OidcTokens, issuer: Issuer) -> None:
    issuer.tokens = {
        "good": {"active": True, "sub": "s-1", "client_id": AUDIENCE, "exp": int(time.time()) + 60},
        "stranger": {"active": True, "sub": "s-1", "client_id": "another"},
        "other-audience": {"active": True, "sub": "s-1", "client_id": AUDIENCE, "aud": "another"},
        "expired": {"active": True, "sub": "s-1", "client_id": AUDIENCE, "exp": 1},
        "other-issuer": {"active": True, "sub": "s-1", "client_id": AUDIENCE, "iss": "https://evil"},
        "nearly": {"active": "true", "sub": "s-1", "client_id": AUDIENCE},
    }
    claims = introspecting.claims([issuer.url], "good")
    assert (claims["sub"], claims["iss"]) == ("s-1", issuer.url)
    for token in (*(set(issuer.tokens) - {"good"}), "unknown"):
        with pytest.raises(RefusedTokenError):
            introspecting.claims([issuer.url], token)


def test_token_that_the_provider_calls_malformed_locks_nobody_out(introspecting: OidcTokens, issuer: Issuer) -> None:
    issuer.tokens = {"good": {"active": True, "sub": "s-1", "client_id": AUDIENCE}}
    with pytest.raises(RefusedTokenError, match="malformed"):
        introspecting.claims([issuer.url], issuer.malformed)
    assert introspecting.claims([issuer.url], "good")["sub"] == "s-1"


def test_opaque_token_is_refused_without_a_client(tokens: OidcTokens, issuer: Issuer) -> None:
    with pytest.raises(RefusedTokenError, match="introspection_client_id is not set"):
        tokens.claims([issuer.url], "opaque")
    assert issuer.requests == []


# --- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"issuers": "http://id.example.org"}, "[oidc] issuers"),
        ({"issuers": "https://user@id.example.org"}, "[oidc] issuers"),
        ({"issuers": "https://id.example.org:x"}, "[oidc] issuers"),
        ({"audiences": ""}, "[oidc] audiences"),
        ({"introspection_client_id": "nova"}, "[oidc] introspection_secret_file"),
        ({"ca_file": "/nowhere"}, "[oidc] ca_file"),
    ],
)
def test_wrong_option_is_refused_with_one_line(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(exceptions.ConfigurationError) as refused:
        tokens_of(tmp_path, options.pop("issuers", "https://id.example.org"), **options)
    assert text in refused.value.message


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS1"])
def test_algorithm_without_a_key_pair_cannot_be_allowed(tmp_path: Path, algorithm: str) -> None:
    with pytest.raises(ValueError, match="algorithms"):
        tokens_of(tmp_path, "https://id.example.org", algorithms=algorithm)
