"""Requests that carry a name and a password."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import webob

from nova_lite.api.identity import directory, passwords
from tests.support.identity_api import PASSWORDS, World


@pytest.fixture
def basic(tmp_path: Path, hashes: dict[str, str]) -> World:
    return World(tmp_path, hashes, "auth_strategy = http_basic\n")


def ask(world: World, text: str, app: str = "osapi_compute", path: str = "/v2.1/servers") -> webob.Response:
    encoded = base64.b64encode(text.encode()).decode()
    return world("GET", path, app=app, Authorization=f"Basic {encoded}")


def test_http_basic_user_is_in_the_default_project(basic: World) -> None:
    for _ in range(2):
        assert ask(basic, f"alice:{PASSWORDS['alice']}").status_code == 200
        context = basic.conductor.contexts[-1]
        assert (context.user_id, context.project_id, context.is_admin) == ("id-of-alice", basic.demo.id, False)
    assert ask(basic, f"admin:{PASSWORDS['admin']}", "identity", "/v3/users").status_code == 200
    assert ask(basic, f"alice:{PASSWORDS['alice']}", "identity", "/v3/users").status_code == 403


@pytest.mark.parametrize("text", ["alice:wrong", "nobody:wrong", "bob:bob's", "alice", ":", "alice:"])
def test_http_basic_refusals_are_equal(basic: World, text: str) -> None:
    assert ask(basic, "alice:alice's").status_code == 200
    response = ask(basic, text)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Basic ")
    assert response.json["error"]["message"] == "The request you have made requires authentication."


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic w6k=w", "Bearer YTpi", "Basic /w=="])
def test_malformed_authorization_header_is_refused(basic: World, header: str) -> None:
    assert basic("GET", "/v2.1/servers", app="osapi_compute", Authorization=header).status_code == 401


def test_valid_password_is_hashed_once_until_it_changes(basic: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    real = passwords.matches

    def counting(password: str, stored: str | None, *cost: int) -> bool:
        checked.append(password)
        return real(password, stored, *cost)

    monkeypatch.setattr(passwords, "matches", counting)
    for _ in range(3):
        assert ask(basic, "alice:alice's").status_code == 200
    assert len(checked) == 1
    with basic.users.changing() as content:
        directory.set_password(content.users[1], directory.new_password("new"))
    assert ask(basic, "alice:alice's").status_code == 401
    assert ask(basic, "alice:new").status_code == 200
