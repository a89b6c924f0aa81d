"""The metadata service with its complete pipeline, over a fake control plane."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import webob

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.http.server import NETWORK as NETWORK_KEY
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.objects import VIF, Instance
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_conf
from tests.support.control_plane import NETWORK, NETWORK_ID, FakeCompute, FakeConductor, make_instance

ADDRESS = "10.0.0.5"
KEY = "ssh-ed25519 AAAA alice"
SECRET = "the agent's"
PROXY = f"[neutron]\nservice_metadata_proxy = true\nmetadata_proxy_shared_secret = {SECRET}\n"


class Service:
    """The application with its complete pipeline, and a server at `ADDRESS` of `NETWORK_ID`."""

    def __init__(self, path: Path, text: str = "") -> None:
        conf = make_conf(path, text)
        self.conductor = FakeConductor()
        compute = API()
        compute.connect(self.conductor, FakeCompute(), load_backend(conf, self.conductor))  # type: ignore[arg-type]
        self.app = deploy.load_app("metadata", wsgi.ApiServices(conf, Policy(conf), compute))
        self.instance = self.add(key_name="mine", key_data=KEY, user_data=base64.b64encode(b"#!/bin/sh\n").decode())

    def add(self, address: str = ADDRESS, network_id: str = NETWORK_ID, **changes: Any) -> Instance:
        network = msgspec.structs.replace(NETWORK, id=network_id)
        vif = VIF(id="v", mac_address="fa:16:3e:00:00:01", address=address, network=network)
        instance = make_instance(vifs=[vif], **changes)
        self.conductor.instances[instance.uuid] = instance
        return instance

    def __call__(
        self,
        path: str,
        method: str = "GET",
        address: str = ADDRESS,
        body: bytes | None = None,
        network_id: str | None = NETWORK_ID,
        **headers: str,
    ) -> webob.Response:
        """Send a request from an address of a network; None: from elsewhere."""
        request = webob.Request.blank(path, method=method)
        request.environ["REMOTE_ADDR"] = address
        if network_id is not None:
            request.environ[NETWORK_KEY] = network_id
        request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        if body is not None:
            request.body = body
        return request.get_response(self.app)

    def text(self, path: str, status: int = 200, **options: Any) -> str:
        response = self(path, **options)
        assert (response.status_code, response.content_type) == (status, "text/plain"), response.text
        text: str = response.text
        return text

    def json(self, path: str) -> Any:
        response = self(path)
        assert (response.status_code, response.content_type) == (200, "application/json"), response.text
        return json.loads(response.body)

    def calls(self, name: str) -> int:
        return sum(method == name for method, _ in self.conductor.calls)


def signed(instance_uuid: str, project_id: str = "demo", secret: str = SECRET) -> dict[str, str]:
    signature = hmac.new(secret.encode(), instance_uuid.encode(), hashlib.sha256).hexdigest()
    return {"X_Instance_ID": instance_uuid, "X_Tenant_ID": project_id, "X_Instance_ID_Signature": signature}
