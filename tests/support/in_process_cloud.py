"""A whole cloud in one process: API, conductor, scheduler, and one compute host on the fake driver.

The daemons are real; the broker is `nova_lite.rpc.InProcess`, and the database is SQLite in a directory of the caller.
`tools/trace` and `tools/measure.py` watch its functions. Tests use it where the way of one request matters.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import webob
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite import objects, rpc
from nova_lite.api.http import deploy, wsgi
from nova_lite.compute.api import API
from nova_lite.compute.manager import ComputeManager
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from nova_lite.scheduler.manager import SchedulerManager
from nova_lite.virt.driver import load_compute_driver
from tests.support.migrated import migrate
from tests.support.waiting import wait_for

TOP = Path(__file__).resolve().parents[2]
HOST = "host1"
IMAGE_BYTES = b"guest"
VERSION = "2.96"


class InProcessCloud:
    """Cloud of one host. ``request`` sends an HTTP request to its API; ``wait_for`` polls with a deadline."""

    def __init__(self, directory: Path, options: str = "", database: str | None = None) -> None:
        """Make and start it; its files are below ``directory``.

        ``options``: more lines of the configuration file. ``database``: URL of an empty database, instead of SQLite.
        """
        self.conf = _configuration(directory, options, database or f"sqlite:///{directory}/db.sqlite")
        self._database = directory / "db.sqlite"
        migrate(self.conf)
        self.bus = self._make_bus()
        conductor = rpc.proxy(ConductorRPC, self.bus)
        compute = rpc.proxy(ComputeRPC, self.bus)
        scheduler = rpc.proxy(SchedulerRPC, self.bus)
        self.conductor = ConductorManager(self.conf, scheduler, compute, conductor)
        self.bus.serve(self.conductor.endpoint)
        self._fill_database(directory)
        self.scheduler = SchedulerManager(self.conf, conductor)
        self.bus.serve(rpc.Endpoint(SchedulerRPC, self.scheduler))
        self.compute = self._start_host(conductor)
        self.scheduler.keep_fresh()
        self.conductor.start()
        api = API()
        api.connect(conductor, compute, load_backend(self.conf, conductor))
        self.services = wsgi.ApiServices(self.conf, Policy(self.conf), api)
        self._app = deploy.load_app("osapi_compute", self.services)

    def request(self, method: str, path: str, body: Any = None) -> webob.Response:
        """Return the API's response to an admin's request below ``/v2.1``."""
        request = webob.Request.blank("/v2.1" + path, method=method, base_url="http://cloud:8774")
        request.headers["X-Auth-Token"] = "admin:demo"
        request.headers["OpenStack-API-Version"] = f"compute {VERSION}"
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        return request.get_response(self._app)

    def send_create(self, name: str = "one", **more: Any) -> str:
        """Send a create and return the server's id. ``more``: further attributes of the server."""
        body = {"name": name, "imageRef": self.image_id, "flavorRef": "1", "networks": "auto", **more}
        response = self.request("POST", "/servers", {"server": body})
        assert response.status_code == 202, response.text
        self.last_created: str = response.json["server"]["id"]
        return self.last_created

    def is_finished(self, server_id: str) -> bool:
        """Check whether no action of the server is open, straight in the database file."""
        with contextlib.closing(sqlite3.connect(self._database, timeout=10)) as connection:
            query = "SELECT count(*) FROM instance_actions WHERE instance_uuid = ? AND finish_time IS NULL"
            return connection.execute(query, (server_id,)).fetchone() == (0,)

    def create(self, name: str = "one", **more: Any) -> str:
        """Create a server and return its id once it is ACTIVE."""
        server_id = self.send_create(name, **more)
        wait_for("the server is ACTIVE", lambda: self.settled(server_id) == "ACTIVE", 30)
        return server_id

    def settled(self, server_id: str) -> str | None:
        """Return the server's status; None while a task runs, ``GONE`` once it is deleted."""
        response = self.request("GET", f"/servers/{server_id}")
        if response.status_code == 404:
            return "GONE"
        server = response.json["server"]
        return None if server["OS-EXT-STS:task_state"] else str(server["status"])

    def close(self) -> None:
        """Stop the daemons."""
        self.compute.stop()
        self.conductor.close()

    def _make_bus(self) -> rpc.InProcess:
        return rpc.InProcess(self.conf)

    def _start_host(self, conductor: ConductorRPC) -> ComputeManager:
        backend = load_backend(self.conf, conductor)
        driver = load_compute_driver(self.conf, HOST, backend.fetch)
        manager = ComputeManager(self.conf, HOST, driver, conductor, backend)
        manager.connect()
        manager.clean_up()
        self.bus.serve(rpc.Endpoint(ComputeRPC, manager, commands=manager.commands), HOST)
        manager.registration.serve()
        return manager

    def _fill_database(self, directory: Path) -> None:
        write = self.conductor.db.write
        write(flavors.create, objects.Flavor(flavorid="1", name="m1.nano", vcpus=1, memory_mb=64, root_gb=1))
        network = objects.Network(
            id="a0000000-0000-4000-8000-000000000001", name="private", cidr="10.1.0.0/24", gateway="10.1.0.1",
            bridge="nlbr0", start="10.1.0.10", end="10.1.0.200", is_default=True,
        )  # fmt: skip
        write(builtin_networks.create, network)
        self.image_id = "b0000000-0000-4000-8000-000000000001"
        store = directory / "images"
        store.mkdir(exist_ok=True)
        (store / self.image_id).write_bytes(IMAGE_BYTES)
        image = objects.Image(
            id=self.image_id, name="guest", size=len(IMAGE_BYTES), disk_format="raw", status="active",
            visibility="public",
        )  # fmt: skip
        write(images.create, image)


def _configuration(directory: Path, options: str, database: str) -> cfg.ConfigOpts:
    file = directory / "nova-lite.conf"
    file.write_text(
        f"""[DEFAULT]
host = {HOST}
compute_driver = fake
state_path = {directory}
[database]
connection = {database}
[api]
paste_config = {TOP}/etc/nova-lite/api-paste.ini
auth_strategy = noauth2
[network]
backend = local
[image]
backend = local
store_path = {directory}/images
[oslo_concurrency]
lock_path = {directory}
{options}
"""
    )
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_dirs=[])
    return conf
