"""Requests to the volume API over a real conductor."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import webob

from nova_lite import rpc
from nova_lite.api.http import deploy, wsgi
from nova_lite.compute.api import API
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.manager import ConductorManager
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.db import models
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from nova_lite.scheduler.rpcapi import SchedulerRPC
from tests.support.api_client import MEMBER, make_conf
from tests.support.migrated import migrate

NOBODY = str(uuid.UUID(int=1))


class Volumes:
    """Requests with noauth2. `done` simulates hosts that finish all work on files."""

    def __init__(self, path: Path) -> None:
        conf = make_conf(
            path, f"enabled_apis = volume, osapi_compute\n[database]\nconnection = sqlite:///{path}/db.sqlite\n"
        )
        conf.set_override("state_path", str(path))
        migrate(conf)
        bus = rpc.InProcess(conf)
        conductor = rpc.proxy(ConductorRPC, bus)
        self.manager = ConductorManager(conf, rpc.proxy(SchedulerRPC, bus), rpc.proxy(ComputeRPC, bus), conductor)
        bus.serve(self.manager.endpoint)
        compute = API()
        compute.connect(conductor, rpc.proxy(ComputeRPC, bus), load_backend(conf, conductor))
        self.services = wsgi.ApiServices(conf, Policy(conf), compute)
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

    def done(self) -> None:
        """Finish all open work, as hosts would."""

        def end(uow: Any) -> None:
            for task in uow.session.scalars(sa.select(models.VolumeTask)):
                self.manager.reconciler.volumes._end(uow, task, None)

        self.manager.db.write(end)
