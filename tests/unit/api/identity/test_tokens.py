"""Tokens, their keys and revocations."""

from __future__ import annotations

import time

import msgspec
import pytest
from cryptography.fernet import Fernet

from nova_lite.api.identity import tokens as module
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Revocation
from nova_lite.api.identity.replica import Replica
from nova_lite.api.identity.tokens import KEY_DELAY, Token, Tokens, new_token
from nova_lite.base import exceptions
from tests.support.identity_records import MemoryStore, fresh_replica, keyed_replica


def rotate(replica: Replica, keep: int = 2) -> None:
    def add(content: Content) -> None:
        module.add_key(content, keep)

    replica.change(add)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


def test_new_key_is_used_when_all_daemons_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon whose records are a second old could not read a token of a new key."""
    store = MemoryStore()
    first = Tokens(keyed_replica(store))
    later(monkeypatch, KEY_DELAY + 1)
    behind = Replica(store)
    assert behind.content.keys
    rotate(fresh_replica(store))
    text = first.seal(new_token("u", "p", 60))
    assert Tokens(behind).open(text) is not None
    later(monkeypatch, KEY_DELAY + 1)
    newest = first.seal(new_token("u", "p", 60))
    assert Tokens(behind).open(newest) is None
    assert first.open(newest) is not None


def test_keys_rotate_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = keyed_replica()
    tokens = Tokens(replica)
    oldest = tokens.seal(new_token("u", "p", 3600))
    rotate(replica)
    assert tokens.open(oldest) is not None
    rotate(replica)
    assert [key.id for key in replica.content.keys] == ["2", "3"]
    assert tokens.open(oldest) is None
    assert tokens.open(tokens.seal(new_token("u", "p", 60))) is not None


def test_replaced_key_makes_no_token_once_its_own_tokens_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker who has read a key can make tokens with it, with any times."""
    replica = keyed_replica()
    rotate(replica)
    later(monkeypatch, 3600 + KEY_DELAY + module.CLOCK_SKEW + 1)
    forged = new_token("admin", "p", 86400)
    forged.issued_at -= 7200
    text = Fernet(replica.content.keys[0].key).encrypt(module._encode(forged)).decode()
    assert Tokens(replica).open(text) is None
    assert Tokens(replica).open(Tokens(replica).seal(new_token("u", "p", 60))) is not None


def test_tokens_of_a_replaced_key_are_valid_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = keyed_replica()
    rotate(replica)
    later(monkeypatch, KEY_DELAY - 1)
    last = Tokens(replica).seal(new_token("u", "p", 3600))
    later(monkeypatch, 3598)
    assert Tokens(replica).open(last) is not None


def test_keys_without_a_time_stay_valid() -> None:
    """An older version has stored them."""
    replica = keyed_replica()
    text = Tokens(replica).seal(new_token("u", "p", 3600))
    rotate(replica)
    replica.change(lambda content: setattr(content.keys[1], "created_at", 0.0))
    assert Tokens(replica).open(text) is not None


def test_token_without_any_key_is_a_503() -> None:
    tokens = Tokens(fresh_replica(MemoryStore()))
    with pytest.raises(exceptions.ServiceUnavailable, match="nova-lite-manage user init"):
        tokens.seal(new_token("u", "p", 60))
    assert tokens.open("gAAAA") is None


def test_revoked_token_is_void_for_all_daemons() -> None:
    store = MemoryStore()
    tokens = Tokens(keyed_replica(store))
    text = tokens.seal(token := new_token("u", None, 60))
    tokens.revoke(token)
    tokens.revoke(token)
    assert tokens.open(text) is None
    assert Tokens(fresh_replica(store)).open(text) is None


def test_revocation_is_stored_for_a_lifetime_after_the_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = keyed_replica()
    tokens = Tokens(replica, 60)
    old, new = new_token("u", None, 60), new_token("u", None, 60)
    old.expires_at = time.time() - 1
    tokens.revoke(old)
    tokens.revoke(new)
    assert [item.id for item in replica.content.revocations] == [old.audit_ids[0], new.audit_ids[0]]
    uptime = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: uptime)
    tokens.revoke(new)
    assert [item.id for item in replica.content.revocations] == [new.audit_ids[0]]


def test_revoked_token_stays_void_when_the_clock_jumps_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = keyed_replica()
    tokens, right = Tokens(replica), time.time
    text = tokens.seal(token := new_token("u", None, 3600))
    tokens.revoke(token)
    monkeypatch.setattr(time, "time", lambda: right() + 7 * 86400)
    tokens.revoke(new_token("other", None, 3600))
    monkeypatch.setattr(time, "time", right)
    assert tokens.open(text) is None
    assert replica.content.find(Revocation, token.audit_ids[0]) is not None


def test_token_of_a_clock_that_was_ahead_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, right = Tokens(keyed_replica()), time.time
    monkeypatch.setattr(time, "time", lambda: right() + 7 * 86400)
    text = tokens.seal(new_token("u", None, 3600))
    assert tokens.open(text) is not None
    monkeypatch.setattr(time, "time", right)
    assert tokens.open(text) is None


def test_token_of_a_credential_is_void_for_a_daemon_that_knows_no_credentials() -> None:
    """Older daemons would give the token all roles of its user."""
    tokens = Tokens(keyed_replica())
    token = new_token("u", "p", 60)
    assert msgspec.msgpack.decode(module._encode(token), type=Token) == token
    token.credential_id = "c"
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(module._encode(token), type=Token)
    assert tokens.open(tokens.seal(token)) == token
