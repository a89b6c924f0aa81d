"""A cloud whose compute hosts are simulated (`tests.functional.fleet`), as many as it takes, and as many rows."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kombu
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.upkeep.due import due_work
from tests.functional import cloud
from tests.support.ports import free_port
from tests.support.waiting import wait_for

CONFIG = """
[DEFAULT]
report_interval = {beat}
service_down_time = {down}
[upgrade_levels]
compute = 2.0
[metrics]
enabled = true
conductor_port = {conductor}
scheduler_port = {scheduler}
api_port = {api}
[quota]
instances = -1
cores = -1
ram = -1
[network]
fixed_ips_per_project = -1
"""
#: Name of the key that a process of many hosts has for itself.
OWN = "simulator"
FILLED = "filled"
#: Connections for sending of a process of many hosts.
CONNECTIONS = 200


class Simulated(cloud.Cloud):
    """``hosts``: how many; ``beat``, ``compare``, ``filters``: seconds between a host's heartbeats, comparisons of
    domains, and queries for filter rules.

    The hosts answer no calls, so nothing is sent to them that they would be asked about first (``[upgrade_levels]``).
    """

    def __init__(
        self,
        path: Path,
        hosts: int,
        database: str | None = None,
        processes: int = 2,
        beat: float = 10.0,
        compare: float = 30.0,
        filters: float = 60.0,
        build_seconds: float = 0.0,
        conductors: int = 1,
    ) -> None:
        self.hosts = [f"sim-{number:05d}" for number in range(1, hosts + 1)]
        self.settings = {"beat": beat, "compare": compare, "filters": filters, "build_seconds": build_seconds}
        further = [f"conductor-{number}" for number in range(2, conductors + 1)]
        self.ports = {name: free_port() for name in (*cloud.DAEMONS, *further)}
        config = CONFIG.format(beat=max(1, int(beat)), down=max(3, int(beat * 3)), **self.ports)
        more = {"action_deadline": 900, "extra_config": config, "patient": True, "more": further}
        super().__init__(path, database=database, computes=0, **more)  # type: ignore[arg-type]
        self.parts = [self.hosts[number::processes] for number in range(processes)]
        self.fleets: list[subprocess.Popen[str]] = []
        self._engine: sa.Engine | None = None

    def _peers(self) -> list[tuple[str, str]]:
        return [*super()._peers(), *(("compute", name) for name in (OWN, *self.hosts))]

    def host_of(self, name: str) -> str:
        return OWN if name == OWN else super().host_of(name)

    def _write_config(self, name: str) -> None:
        super()._write_config(name)
        if name == OWN:  # its hosts share connections
            with (self.path / f"{name}.conf").open("a") as file:
                file.write(f"[oslo_messaging_rabbit]\nrpc_conn_pool_size = {CONNECTIONS}\n")
        if name in self.more:
            with (self.path / f"{name}.conf").open("a") as file:
                file.write(f"[metrics]\nconductor_port = {self.ports[name]}\n")

    @property
    def engine(self) -> sa.Engine:
        self._engine = self._engine or sa.create_engine(self.database)
        return self._engine

    def start_hosts(self) -> None:
        """Start the hosts with the domains of the rows, and wait until all have registered."""
        self._write_config(OWN)
        domains: dict[str, list[tuple[str, int]]] = defaultdict(list)
        with self.engine.connect() as connection:
            row = models.Instance
            query = sa.select(row.host, row.uuid, row.generation).where(row.host.is_not(None), ~row.deleted)
            for host, server, generation in connection.execute(query):
                domains[host].append((server, generation))
        command = [sys.executable, "-W", "ignore", "-m", "tests.functional.fleet", str(self.path / f"{OWN}.conf")]
        log = (self.path / "fleet.log").open("ab")
        with log:
            for _ in self.parts:
                self.fleets.append(
                    subprocess.Popen(
                        [*command, json.dumps(self.settings)],
                        cwd=cloud.ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        bufsize=1,
                    )
                )
        for fleet, names in zip(self.fleets, self.parts, strict=True):
            assert fleet.stdin is not None
            fleet.stdin.write(json.dumps({"start": {name: domains[name] for name in names}}) + "\n")
        for fleet in self.fleets:
            self._answer(fleet)

    def tell(self, what: str, names: Iterable[str]) -> None:
        """Send ``die`` or ``back`` to the hosts."""
        for fleet, own in zip(self.fleets, self.parts, strict=True):
            assert fleet.stdin is not None
            if concerned := [name for name in names if name in own]:
                fleet.stdin.write(json.dumps({what: concerned}) + "\n")
                self._answer(fleet)

    def counts(self) -> dict[str, int]:
        """Return counts of the hosts' work and failures."""
        found: dict[str, int] = defaultdict(int)
        for fleet in self.fleets:
            assert fleet.stdin is not None
            fleet.stdin.write("{}\n")
            for name, count in self._answer(fleet).items():
                found[name] += count
        return dict(found)

    def _answer(self, fleet: subprocess.Popen[str]) -> dict[str, int]:
        assert fleet.stdout is not None
        line = fleet.stdout.readline()
        assert line, f"a process of simulated hosts has ended: {(self.path / 'fleet.log').read_text()[-2000:]}"
        answer: dict[str, int] = json.loads(line)
        return answer

    def destroy(self) -> None:
        for fleet in self.fleets:
            fleet.kill()
            fleet.wait(30)
        if self._engine is not None:
            self._engine.dispose()
        super().destroy()

    # --- rows

    def fill(self, rows: int) -> None:
        """Add so many rows of servers, half of them deleted, the others ACTIVE and spread over the hosts. They are
        copies of the only existing server, without addresses. MariaDB only.
        """
        assert self.database.startswith("mysql"), "rows are made by MariaDB's own sequences"
        with self.engine.begin() as connection:
            (template,) = connection.exec_driver_sql("SELECT id, uuid FROM instances").all()
            host = f"CONCAT('sim-', LPAD(1 + (seq DIV 2) MOD {len(self.hosts)}, 5, '0'))"
            alive = {
                "uuid": "UUID()",
                "project_id": f"'{FILLED}'",
                "display_name": f"CONCAT('{FILLED}-', seq)",
                "reservation_id": "CONCAT('r-', seq)",
                "host": host,
                "node": host,
                "vm_state": "IF(seq MOD 2, 'deleted', 'active')",
                "deleted": "seq MOD 2",
                "generation": "1",
                "last_generation": "1",
                "task_state": "NULL",
                "power_state": "IF(seq MOD 2, 0, 1)",
                "created_at": "t.created_at - INTERVAL seq SECOND",
            }
            self._copy(connection, models.Instance, alive, f"t.id = {template[0]}", rows)
            connection.exec_driver_sql(
                "INSERT INTO instance_actions (action, instance_uuid, request_id, payload, generation, step, attempts, "
                "lease_expires_at, deadline, start_time, updated_at, finish_time, events) "
                "SELECT a.action, i.uuid, CONCAT('req-', i.uuid), a.payload, 1, a.step, 0, a.lease_expires_at, "
                "a.deadline, a.start_time, a.updated_at, a.finish_time, a.events FROM instances i "
                f"JOIN instance_actions a ON a.instance_uuid = '{template[1]}' AND a.action = 'create' "
                f"WHERE i.project_id = '{FILLED}'"
            )

    def template_failed(self) -> bool:
        with self.engine.connect() as connection:
            return connection.exec_driver_sql("SELECT vm_state FROM instances").scalar() == "error"

    def claim_filled(self) -> None:
        """Add the rows' claims, once their hosts have registered."""
        amounts = ("vcpus", "memory_mb", "disk_gb")
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO allocations (instance_uuid, compute_node_id, generation, {', '.join(amounts)}, "
                "created_at) "
                f"SELECT i.uuid, n.id, 1, {', '.join(f'i.{name}' for name in amounts)}, i.created_at FROM instances i "
                f"JOIN compute_nodes n ON n.host = i.host WHERE i.project_id = '{FILLED}' AND NOT i.deleted"
            )
            sums = ", ".join(
                f"{name}_used = (SELECT COALESCE(SUM(a.{name}), 0) FROM allocations a WHERE a.compute_node_id = n.id)"
                for name in amounts
            )
            connection.exec_driver_sql(f"UPDATE compute_nodes n SET {sums}, generation = generation + 1")
            connection.exec_driver_sql(
                f"INSERT INTO quota_usages (project_id, resource, used) SELECT '{FILLED}', r.name, CASE r.name WHEN "
                "'instances' THEN COUNT(*) WHEN 'cores' THEN SUM(i.vcpus) ELSE SUM(i.memory_mb) END FROM instances i, "
                "(SELECT 'instances' AS name UNION SELECT 'cores' UNION SELECT 'ram') r "
                f"WHERE i.project_id = '{FILLED}' AND NOT i.deleted GROUP BY r.name"
            )

    @staticmethod
    def _copy(connection: sa.Connection, model: Any, changed: dict[str, str], which: str, rows: int) -> None:
        columns = [column.name for column in model.__table__.columns if column.name != "id"]
        values = ", ".join(changed.get(name, f"t.{name}") for name in columns)
        connection.exec_driver_sql(
            f"INSERT INTO {model.__tablename__} ({', '.join(columns)}) "
            f"SELECT {values} FROM {model.__tablename__} t JOIN seq_1_to_{rows} WHERE {which}"
        )

    # --- measures

    def depths(self) -> dict[str, int]:
        """Return the number of waiting messages by queue."""
        url = f"amqp://guest:guest@127.0.0.1:{self.broker_port}/{self.vhost}"
        names = ["conductor", "conductor.controller", "scheduler", "scheduler.controller"]
        names += [f"compute.{name}" for name in self.hosts]
        with kombu.Connection(url) as connection:
            channel = connection.default_channel
            return {name: channel.queue_declare(name, passive=True).message_count for name in names}

    def metrics(self, daemon: str) -> dict[str, float]:
        """Return metrics of one daemon, or of all of its kind, summed over labels. A metric that all daemons report
        alike counts once.
        """
        found: dict[str, float] = defaultdict(float)
        for name in (name for name in self.ports if cloud.daemon_of(name) == daemon):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            for said, value in re.findall(r"^([a-z_]+)(?:\{[^}]*\})? ([-0-9.e+]+)$", text, re.MULTILINE):
                if name == daemon or not said.startswith("nova_lite_action"):
                    found[said] += float(value)
        return dict(found)

    def statements(self) -> int:
        """Return the number of statements that the database has executed (MariaDB)."""
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Questions'").one()[1])

    def rows_of_a_look(self) -> int:
        """Return the rows that the first statement of a sweep reads, the only one of an idle sweep (MariaDB)."""
        with self.engine.connect() as connection:

            def read() -> int:
                counts = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
                return sum(int(value) for _, value in counts)

            before, conf = read(), _defaults()
            due_work(UnitOfWork(connection, conf), conf)
            return read() - before


@functools.cache
def _defaults() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    return conf


@contextlib.contextmanager
def running(path: Path, hosts: int, rows: int = 0, **options: Any) -> Iterator[Simulated]:
    """Run all hosts, filled with ``rows``, and remove everything at the end."""
    made = Simulated(path, hosts, **options)
    try:
        made.make()
        made.start_all()
        if rows:
            body = {"server": {"name": "template", "imageRef": made.image_id, "flavorRef": "1"}}
            answer = made.request("POST", "/servers", body)
            assert answer.status_code == 202, answer.text
            wait_for("the template is in ERROR: no host is there", made.template_failed)
            made.fill(rows)
        made.start_hosts()
        if rows:
            made.claim_filled()
        yield made
    finally:
        made.destroy()
