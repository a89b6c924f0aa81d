"""A console from the API's call to its bytes.

Conductor, host and proxy are real. Hypervisor and message bus are fakes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.compute.api import API
from nova_lite.console.opening import Opener
from nova_lite.console.server import ProxyServer
from nova_lite.daemon.sockets import listen
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance, Service
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import consoles, make
from tests.support.compute_host import UUID, Host
from tests.support.consoles import GREETING, EchoConsole, read
from tests.support.database import bus, conductor, conf, db, empty_database, manager  # noqa: F401 fixtures

HOST = "host-a"


class Way(NamedTuple):
    api: API
    host: Host
    db: Database
    port: int

    def url(self, protocol: str = "vnc", console_type: str = "novnc") -> str:
        return self.api.get_console_url(make.context(), UUID, protocol, console_type)

    def path(self) -> str:
        return "/?token=" + self.url().rpartition("%3D")[2]

    def status(self, path: str) -> int:
        return consoles.status(self.port, path)

    def change(self, **values: Any) -> None:
        def write(uow: UnitOfWork) -> None:
            uow.change(sa.update(Instance).where(Instance.uuid == UUID).values(**values))

        self.db.write(write)


@pytest.fixture
def way(
    bus: rpc.InProcess,  # noqa: F811
    conductor: ConductorRPC,  # noqa: F811
    db: Database,  # noqa: F811
    conf: cfg.ConfigOpts,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Way]:
    console = EchoConsole()
    host = Host(tmp_path)
    host.built()
    host.control(console_ports={"novnc": console.port})
    bus.serve(rpc.Endpoint(ComputeRPC, host.manager, commands=host.manager.commands), HOST)

    def fill(uow: UnitOfWork) -> None:
        make.instance(uow, uuid=UUID, host=HOST, generation=1)
        values = {"uuid": "s", "host": HOST, "binary": "nova-compute", "topic": "compute"}
        uow.session.add(Service(**values, created_at=uow.now))

    db.write(fill)
    compute = rpc.proxy(ComputeRPC, bus)
    api = API()
    api.connect(conductor, compute, None)  # type: ignore[arg-type]
    sock = listen("127.0.0.1", 0)
    server = ProxyServer(sock, Opener(conductor, compute, ("novnc",), ()), None, None, 30, 10, 10)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield Way(api, host, db, sock.getsockname()[1])
    server.stop()
    console.sock.close()


def test_console_url_opens_once(way: Way) -> None:
    path = way.path()
    client = consoles.connect(socket.create_connection(("127.0.0.1", way.port), 30), path)
    assert read(client, len(GREETING)) == GREETING
    client.send(b"typed")
    assert read(client, 5) == b"typed"
    assert way.status(path) == 401
    client.close()


def test_console_invented_token_is_refused(way: Way) -> None:
    assert way.status("/?token=guessed") == 401


@pytest.mark.parametrize("values", [{"generation": 2}, {"deleted": True}, {"host": "host-b"}], ids=str)
def test_console_token_of_a_changed_server_is_refused(way: Way, values: dict[str, Any]) -> None:
    path = way.path()
    way.change(**values)
    assert way.status(path) == 401


def test_console_of_a_guest_that_ended_is_refused(way: Way) -> None:
    path = way.path()
    way.host.driver.power.off(UUID, 0)
    assert way.status(path) == 401
    with pytest.raises(exceptions.InstanceInvalidState, match="power state shutdown"):
        way.url()


def test_console_of_a_guest_with_another_port_is_refused(way: Way) -> None:
    path = way.path()
    way.host.control(console_ports={"novnc": 1})
    assert way.status(path) == 401


def test_console_of_an_unknown_or_unsupported_type_has_its_own_error(way: Way) -> None:
    for protocol, console_type in (("serial", "serial"), ("spice", "spice-html5")):
        with pytest.raises(exceptions.ConsoleTypeUnavailable):
            way.url(protocol, console_type)
    with pytest.raises(exceptions.ConsoleTypeInvalid):
        way.url("vnc", "serial")
    with pytest.raises(exceptions.InstanceNotFound):
        way.api.get_console_url(make.context(project="p2"), UUID, "vnc", "novnc")
    way.host.driver.guests.destroy(UUID)
    with pytest.raises(exceptions.InstanceNotReady):
        way.url()
