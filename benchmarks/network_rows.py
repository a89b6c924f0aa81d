"""Times the conductor's queries about networks, by the number of ports that a cloud has.

From a checkout, without a cloud, on SQLite, or on a database that may be emptied::

    PYTHONPATH=$PWD python benchmarks/network_rows.py --ports 1000,10000,100000
    PYTHONPATH=$PWD python benchmarks/network_rows.py --database postgresql+psycopg://USER:PASSWORD@127.0.0.1/NAME

A network has 100 ports, a router of its own, and the servers of a project on five hosts. Rows: ``what``, the number of
ports, and the median, least and greatest milliseconds of ``--runs``, without a transaction's commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.migrations import schema
from nova_lite.db.network import builtin_networks, ports, routers, security_groups, spanning
from nova_lite.db.servers import instances
from nova_lite.network import factory
from nova_lite.objects import Port
from tests.support import make

ON_NETWORK, ON_HOST = 100, 20


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


class Cloud:
    def __init__(self, url: str) -> None:
        self.conf = make.conf(url)
        schema.sync(self.conf)
        self.db = Database(self.conf)
        self.networks: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def grow(self, count: int) -> None:
        """Add networks until there are so many ports."""
        while len(self.networks) * ON_NETWORK < count:
            self.db.write(self._add)
        self.db.write(lambda uow: uow.session.execute(sa.text("ANALYZE")) if self.db.is_sqlite else None)

    def _add(self, uow: UnitOfWork) -> None:
        """Add a network with its router, hosts, servers and ports."""
        number = len(self.networks)
        network = builtin_networks.create(
            uow, factory.new_network(f"net{number}", "10.0.0.0/16", vni=100 + number, bridge=f"br{number}")
        )
        self.networks.append(network.id)
        uow.change(sa.update(models.Network).where(models.Network.id == network.id).values(project_id=f"p{number}"))
        router = models.Router(id=str(uuid.uuid4()), project_id=f"p{number}", created_at=uow.now, updated_at=uow.now)
        uow.session.add(router)
        gateway = self._port(uow, network.id, number, 1)
        uow.session.add(models.Port(**gateway))
        uow.session.flush()
        interface = models.RouterInterface(port_id=gateway["id"], router_id=router.id, network_id=network.id)
        uow.session.add(interface)
        servers, claims, made = [], [], []
        for place in range(ON_NETWORK):
            host = f"h{number * (ON_NETWORK // ON_HOST) + place // ON_HOST}"
            if place % ON_HOST == 0:
                inventory = make.inventory(host, vcpus=64, memory_mb=65536)
                hosts.register_host(uow, uow.conf, make.report(host, inventories=[inventory]))
                node = uow.session.scalars(
                    sa.select(models.ComputeNode.id).where(models.ComputeNode.host == host)
                ).one()
            server = str(uuid.uuid4())
            servers.append(self._server(uow, server, host, f"p{number}"))
            claim = {"instance_uuid": server, "compute_node_id": node, "generation": 1, "created_at": uow.now}
            claims.append(claim | {"vcpus": 1, "memory_mb": 1, "disk_gb": 1})
            made.append(self._port(uow, network.id, number, 2 + place) | {"instance_uuid": server})
        for model, values in ((models.Instance, servers), (models.Allocation, claims), (models.Port, made)):
            uow.session.execute(sa.insert(model), values)

    @staticmethod
    def _server(uow: UnitOfWork, server: str, host: str, project_id: str) -> dict[str, Any]:
        names = {"display_name": "vm", "hostname": "vm", "reservation_id": "r-1", "vm_state": "active"}
        owner = {"project_id": project_id, "user_id": "u1", "security_groups": ["default"]}
        flavor = {"flavorid": "1", "flavor": make.FLAVOR, "vcpus": 1, "memory_mb": 64, "disk_gb": 1}
        return {"uuid": server, "host": host, "created_at": uow.now, **names, **owner, **flavor}

    @staticmethod
    def _port(uow: UnitOfWork, network_id: str, number: int, place: int) -> dict[str, Any]:
        mac = f"fa:16:{number // 65536:02x}:{number // 256 % 256:02x}:{number % 256:02x}:{place:02x}"
        address = f"10.0.{place // 250}.{place % 250}"
        made = {"id": str(uuid.uuid4()), "network_id": network_id, "mac_address": mac, "address": address}
        return made | {"created_at": uow.now}

    def measure(self, runs: int) -> None:
        """Print a row for each query, about a network in the middle."""
        number = len(self.networks) // 2
        network_id, project, host = self.networks[number], f"p{number}", f"h{number * (ON_NETWORK // ON_HOST)}"
        owner = make.context(project)
        some = self.db.read(lambda uow: ports.list_(uow, owner, {}))[0].id
        new = Port(id=str(uuid.uuid4()), network_id=network_id, project_id=project)
        questions: dict[str, Callable[[UnitOfWork], object]] = {
            "filters of a host": lambda uow: security_groups.filters(
                uow, host, instances.concerned_with(uow, host), frozenset([project])
            ),
            "hosts of a project, whose group changes": lambda uow: security_groups.hosts(uow, [project], []),
            "hosts of a network": lambda uow: spanning.hosts(uow, [project], []),
            "list a project's ports": lambda uow: ports.list_(uow, owner, {}),
            "show a port": lambda uow: ports.get(uow, owner, some),
            "list a project's routers": lambda uow: routers.list_(uow, owner),
            "create a port": lambda uow: ports.create(uow, self.conf, owner, new),
        }
        for what, question in questions.items():
            self._row(what, [self._timed(question) for _ in range(runs + 1)][1:])

    def _timed(self, question: Callable[[UnitOfWork], object]) -> float:
        class Undone(Exception):
            pass

        took = 0.0

        def work(uow: UnitOfWork) -> None:
            nonlocal took
            started = time.perf_counter()
            question(uow)
            took = 1000 * (time.perf_counter() - started)
            raise Undone

        with contextlib.suppress(Undone):
            self.db.write(work)
        return took

    def _row(self, what: str, values: list[float]) -> None:
        count = len(self.networks) * ON_NETWORK
        row = {"what": what, "ports": count, "median": statistics.median(values)}
        self.rows.append(row | {"least": min(values), "greatest": max(values)})
        print(f"{what:42} {count:8} {row['median']:9.1f} {min(values):9.1f} {max(values):9.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", type=numbers, default=[1000, 10000, 100000], help="default: 1000,10000,100000")
    parser.add_argument("--database", help="SQLAlchemy's URL (default: SQLite in a temporary directory)")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rows", dir="/var/tmp") as directory:
        cloud = Cloud(arguments.database or f"sqlite:///{directory}/rows.sqlite")
        for count in arguments.ports:
            cloud.grow(count)
            cloud.measure(arguments.runs)
        cloud.db.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(cloud.rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
