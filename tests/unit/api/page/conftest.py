"""The page over the identity, compute and image APIs of one cloud, and a browser that keeps its cookie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.identity import passwords
from nova_lite.api.page import sessions
from tests.support.identity_api import PASSWORDS, World


class PageClient:
    """A browser with the page. ``base``: the page's URL."""

    def __init__(self, world: World, base: str = "http://cloud:8788") -> None:
        self.world = world
        self.base = base
        self.cookie = ""
        self.session = ""

    def __call__(self, method: str, path: str, body: Any = None, marked: bool = True, **headers: str) -> webob.Response:
        request = webob.Request.blank(path, method=method, base_url=self.base)
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        if marked:
            request.headers[sessions.MARK] = "1"
            request.headers.setdefault(sessions.SESSION, self.session)
        if self.cookie:
            request.headers["Cookie"] = self.cookie
        if body is not None:
            request.content_type = "application/json"
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = request.get_response(self.world.app("page"))
        if "Set-Cookie" in response.headers:
            self.cookie = response.headers["Set-Cookie"].partition(";")[0]
        if method == "POST" and path == "/session" and response.status_code == 201:
            token = response.json["token"]
            self.session = f"{token['user']['id']}/{token.get('project', {}).get('id', '')}"
        return response

    def log_in(self, name: str = "alice", password: str | None = None) -> webob.Response:
        user = {"name": name, "domain": {"id": "default"}, "password": password or PASSWORDS[name]}
        return self("POST", "/session", {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}})


@pytest.fixture(scope="session")
def hashes() -> dict[str, str]:
    return {name: passwords.hashed(password) for name, password in PASSWORDS.items()}


@pytest.fixture
def world(tmp_path: Path, hashes: dict[str, str]) -> World:
    return World(tmp_path, hashes, "auth_strategy = standalone\n")


@pytest.fixture
def page(world: World) -> PageClient:
    return PageClient(world)
