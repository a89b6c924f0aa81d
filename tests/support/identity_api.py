"""The identity and compute applications with the users admin, alice (member of demo) and bob (disabled)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webob
from oslo_config import cfg

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.identity import authority, directory, tokens
from nova_lite.api.identity.records import User
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_conf
from tests.support.control_plane import FakeCompute, FakeConductor

PASSWORDS = {"admin": "admin's", "alice": "alice's", "bob": "bob's"}


class World:
    """Configuration, records of users (``users``), and requests to the applications."""

    def __init__(self, path: Path, hashes: dict[str, str], options: str = "") -> None:
        self.conf: cfg.ConfigOpts = make_conf(
            path,
            "enabled_apis = osapi_compute, identity, image\n"
            + (options or "auth_strategy = standalone\n")
            + f"[identity]\nusers_file = {path}/users.yaml\ntokens_path = {path}/identity\n"
            + f"[image]\nstore_path = {path}/images\nmax_upload_mb = 1\n",
        )
        self.conductor = FakeConductor()
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(self.conf, self.conductor))  # type: ignore[arg-type]
        self.services = wsgi.ApiServices(self.conf, Policy(self.conf), compute)
        self.authority = authority.of(self.services)
        self.users = self.authority.replica
        with self.users.changing() as content:
            tokens.add_key(content, 3)
            self.demo = directory.add_project(content, "demo")
            self.ops = directory.add_project(content, "ops")
            for name, stored in hashes.items():
                user = User(id=f"id-of-{name}", name=name, password=stored, enabled=name != "bob")
                directory.grant(user, self.demo, "admin" if name == "admin" else "member")
                content.users.append(user)
            content.users[0].default_project_id = content.users[1].default_project_id = self.demo.id
        self._apps: dict[str, Any] = {}

    def app(self, name: str) -> Any:
        if name not in self._apps:
            self._apps[name] = deploy.load_app(name, self.services)
        return self._apps[name]

    def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = None, app: str = "identity", **headers: str
    ) -> webob.Response:
        request = webob.Request.blank(path, method=method, base_url="http://cloud:5000")
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        if token:
            request.headers["X-Auth-Token"] = token
        if body is not None:
            request.content_type = headers.get("Content_Type", "application/json")
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return request.get_response(self.app(app))

    def log_in(self, name: str, password: str | None = None, scope: Any = None, **user: Any) -> webob.Response:
        user_fields = {"name": name, "domain": {"id": "default"}} | user
        user_fields["password"] = PASSWORDS[name] if password is None else password
        auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": user_fields}}}
        if scope is not None:
            auth["scope"] = scope
        return self("POST", "/v3/auth/tokens", {"auth": auth})

    def token(self, name: str, project: str = "demo") -> str:
        response = self.log_in(name, scope={"project": {"name": project, "domain": {"id": "default"}}})
        assert response.status_code == 201, response.text
        text: str = response.headers["X-Subject-Token"]
        return text


def error(response: webob.Response, code: int) -> str:
    """Check the form of an error, and return its message."""
    assert response.status_code == code, response.text
    assert set(response.json) == {"error"}
    assert set(response.json["error"]) == {"code", "message", "title"}
    assert response.json["error"]["code"] == code
    message: str = response.json["error"]["message"]
    return message


class Admin:
    """Sends requests of an admin below ``/v3``. ``service``: an entry of the catalog."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.token = world.token("admin")
        self.service = self("POST", "services", {"service": {"type": "one"}}).json["service"]["id"]

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return self.world(method, f"/v3/{path}", body, self.token)

    def register(self, name: str = "things", **fields: Any) -> Any:
        limit = {"service_id": self.service, "resource_name": name, "default_limit": 5, **fields}
        return self("POST", "registered_limits", {"registered_limits": [limit]})

    def limit(self, name: str = "things", **fields: Any) -> Any:
        limit = {"service_id": self.service, "resource_name": name, "resource_limit": 3, **fields}
        return self("POST", "limits", {"limits": [limit]})

    def endpoint(self, url: str, interface: str = "public") -> str:
        body = {"endpoint": {"service_id": self.service, "interface": interface, "url": url}}
        return str(self("POST", "endpoints", body).json["endpoint"]["id"])
