"""A cloud that hosts can join: a join API with TLS, a conductor over a database, an authority, and a registrar."""

from __future__ import annotations

import types
from pathlib import Path

from oslo_config import cfg

from nova_lite.api.join.app import JoinApp
from nova_lite.base import host_certificates
from nova_lite.base.host_certificates import Authority
from nova_lite.base.join_requests import JoinToken
from nova_lite.cmd.manage.keys import provide_key
from nova_lite.cmd.registrar import Registrar
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import joins
from nova_lite.rpc import keys
from nova_lite.rpc.trust import JoinClient
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.http_site import HttpSite


class Accounts:
    """Accounts at a broker. ``problem``: what each call fails with."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.removed_controllers: list[str] = []
        self.problem: Exception | None = None

    def add_host(self, vhost: str, host: str, password_hash: str, role: str = keys.COMPUTE) -> None:
        if self.problem is not None:
            raise self.problem
        self.hashes[host if role == keys.COMPUTE else f"{role} {host}"] = password_hash

    def remove_host(self, host: str, role: str = keys.COMPUTE) -> None:
        if self.problem is not None:
            raise self.problem
        self.hashes.pop(host if role == keys.COMPUTE else f"{role} {host}", None)

    def remove_controller(self, host: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.removed_controllers.append(host)


class Site:
    """The cloud. ``now``: seconds of the clock of registrar and API."""

    def __init__(self, conf: cfg.ConfigOpts, db: Database, conductor: ConductorRPC, directory: Path) -> None:
        self.db, self.now = db, 0.0
        self.directory = directory / "keys"
        provide_key(str(self.directory), keys.CONDUCTOR, "controller", "root")
        self.authority = Authority(str(self.directory / "hosts"))
        self.authority.create()
        tls = directory / "tls"
        self.authority.issue_service("controller", ["127.0.0.1"], str(tls), 10)
        self.pem = (tls / "ca-cert.pem").read_text()
        conf.set_override("keys_directory", str(self.directory), "rpc")
        conf.set_override("my_ip", "127.0.0.1")
        conf.set_override("broker_address", "192.0.2.10:5671", "join")
        conf.set_override("transport_url", "rabbit://u:p@127.0.0.1/cloud")
        self.accounts = Accounts()
        self.registrar = Registrar(conf, conductor, self.accounts, lambda: self.now)
        services = types.SimpleNamespace(conf=conf, conductor=conductor)
        self.app = JoinApp(services, lambda: self.now)  # type: ignore[arg-type]
        self._site = HttpSite(self.app, tls=(str(tls / "server-cert.pem"), str(tls / "server-key.pem")))
        self.address = f"127.0.0.1:{self._site.address[1]}"
        self.client = JoinClient(self.address, self.pem)

    def token(self) -> JoinToken:
        made = JoinToken.generate(self.address, host_certificates.fingerprint(self.pem))
        self.db.write(lambda uow: joins.create_token(uow, made.public_key, 3600))
        return made

    def trusted(self) -> set[tuple[str, str]]:
        path = self.directory / keys.TRUSTED
        return {(entry.role, entry.host) for entry in keys.read_trusted(str(path))}

    def stop(self) -> None:
        self._site.stop()
