"""The complete paste application over a control plane in memory. Responses are compared with the OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webob
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.api.http import deploy, wsgi
from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from tests.support import conformance
from tests.support.control_plane import FakeCompute, FakeConductor

ROOT = Path(__file__).resolve().parents[2]


ADMIN = "admin:demo"


MEMBER = "alice:demo"


STRANGER = "mallory:other"


def make_conf(tmp_path: Path, text: str = "") -> cfg.ConfigOpts:
    file = tmp_path / "api.conf"
    file.write_text(f"[api]\npaste_config = {ROOT}/etc/nova-lite/api-paste.ini\nauth_strategy = noauth2\n{text}")
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_dirs=[])
    return conf


class Client:
    """Client of the application. Its default caller is ``alice`` of project ``demo``."""

    def __init__(self, app: Any, conductor: FakeConductor, compute: FakeCompute) -> None:
        self.app = app
        self.conductor = conductor
        self.compute = compute

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        version: str | None = None,
        token: str | None = MEMBER,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
        base: str = "/v2.1",
    ) -> webob.Response:
        request = webob.Request.blank(base + path, method=method, base_url="http://cloud:8774")
        request.headers.update(headers or {})
        if token:
            request.headers["X-Auth-Token"] = token
        if version:
            request.headers["OpenStack-API-Version"] = f"compute {version}"
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        if raw is not None:
            request.content_type = request.headers.get("Content-Type", "application/json")
            request.body = raw
        response = request.get_response(self.app)
        if base == "/v2.1" and token:
            conformance.check(method, path, response)
        return response

    def json(self, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        response = self(method, path, body, **options)
        assert response.status_code == status, response.text
        return response.json

    def last_call(self, method: str) -> Any:
        """Return the arguments of the last call of this method."""
        return next(arguments for name, arguments in reversed(self.conductor.calls) if name == method)


def make_client(conf: cfg.ConfigOpts, timing: ApiTiming = TIMING.api) -> Client:
    conductor, compute = FakeConductor(), FakeCompute()
    api = API(timing)
    api.connect(conductor, compute, load_backend(conf, conductor))  # type: ignore[arg-type]
    app = deploy.load_app("osapi_compute", wsgi.ApiServices(conf, Policy(conf), api))
    return Client(app, conductor, compute)


def fault(response: webob.Response, name: str, code: int) -> str:
    """Check the form of a fault, and return its message."""
    assert response.status_code == code, response.text
    assert response.content_type == "application/json"
    assert list(response.json) == [name]
    assert response.json[name]["code"] == code
    message: str = response.json[name]["message"]
    return message
