"""The load balancer API over a real conductor, and hosts that report as the fake hypervisor's do."""

from __future__ import annotations

import base64
import datetime
import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import webob

from nova_lite import rpc
from nova_lite.api.http import deploy
from nova_lite.base import master_keys
from nova_lite.compute.load_balancer.wing import HostBalancers
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import LoadBalancer, LoadBalancerHost, Port, Service
from nova_lite.db.network import builtin_networks
from nova_lite.load_balancer.objects import WING
from nova_lite.network import factory
from nova_lite.objects import ipv6
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver
from tests.support.api_client import ADMIN, MEMBER, make_conf
from tests.support.in_process_api import make_services

LEASE = 30


class World:
    """Requests with noauth2. ``hosts``: compute hosts by name, none at first."""

    def __init__(self, path: Path) -> None:
        master_keys.new().write(str(path / "master.keys"))
        self.conf = make_conf(
            path,
            "enabled_apis = load_balancer, key_manager\n"
            f"[volume]\nencryption_key_file = {path}/master.keys\n"
            "[DEFAULT]\nwings = load_balancer\ncompute_driver = fake\nstate_path = {path}\n"
            f"[load_balancer]\nlease = {LEASE}\n[database]\nconnection = sqlite:///{path}/db.sqlite\n",
        )
        self.manager, services = make_services(self.conf, path)
        self.app = deploy.load_app("load_balancer", services)
        self.key_manager = deploy.load_app("key_manager", services)
        self.db = self.manager.db
        self.network = self.db.write(
            builtin_networks.create, factory.new_network("private", "10.0.0.0/24", is_default=True)
        )
        self.subnet_id = ipv6.subnet_id_of(self.network)
        self.hosts: dict[str, HostBalancers] = {}

    def add_host(self, name: str) -> HostBalancers:
        bus = rpc.InProcess(self.conf)
        bus.serve(self.manager.endpoint)
        driver = ComputeDriver(self.conf, name, lambda image, path: None)
        self.hosts[name] = HostBalancers(WING, self.conf, name, driver, rpc.proxy(ConductorRPC, bus))
        self.db.write(_add_service, name)
        self.tick(name)
        return self.hosts[name]

    def tick(self, *names: str) -> None:
        """Let hosts report until they have nothing more to say."""
        for name in names or self.hosts:
            self.hosts[name].woken.set()
            while self.hosts[name].woken.is_set():
                self.hosts[name].tick(0)

    def age(self, seconds: float, *names: str) -> None:
        """Let hosts have reported so long ago."""
        self.db.write(_age, seconds, names)

    def age_change(self, balancer_id: str, seconds: float) -> None:
        """Let the newest change of a load balancer have been accepted so long ago."""

        def change(uow: UnitOfWork) -> None:
            uow.session.get_one(LoadBalancer, balancer_id).changed_at -= datetime.timedelta(seconds=seconds)

        self.db.write(change)

    def row(self, balancer_id: str) -> LoadBalancer | None:
        return self.db.read(lambda uow: uow.session.get(LoadBalancer, balancer_id))

    def port(self, port_id: str) -> Port | None:
        return self.db.read(lambda uow: uow.session.get(Port, port_id))

    def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = MEMBER, base: str = "/v2"
    ) -> webob.Response:
        request = webob.Request.blank(f"{base}/lbaas{path}", method=method, base_url="http://cloud:9876")
        if token:
            request.headers["X-Auth-Token"] = token
        if body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(self.app)

    def keys(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str = MEMBER,
        kind: str = "application/json",
        **headers: str,
    ) -> webob.Response:
        """Send a request to the key manager. ``path`` may be a reference, and ``body`` bytes."""
        path = path.removeprefix("http://cloud:9311/v1")
        request = webob.Request.blank(f"/v1{path}", method=method, base_url="http://cloud:9311")
        request.headers.update(
            {"X-Auth-Token": token} | {name.replace("_", "-"): text for name, text in headers.items()}
        )
        if body is not None:
            request.content_type = kind
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return request.get_response(self.key_manager)

    def secret(self, data: bytes, **values: Any) -> str:
        """Create a secret, and return its reference."""
        encoded = {"payload": base64.b64encode(data).decode(), "payload_content_encoding": "base64"}
        body = {"payload_content_type": "application/octet-stream", **encoded, **values}
        response = self.keys("POST", "/secrets", body)
        assert response.status_code == 201, response.text
        return str(response.json["secret_ref"])

    def get(self, path: str, token: str = MEMBER) -> Any:
        response = self("GET", path, token=token)
        assert response.status_code == 200, response.text
        return response.json

    def make(self, path: str, key: str, **values: Any) -> dict[str, Any]:
        """Create something, and let the hosts carry it out."""
        response = self("POST", path, {key: values})
        assert response.status_code == 201, response.text
        self.tick()
        made: dict[str, Any] = response.json[key]
        return made

    def balancer(self, **values: Any) -> dict[str, Any]:
        return self.make("/loadbalancers", "loadbalancer", vip_network_id=self.network.id, **values)

    def whole(self) -> dict[str, str]:
        """Make a load balancer with one part of each kind. Return their ids by kind."""
        balancer = self.balancer(name="one")["id"]
        listener = self.make("/listeners", "listener", loadbalancer_id=balancer, protocol="HTTP", protocol_port=80)[
            "id"
        ]
        pool = self.make("/pools", "pool", listener_id=listener, protocol="HTTP", lb_algorithm="ROUND_ROBIN")["id"]
        member = self.make(f"/pools/{pool}/members", "member", address="10.0.0.9", protocol_port=8080)["id"]
        monitor = self.make(
            "/healthmonitors", "healthmonitor", pool_id=pool, type="HTTP", delay=5, timeout=3, max_retries=2
        )["id"]
        return {
            "loadbalancer": balancer, "listener": listener, "pool": pool, "member": member, "healthmonitor": monitor,
        }  # fmt: skip

    def status(self, balancer_id: str) -> str:
        return str(self.get(f"/loadbalancers/{balancer_id}", ADMIN)["loadbalancer"]["provisioning_status"])

    def refused(self, method: str, path: str, body: Any, status: int, text: str, token: str = MEMBER) -> None:
        response = self(method, path, body, token)
        assert response.status_code == status, response.text
        assert response.json["faultcode"] == ("Client" if status < 500 else "Server")
        assert text in response.json["faultstring"]


def _add_service(uow: UnitOfWork, host: str) -> None:
    values = {"uuid": f"service-{host}", "binary": "nova-compute", "topic": "compute", "created_at": uow.now}
    uow.session.add(Service(host=host, **values))


def _age(uow: UnitOfWork, seconds: float, names: tuple[str, ...]) -> None:
    for row in uow.session.scalars(sa.select(LoadBalancerHost)):
        if not names or row.host in names:
            row.seen_at -= datetime.timedelta(seconds=seconds)
