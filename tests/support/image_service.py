"""Requests to the image API over a real conductor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webob

from nova_lite.api.http import deploy
from tests.support.api_client import MEMBER, make_conf
from tests.support.in_process_api import make_services


class ImageService:
    """Requests with noauth2. ``options``: further lines of the section ``[image]``."""

    def __init__(self, path: Path, options: str = "") -> None:
        self.store = path / "store"
        text = f"enabled_apis = image\n[image]\nstore_path = {self.store}\nmax_upload_mb = 1\n{options}\n"
        text += f"[database]\nconnection = sqlite:///{path}/db.sqlite\n"
        self.conf = make_conf(path, text)
        self.manager, services = make_services(self.conf, path)
        self.app = deploy.load_app("image", services)

    def __call__(self, method: str, path: str, body: Any = None, token: str = MEMBER, **headers: str) -> webob.Response:
        request = webob.Request.blank(f"/v2{path}", method=method, base_url="http://cloud:9292")
        request.headers["X-Auth-Token"], request.accept = token, "application/json"
        if isinstance(body, bytes):
            request.content_type, request.body = "application/octet-stream", body
        elif body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        return request.get_response(self.app)

    def made(self, path: str, body: Any = None, token: str = MEMBER, **headers: str) -> Any:
        response = self("POST", path, body, token, **headers)
        assert response.status_code == 201, response.text
        return response.json
