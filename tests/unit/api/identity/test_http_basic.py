"""A name and a password with each request."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import webob

from nova_lite.api.identity import directory, passwords
from tests.unit.api.identity.conftest import PASSWORDS, World


@pytest.fixture
def basic(tmp_path: Path, hashes: dict[str, str]) -> World:
    return World(tmp_path, hashes, "auth_strategy = http_basic\n")


def ask(world: World, text: str, app: str = "osapi_compute", path: str = "/v2.1/servers") -> webob.Response:
    encoded = base64.b64encode(text.encode()).decode()
    return world("GET", path, app=app, Authorization=f"Basic {encoded}")


def test_the_default_project_is_asked_for(basic: World) -> None:
    for _ in range(2):
        assert ask(basic, f"alice:{PASSWORDS['alice']}").status_code == 200
        context = basic.conductor.contexts[-1]
        assert (context.user_id, context.project_id, context.is_admin) == ("id-of-alice", basic.demo.id, False)
    assert ask(basic, f"admin:{PASSWORDS['admin']}", "identity", "/v3/users").status_code == 200
    assert ask(basic, f"alice:{PASSWORDS['alice']}", "identity", "/v3/users").status_code == 403


@pytest.mark.parametrize("text", ["alice:wrong", "nobody:wrong", "bob:bob's", "alice", ":", "alice:"])
def test_refusals_are_the_same(basic: World, text: str) -> None:
    assert ask(basic, "alice:alice's").status_code == 200
    answer = ask(basic, text)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert answer.json["error"]["message"] == "The request you have made requires authentication."


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic w6k=w", "Bearer YTpi", "Basic /w=="])
def test_malformed_headers(basic: World, header: str) -> None:
    assert basic("GET", "/v2.1/servers", app="osapi_compute", Authorization=header).status_code == 401


def test_a_known_password_is_not_hashed_again_but_a_changed_one_ends(
    basic: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    real = passwords.matches

    def counting(password: str, stored: str | None) -> bool:
        checked.append(password)
        return real(password, stored)

    monkeypatch.setattr(passwords, "matches", counting)
    for _ in range(3):
        assert ask(basic, "alice:alice's").status_code == 200
    assert len(checked) == 1
    with basic.users.changing() as content:
        directory.set_password(content.users[1], "new")
    assert ask(basic, "alice:alice's").status_code == 401
    assert ask(basic, "alice:new").status_code == 200
