"""Requests to the volume API over a real conductor."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import webob

from nova_lite.api.http import deploy
from nova_lite.db.core import models
from tests.support.api_client import MEMBER, make_conf
from tests.support.in_process_api import make_services

NOBODY = str(uuid.UUID(int=1))


class Volumes:
    """Requests with noauth2. `done` simulates hosts that finish all work on files."""

    def __init__(self, path: Path) -> None:
        conf = make_conf(
            path, f"enabled_apis = volume, osapi_compute\n[database]\nconnection = sqlite:///{path}/db.sqlite\n"
        )
        self.manager, self.services = make_services(conf, path)
        self.app = deploy.load_app("volume", self.services)

    def __call__(
        self, method: str, path: str, body: Any = None, token: str | None = MEMBER, version: str | None = None
    ) -> webob.Response:
        request = webob.Request.blank(f"/v3{path}", method=method, base_url="http://cloud:8776")
        if token:
            request.headers["X-Auth-Token"] = token
        if version:
            request.headers["OpenStack-API-Version"] = f"volume {version}"
        if body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(self.app)

    def create(self, **values: Any) -> dict[str, Any]:
        response = self("POST", "/volumes", {"volume": {"size": 1, **values}})
        assert response.status_code == 202, response.text
        made: dict[str, Any] = response.json["volume"]
        return made

    def make(self, **values: Any) -> str:
        made = self.create(**values)["id"]
        self.done()
        return str(made)

    @contextlib.contextmanager
    def after_the_next_read(self, work: Callable[[], None]) -> Iterator[None]:
        """Do something right after the API's next read of a volume or snapshot, as another client may."""
        compute = self.services.compute
        conductor, left = compute.conductor, [work]

        class Spy:
            def __getattr__(self, name: str) -> Any:
                method = getattr(conductor, name)
                if name not in ("volume_get", "snapshot_get"):
                    return method

                def read(*args: Any) -> Any:
                    found = method(*args)
                    if left:
                        left.pop()()
                    return found

                return read

        compute.conductor = Spy()  # type: ignore[assignment]
        try:
            yield
        finally:
            compute.conductor = conductor
        assert not left

    def done(self) -> None:
        """Finish all open work, as hosts would."""

        def end(uow: Any) -> None:
            for task in uow.session.scalars(sa.select(models.VolumeTask)):
                self.manager.reconciler.volumes._end(uow, task, None)

        self.manager.db.write(end)
