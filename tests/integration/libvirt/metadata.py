"""The metadata API in the test's process, for guests of the real libvirtd."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from nova_lite.api.http import deploy, server, wsgi
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.support.api_client import make_conf
from tests.support.control_plane import FakeCompute, FakeConductor


class Service:
    """The metadata API on the networks of a compute host."""

    def __init__(self, path: Path) -> None:
        self.conductor = FakeConductor()
        conf = make_conf(path)
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        app = deploy.load_app("metadata", wsgi.ApiServices(conf, Policy(conf), compute))
        self.http = server.make_server(None, app, 4, None)
        self.http.start()

    @property
    def options(self) -> dict[str, Any]:
        return {"network__metadata_service": True}

    def serve(self, driver: LibvirtDriver) -> None:
        """Accept connections of guests of a host, as an API does that has its sockets."""
        for network_id, sock in driver.networks.metadata_sockets().items():
            self.http.listen(socket.socket(fileno=os.dup(sock.fileno())), network_id)

    def know(self, spec: SpawnSpec) -> SpawnSpec:
        """Publish a server, as the conductor does when its ports are allocated."""
        spec.instance.vifs = spec.vifs
        self.conductor.instances[spec.instance.uuid] = spec.instance
        return spec
