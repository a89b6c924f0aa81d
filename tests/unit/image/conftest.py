"""A Glance over HTTP: the image API on a store in a directory, with scripted failures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.api.http import deploy, server, wsgi
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ClientTiming
from nova_lite.compute.api import API
from nova_lite.daemon import sockets
from nova_lite.image.driver import load_backend
from nova_lite.image.glance import GlanceImages
from nova_lite.objects import Image
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_conf
from tests.support.control_plane import NOW as NOW_EXACT
from tests.support.control_plane import FakeCompute, FakeConductor

#: Glance's times are whole seconds.
NOW = NOW_EXACT.replace(microsecond=0)
DATA = bytes(range(256)) * 512
ID = "11111111-1111-4111-8111-111111111111"
KERNEL_ID = "22222222-2222-4222-8222-222222222222"
ADMIN = RequestContext(user_id="admin", auth_token="admin:demo", overwrite=False)
ALICE = RequestContext(user_id="alice", auth_token="alice:demo", overwrite=False)


class Glance:
    """Simulated Glance. ``conductor.images`` are its rows.

    ``failures``: WSGI applications that answer the next downloads, one each. ``requests``: method, path and token.
    """

    def __init__(self, path: Path) -> None:
        self.store = path / "store"
        self.store.mkdir(parents=True)
        conf = make_conf(path, f"enabled_apis = image\n[image]\nstore_path = {self.store}\n")
        self.conductor = FakeConductor()
        self.conductor.images = {}
        api = API()
        api.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        self._app = deploy.load_app("image", wsgi.ApiServices(conf, Policy(conf), api))
        self.failures: list[Callable[[dict[str, Any], Any], Any]] = []
        self.requests: list[tuple[str, str, str]] = []
        sock = sockets.listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self._server = server.make_server(sock, self._answer, 4, None)
        self._server.start()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        self.requests.append((environ["REQUEST_METHOD"], path, environ.get("HTTP_X_AUTH_TOKEN", "")))
        if path.endswith("/file") and self.failures:
            return self.failures.pop(0)(environ, start_response)
        return self._app(environ, start_response)

    def stop(self) -> None:
        self._server.stop(1)

    def add(self, image_id: str = ID, data: bytes = DATA, **values: Any) -> Image:
        """Add an image with its file. Return it as a compute host receives it."""
        (self.store / image_id).write_bytes(data)
        fields = {"name": "cirros", "disk_format": "raw", "owner": "demo", "created_at": NOW, "updated_at": NOW}
        checksum = hashlib.sha256(data).hexdigest()
        image = Image(id=image_id, size=len(data), checksum=checksum, **{**fields, **values})
        self.conductor.images[image_id] = image
        return image


@pytest.fixture
def glance(tmp_path: Path) -> Iterator[Glance]:
    made = Glance(tmp_path / "glance")
    yield made
    made.stop()


def glance_options(url: str) -> str:
    """Return the configuration of ``[glance]``. ``admin_token`` needs no Keystone."""
    return f"""
[image]
backend = glance
[glance]
auth_type = admin_token
endpoint = {url}
token = admin:service
num_retries = 2
connect_retries = 0
timeout = 5
"""


@pytest.fixture
def conf(tmp_path: Path, glance: Glance) -> cfg.ConfigOpts:
    return make_conf(tmp_path, glance_options(glance.url))


@pytest.fixture
def backend(conf: cfg.ConfigOpts) -> GlanceImages:
    return GlanceImages(conf, FakeConductor(), ClientTiming(glance_retry_pause=0.01))  # type: ignore[arg-type]
