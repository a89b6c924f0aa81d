"""The metadata API in the test's process, for guests of the real libvirtd."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from nova_lite.api.http import deploy, server, wsgi
from nova_lite.compute.api import API
from nova_lite.daemon import sockets
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from nova_lite.virt.abilities import SpawnSpec
from tests.support.api_client import make_conf
from tests.support.control_plane import FakeCompute, FakeConductor


class Service:
    """The metadata API on an address that the machine gets from a compute host."""

    def __init__(self, path: Path) -> None:
        token = uuid.uuid4().bytes
        self.address, self.port = f"169.254.{88 + token[0] % 100}.{1 + token[1] % 250}", 18775
        self.conductor = FakeConductor()
        conf = make_conf(path)
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        app = deploy.load_app("metadata", wsgi.ApiServices(conf, Policy(conf), compute))
        self.http = server.make_server(sockets.listen(self.address, self.port, early=True), app, 4, None)
        self.http.start()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "network__metadata_service": True,
            "api__metadata_listen": self.address,
            "api__metadata_listen_port": self.port,
        }

    def know(self, spec: SpawnSpec) -> SpawnSpec:
        """Publish a server, as the conductor does when its ports are allocated."""
        spec.instance.vifs = spec.vifs
        self.conductor.instances[spec.instance.uuid] = spec.instance
        return spec
