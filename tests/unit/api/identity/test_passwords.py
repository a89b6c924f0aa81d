"""Password hashes, and their replacement at log-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.identity import passwords
from nova_lite.base import exceptions
from tests.support.identity_api import World, error

COSTLY = "auth_strategy = standalone\n[identity]\npassword_hash_cost = 15\n"


@pytest.fixture
def costly(tmp_path: Path, hashes: dict[str, str]) -> World:
    """Users with hashes of the lowest cost, in a cloud with a higher one."""
    return World(tmp_path, hashes, COSTLY)


def cost_of(stored: str) -> int:
    return int(stored.split("$")[1]).bit_length() - 1


def stored_of(world: World, name: str = "alice") -> str:
    user = world.users.content.user_named(name)
    assert user is not None
    return user.password


def test_cheap_hash_is_replaced_at_log_in_and_tokens_stay_valid(costly: World) -> None:
    token, before = costly.token("alice"), stored_of(costly)
    assert cost_of(before) == 15
    assert costly("GET", "/v3/auth/catalog", None, token).status_code == 200
    assert costly.log_in("alice").status_code == 201
    assert stored_of(costly) == before
    assert error(costly.log_in("alice", "wrong"), 401)


def test_cheap_hash_stays_if_the_password_is_wrong_or_the_user_disabled(costly: World, hashes: dict[str, str]) -> None:
    assert error(costly.log_in("alice", "wrong"), 401)
    assert error(costly.log_in("bob"), 401)
    assert [stored_of(costly, name) for name in ("alice", "bob")] == [hashes["alice"], hashes["bob"]]


def test_wrong_password_costs_as_much_with_a_cheap_hash_as_that_of_an_unknown_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, kdf = passwords.hashed("word"), passwords._kdf
    costs: list[int] = []

    def counting(salt: bytes, n: int, r: int, p: int) -> Any:
        costs.append(n)
        return kdf(salt, n, r, p)

    monkeypatch.setattr(passwords, "_kdf", counting)
    for known in (stored, None):
        costs.clear()
        assert not passwords.matches("wrong", known, 16)
        assert sum(costs) == 2**16


def test_expensive_hash_is_not_replaced_by_a_cheaper_one(world: World) -> None:
    with world.users.changing() as content:
        content.users[1].password = expensive = passwords.hashed("alice's", 15)
    assert world.log_in("alice").status_code == 201
    assert stored_of(world) == expensive


def test_hash_of_a_new_password_has_the_cost_of_the_options(costly: World) -> None:
    admin = costly.token("admin")
    assert costly("POST", "/v3/users", {"user": {"name": "new", "password": "word"}}, admin).status_code == 201
    assert cost_of(stored_of(costly, "new")) == 15


def test_cheap_secret_of_an_application_credential_is_replaced_at_log_in(costly: World) -> None:
    token = costly.token("alice")
    path = "/v3/users/id-of-alice/application_credentials"
    made = costly("POST", path, {"application_credential": {"name": "ci", "secret": "hidden"}}, token)
    with costly.users.changing() as content:
        content.application_credentials[0].secret = passwords.hashed("hidden")
    given = {"id": made.json["application_credential"]["id"], "secret": "hidden"}
    identity = {"methods": ["application_credential"], "application_credential": given}
    assert costly("POST", "/v3/auth/tokens", {"auth": {"identity": identity}}).status_code == 201
    assert cost_of(costly.users.content.application_credentials[0].secret) == 15


def test_log_in_succeeds_if_its_cheap_hash_cannot_be_replaced(
    costly: World, hashes: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(function: Any) -> None:
        raise exceptions.ServiceUnavailable()

    monkeypatch.setattr(costly.users, "change", refuse)
    assert costly.log_in("alice").status_code == 201
    assert stored_of(costly) == hashes["alice"]
    assert "could not be replaced" in caplog.text


def test_hash_that_another_request_replaced_meanwhile_is_kept(costly: World, monkeypatch: pytest.MonkeyPatch) -> None:
    change, newer = costly.users.change, passwords.hashed("newer")

    def change_later(function: Any) -> Any:
        with costly.users.changing() as content:
            content.users[1].password = newer
        return change(function)

    monkeypatch.setattr(costly.users, "change", change_later)
    assert costly.log_in("alice").status_code == 201
    assert stored_of(costly) == newer
