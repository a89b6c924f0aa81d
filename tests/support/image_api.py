"""Requests to the image API."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import webob

from nova_lite.api.http import deploy, wsgi
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.objects import Image
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import MEMBER, make_conf
from tests.support.control_plane import NOW, FakeCompute, FakeConductor

PATCH = "application/openstack-images-v2.1-json-patch"


BODY = {"name": "mine", "disk_format": "raw", "container_format": "bare"}


class Images:
    """Requests to the image API with noauth2. The store is a directory, and an upload has at most 1 MiB."""

    def __init__(self, path: Path, max_upload_mb: int = 1) -> None:
        options = f"store_path = {path}/store\nmax_upload_mb = {max_upload_mb}"
        conf = self.conf = make_conf(path, f"enabled_apis = image\n[image]\n{options}\n")
        self.store = path / "store"
        self.conductor = FakeConductor()
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        self.app = deploy.load_app("image", wsgi.ApiServices(conf, Policy(conf), compute))

    def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = MEMBER, **headers: str
    ) -> webob.Response:
        request = webob.Request.blank(path, method=method, base_url="http://cloud:9292")
        request.accept = "application/json"
        if token:
            request.headers["X-Auth-Token"] = token
        if isinstance(body, bytes):
            request.content_type, request.body = "application/octet-stream", body
        elif body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        return request.get_response(self.app)

    def add(self, **changes: Any) -> Image:
        values: dict[str, Any] = {"id": f"{len(self.conductor.images):08d}-0000-4000-8000-000000000000", "name": "i"}
        image = Image(**{**values, "owner": "demo", "visibility": "private", "created_at": NOW, **changes})
        self.conductor.images[image.id] = image
        return image

    def create(self, **changes: Any) -> dict[str, Any]:
        response = self("POST", "/v2/images", BODY | changes)
        assert response.status_code == 201, response.text
        made: dict[str, Any] = response.json
        return made

    def patch(self, image: Image, *operations: tuple[str, str, Any], token: str = MEMBER) -> webob.Response:
        body = [{"op": verb, "path": path, "value": value} for verb, path, value in operations]
        return self("PATCH", f"/v2/images/{image.id}", body, token, Content_Type=PATCH)


def left_behind(images: Images) -> list[str]:
    """Return the names of all files in the store."""
    return [file.name for file in images.store.iterdir()] if images.store.exists() else []


def fault(response: webob.Response, code: int) -> str:
    """Check the form of a fault, HTML or JSON, and return its message."""
    assert response.status_code == code, response.text
    if response.content_type == "text/html":
        found = re.search(rf"<h1>{code} [^<]+</h1>\s+(.*?)<br /><br />", response.text, re.DOTALL)
        assert found, response.text
        return html.unescape(found[1])
    assert response.content_type == "application/json"
    assert response.json.keys() == {"message", "code", "title"}
    assert response.json["code"] == f"{code} {response.json['title']}"
    message: str = response.json["message"]
    return message
