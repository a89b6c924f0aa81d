"""The metadata API in the test's process, for guests of the real libvirtd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nova_lite.api.http import deploy, server, wsgi
from nova_lite.api.metadata.networks import GuestNetworks
from nova_lite.compute.api import API
from nova_lite.compute.metadata_sockets import MetadataSockets
from nova_lite.daemon.service import Periodic
from nova_lite.image.driver import load_backend
from nova_lite.metadata import network_sockets
from nova_lite.policies.enforcer import Policy
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.driver import ComputeDriver
from tests.support.api_client import make_conf
from tests.support.control_plane import FakeCompute, FakeConductor


class Service:
    """The metadata API on the networks of a compute host."""

    options: dict[str, Any] = {"network__metadata_service": True}

    def __init__(self, path: Path) -> None:
        self.conductor = FakeConductor()
        conf = make_conf(path)
        conf.set_override("metadata_directory", str(path / "sockets"), "network")
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        app = deploy.load_app("metadata", wsgi.ApiServices(conf, Policy(conf), compute))
        self.http = server.make_server(None, app, 4, None)
        self.http.start()
        self._path = network_sockets.path(conf.network.metadata_directory, "one")
        self._tasks = [Periodic("networks", 0.2, GuestNetworks(conf, self.http).tick)]
        self._tasks[0].start()
        self._drivers: list[ComputeDriver] = []

    def serve(self, driver: ComputeDriver) -> None:
        """Pass the driver's sockets to the API, as a compute daemon does."""
        self._drivers.append(driver)
        daemon = MetadataSockets(self._path, driver.networks.metadata_sockets)
        self._tasks.append(Periodic("sockets", 0.2, daemon.tick))
        self._tasks[-1].start()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()
        # The end of a daemon closes them. A socket without a server would get a part of the next test's connections.
        for driver in self._drivers:
            for sock in driver.networks.metadata_sockets().values():
                sock.close()
        self.http.stop(5)

    def know(self, spec: SpawnSpec) -> SpawnSpec:
        """Publish a server, as the conductor does when its ports are allocated."""
        spec.instance.vifs = spec.vifs
        self.conductor.instances[spec.instance.uuid] = spec.instance
        return spec
