"""The DNS API over a real conductor with its wing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webob

from nova_lite.api.http import deploy
from nova_lite.conductor.dns.wing import Dns
from nova_lite.db.network import floating_ips
from tests.support.api_client import MEMBER, make_conf
from tests.support.in_process_api import make_services

NAME_SERVER = "ns1.example.org."


class DnsApi:
    """Requests with noauth2. ``wing``: of the conductor. ``options``: of ``[dns]``, as lines."""

    def __init__(self, path: Path, options: str = "") -> None:
        self.conf = make_conf(
            path,
            f"enabled_apis = dns,network\n[DEFAULT]\nwings = dns\n[dns]\nname_servers = {NAME_SERVER}\n{options}\n"
            f"[database]\nconnection = sqlite:///{path}/db.sqlite\n",
        )
        self.manager, self.services = make_services(self.conf, path)
        self.app = deploy.load_app("dns", self.services)
        self.network = deploy.load_app("network", self.services)
        self.db = self.manager.db
        self.pool = self.db.write(floating_ips.create_pool, "public", "192.0.2.0/28")
        wing = self.manager.wings.loaded["dns"]
        assert isinstance(wing, Dns)
        self.wing = wing

    def __call__(
        self, method: str, path: str, body: Any = None, token: str = MEMBER, app: Any = None, **headers: str
    ) -> webob.Response:
        request = webob.Request.blank(path, method=method, base_url="http://cloud:9001")
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        request.headers["X-Auth-Token"] = token
        if body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(app or self.app)

    def done(self, method: str, path: str, body: Any = None, status: int = 202, **more: Any) -> dict[str, Any]:
        response = self(method, f"/v2{path}", body, **more)
        assert response.status_code == status, response.text
        return dict(response.json) if response.body else {}

    def zone(self, name: str = "example.org.", **values: Any) -> dict[str, Any]:
        token = values.pop("token", MEMBER)
        return self.done("POST", "/zones", {"name": name, "email": "a@example.org", **values}, token=token)

    def records(self, zone: dict[str, Any], name: str, kind: str, *records: str, **more: Any) -> dict[str, Any]:
        body = {"name": name, "type": kind, "records": [*records], **more}
        return self.done("POST", f"/zones/{zone['id']}/recordsets", body)

    def floating_ip(self, **values: Any) -> dict[str, Any]:
        body = {"floatingip": {"floating_network_id": self.pool.id, **values}}
        response = self("POST", "/v2.0/floatingips", body, app=self.network)
        assert response.status_code == 201, response.text
        return dict(response.json["floatingip"])

    def listed(self, path: str, key: str = "recordsets", **headers: Any) -> list[dict[str, Any]]:
        return list(self.done("GET", path, status=200, **headers)[key])

    def refused(self, method: str, path: str, body: Any, code: int, kind: str, text: str, **more: Any) -> None:
        response = self(method, f"/v2{path}", body, **more)
        assert response.status_code == code, response.text
        assert (response.json["code"], response.json["type"]) == (code, kind)
        assert text in response.json["message"]
