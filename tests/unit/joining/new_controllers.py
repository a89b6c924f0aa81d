"""Machines that want to become controllers, and the first controller that they ask."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nova_lite.base import join_requests, sealing
from nova_lite.base.host_certificates import CONTROLLER_CERTIFICATES
from nova_lite.base.join_requests import CONTROLLER_ROLES, ControllerBody, JoinBody, confirmation_code
from nova_lite.cmd.setup import cluster
from nova_lite.objects import Controller, JoinRequest, JoinState
from nova_lite.rpc import controllers
from tests.support.join_site import Site
from tests.support.joining import NewHost

FIRST = Controller(host="ha1", address="192.0.2.10")
SECRETS = cluster.Secrets(
    address="192.0.2.10",
    virtual_address="192.0.2.1",
    has_database=True,
    cookie="COOKIE",
    files={"conductor.conf": "[database]\nconnection = mysql://secret\n"},
    members=[FIRST],
)


class ThisMachine:
    """The first controller's machine. ``applied``: how often its files were brought up to date."""

    def __init__(self) -> None:
        self.applied = 0

    def secrets(self, directory: str) -> cluster.Secrets:
        return msgspec.structs.replace(SECRETS, members=controllers.members(directory))

    def front_end_settings(self, directory: str, role: str) -> cluster.FrontEndSettings:
        files = {"nova-lite.conf": "[DEFAULT]\nhost = ha1\nmy_ip = 192.0.2.10\n"}
        return cluster.FrontEndSettings(
            address=SECRETS.address,
            virtual_address=SECRETS.virtual_address,
            files=files,
            members=controllers.members(directory),
        )

    def apply(self, directory: str) -> list[str]:
        self.applied += 1
        return []


class NewController(NewHost):
    """A machine that wants to become a controller."""

    def __init__(self, name: str = "h2") -> None:
        super().__init__(name)
        self.keys = {role: Ed25519PrivateKey.generate() for role in CONTROLLER_ROLES}
        self.key = self.keys["manage"]
        self.seal_key = sealing.new_private_key()
        self.body = JoinBody(
            host=name,
            addresses=self.body.addresses,
            key=join_requests.public_key(self.key),
            password_hash="",
            host_key="",
            console_key="",
            version="1",
            sent=time.time(),
            controller=ControllerBody(
                message_keys={role: join_requests.public_key(key) for role, key in self.keys.items()},
                certificate_keys=dict.fromkeys(CONTROLLER_CERTIFICATES, self.body.host_key),
                seal_key=sealing.public_key(self.seal_key),
            ),
        )

    def changed(self, **changes: Any) -> JoinBody:
        assert self.body.controller is not None
        return msgspec.structs.replace(self.body, controller=msgspec.structs.replace(self.body.controller, **changes))


def confirm(site: Site, body: JoinBody) -> None:
    controllers.confirm(str(site.directory / "hosts"), body.host, confirmation_code(body))


def ask(site: Site, request: JoinRequest) -> JoinState:
    site.client.join(request)
    site.registrar.tick()
    return site.client.join(request)
