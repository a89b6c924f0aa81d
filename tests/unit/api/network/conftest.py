"""The network API over a real conductor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.http import deploy
from nova_lite.db.network import builtin_networks, floating_ips
from nova_lite.network import factory
from tests.support.api_client import ADMIN, MEMBER, make_conf
from tests.support.in_process_api import make_services

#: Paths and names of the kinds of resources with tags.
KINDS = {
    "networks": ("/networks", "network"),
    "subnets": ("/subnets", "subnet"),
    "subnetpools": ("/subnetpools", "subnetpool"),
    "ports": ("/ports", "port"),
    "routers": ("/routers", "router"),
    "floatingips": ("/floatingips", "floatingip"),
    "security_groups": ("/security-groups", "security_group"),
    "security_group_rules": ("/security-group-rules", "security_group_rule"),
}


class Api:
    """Requests with noauth2. ``more``: further lines of the configuration."""

    def __init__(self, path: Path, more: str = "") -> None:
        conf = make_conf(
            path,
            f"enabled_apis = network\n[database]\nconnection = sqlite:///{path}/db.sqlite\n"
            "[network]\nproject_ranges = 10.64.0.0/16\nnetworks_per_project = 3\nrouters_per_project = 3\n"
            f"fixed_ips_per_project = 4\n{more}",
        )
        self.manager, services = make_services(conf, path)
        self.app = deploy.load_app("network", services)
        self.shared = self.manager.db.write(
            builtin_networks.create, factory.new_network("private", "10.0.0.0/24", is_default=True)
        )
        self.pool = self.manager.db.write(floating_ips.create_pool, "public", "192.0.2.0/30")

    def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = MEMBER, **headers: str
    ) -> webob.Response:
        request = webob.Request.blank(f"/v2.0{path}", method=method, base_url="http://cloud:9696")
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        if token:
            request.headers["X-Auth-Token"] = token
        if body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(self.app)

    def get(self, path: str, token: str = MEMBER) -> Any:
        response = self("GET", path, token=token)
        assert response.status_code == 200, response.text
        return response.json

    def make(self, path: str, key: str, token: str = MEMBER, **values: Any) -> dict[str, Any]:
        response = self("POST", path, {key: values}, token)
        assert response.status_code == 201, response.text
        made: dict[str, Any] = response.json[key]
        return made

    def subnet_of(self, network_id: str, version: int = 4) -> str:
        """Return the id of a network's first subnet."""
        shown = self.get(f"/subnets?network_id={network_id}&ip_version={version}", ADMIN)["subnets"]
        return str(shown[0]["id"])

    def port(self, **values: Any) -> dict[str, Any]:
        return self.make("/ports", "port", **{"network_id": self.shared.id, **values})

    def refused(
        self, method: str, path: str, body: Any, status: int, kind: str, text: str, token: str = MEMBER
    ) -> None:
        response = self(method, path, body, token)
        assert response.status_code == status, response.text
        error = response.json["NeutronError"]
        assert (error["type"], error["detail"]) == (kind, "")
        assert text in error["message"]


def make_one_of_each(api: Api) -> dict[str, dict[str, Any]]:
    network = api.make("/networks", "network", name="one")
    group = api.make("/security-groups", "security_group", name="one")
    rule = {"security_group_id": group["id"], "direction": "ingress"}
    return {
        "networks": network,
        "subnets": api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr="10.64.1.0/24"),
        "subnetpools": api.make("/subnetpools", "subnetpool", prefixes=["10.64.0.0/17"]),
        "ports": api.port(),
        "routers": api.make("/routers", "router", name="one"),
        "floatingips": api.make("/floatingips", "floatingip", floating_network_id=api.pool.id),
        "security_groups": group,
        "security_group_rules": api.make("/security-group-rules", "security_group_rule", **rule),
    }


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    yield made
    made.manager.db.close()
