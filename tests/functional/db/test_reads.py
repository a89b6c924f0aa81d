"""Frequent queries about one host or a few servers read their rows only, not those of all servers.

The database counts the rows. SQLite counts none, so tests/unit/db/core/test_plans.py examines its plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import actions, models, quota_counts
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import balance, hosts
from nova_lite.db.network import builtin_networks, security_groups, spanning
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import due
from nova_lite.network import factory
from nova_lite.objects import InstanceFilters
from tests.support import make
from tests.support.waiting import wait_for_none

HOSTS = 40
ON_EACH = 50

#: Former servers of the queried host and its project.
ENDED = 1500

#: Rows that may be read for a host of 25 servers, of 3,500 that there are or were.
MOST = 900
#: Limit for two queries in one batch. Of each port they look up network, router, floating address, QoS and forwardings.
MOST_OF_TWO = 1950
#: Limit for the servers of two hosts, and some rows of each host.
MOST_OF_BALANCE = 1000

HOST = "h7"


def some(uow: UnitOfWork) -> list[str]:
    """Two servers of the host."""
    query = sa.select(models.Instance.uuid).where(models.Instance.host == HOST, models.Instance.deleted.is_(False))
    return list(uow.session.scalars(query.limit(2)))


def both(uow: UnitOfWork) -> list[security_groups.FilterQuery]:
    hosts = (HOST, "h8")
    return [security_groups.FilterQuery(host, instances.concerned_with(uow, host)) for host in hosts]


def listed(uow: UnitOfWork, **filters: Any) -> int:
    """Count servers of all projects by a value that none has."""
    return len(instances.list_(uow, make.ADMIN, InstanceFilters(**filters), limit=10))


QUESTIONS: dict[str, Callable[[UnitOfWork], object]] = {
    "what concerns a host": lambda uow: instances.concerned_with(uow, HOST),
    "what is settled on a host": lambda uow: instances.settled_on(uow, [HOST]),
    "what has a domain on a host": lambda uow: instances.with_domain(uow, HOST),
    "a host has restarted": lambda uow: actions.make_due(uow, HOST),
    "a host's filters": lambda uow: security_groups.filters(uow, HOST, instances.concerned_with(uow, HOST)),
    "two hosts' filters": lambda uow: security_groups.filters_together(uow, both(uow)),
    "hosts that have a project's servers": lambda uow: security_groups.hosts(uow, ["p7"], []),
    "hosts that have servers of a server's project": lambda uow: security_groups.hosts(uow, [], some(uow)),
    "hosts on a project's networks": lambda uow: spanning.hosts(uow, ["p7"], []),
    "hosts on a server's networks": lambda uow: spanning.hosts(uow, [], some(uow)),
    "a page of a project's servers": lambda uow: instances.list_(
        uow, make.context("p7"), InstanceFilters(project_id="p7"), limit=10
    ),
    "how many servers a project has": lambda uow: quota_counts.of_user(uow, "p7", "u1", ["instances"]),
    "what a sweep has to do": lambda uow: due.due_work(uow, uow.conf),
    "versions of hosts": lambda uow: hosts.page_of_versions(uow),
    "pressure of hosts, and servers of two": lambda uow: balance.read_cloud(uow, uow.conf, {"h8"}),
    "a server": lambda uow: instances.get(uow, make.ADMIN, some(uow)[0]),
}

#: Lists of all projects. A generic plan of PostgreSQL does not know how rare a value is.
LISTS: dict[str, Callable[[UnitOfWork], object]] = {
    "servers of a user": lambda uow: listed(uow, user_id="nobody"),
    "servers of a flavor": lambda uow: listed(uow, flavorid="none"),
    "servers with a key": lambda uow: listed(uow, key_name="none"),
    "servers of a zone": lambda uow: listed(uow, availability_zone="nowhere"),
    "servers with a task": lambda uow: listed(uow, task_states=["spawning"]),
    "servers by name": lambda uow: instances.list_(uow, make.ADMIN, InstanceFilters(), 10, None, ["display_name"]),
}


def fill(uow: UnitOfWork) -> None:
    """Create servers on each host, in its own project and network; half of them are deleted."""
    for number in range(HOSTS):
        host = f"h{number}"
        hosts.register_host(uow, uow.conf, make.report(host, inventories=[make.inventory(host)]))
        node = uow.session.scalars(sa.select(models.ComputeNode.id).where(models.ComputeNode.host == host)).one()
        network = builtin_networks.create(
            uow, factory.new_network(f"net{number}", f"10.{number}.0.0/16", vni=100 + number, bridge=f"br{number}")
        )
        capacity = {"cpu": 4.0, "memory": 1024.0}
        load = {"seconds": 600.0, "capacity": capacity, "other": capacity if host == HOST else {}}
        uow.session.add(models.HostLoad(host=host, reported_at=uow.now, hot=host == HOST, load=load))
        for item in range(ON_EACH):
            project = f"p{number}"
            gone = item % 2 == 1
            uuid = make.instance(uow, host=host, project_id=project, deleted=gone, security_groups=["default"])
            make.action(uow, uuid, host=host, finish_time=uow.now)
            if gone:
                continue
            place = {"vcpus": 1, "memory_mb": 1, "disk_gb": 1, "created_at": uow.now}
            uow.session.add(models.Allocation(instance_uuid=uuid, compute_node_id=node, generation=1, **place))
            address = f"10.{number}.0.{item + 2}"
            mac = f"fa:16:3e:00:{number:02x}:{item:02x}"
            port = {"network_id": network.id, "mac_address": mac, "address": address, "created_at": uow.now}
            uow.session.add(models.Port(id=f"{number:018x}{item:018x}", instance_uuid=uuid, **port))
    for _ in range(ENDED):
        make.instance(uow, host=HOST, project_id="p7", deleted=True, vm_state="deleted")


@pytest.fixture
def full(db: Database) -> Database:
    if db.is_sqlite:
        pytest.skip("SQLite does not count the rows that it reads")
    db.write(fill)
    return db


def analyse(db: Database) -> None:
    tables = ("instances", "ports", "allocations", "instance_actions", "compute_nodes", "networks", "services")
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in tables:  # PostgreSQL vacuums automatically at some time; then index-only scans begin
            connection.exec_driver_sql(f"{'ANALYZE TABLE' if is_mariadb(db) else 'VACUUM ANALYZE'} {name}")


def is_mariadb(db: Database) -> bool:
    return db.engine.dialect.name in ("mysql", "mariadb")


def is_postgresql(uow: UnitOfWork) -> bool:
    return uow.session.get_bind().dialect.name == "postgresql"


def rows_read(uow: UnitOfWork) -> int:
    """Return the rows read by this connection; on PostgreSQL, in this transaction."""
    if is_postgresql(uow):  # of tables and of indexes: an index-only scan reads no row of a table
        query = "SELECT SUM(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class WHERE relkind IN ('r', 'i')"
        return int(uow.session.scalar(sa.text(query + " AND relnamespace = 'public'::regnamespace")))
    found = uow.session.execute(sa.text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
    return sum(int(value) for _, value in found)


def asked(uow: UnitOfWork, question: Callable[[UnitOfWork], object]) -> int:
    """Return the number of rows that it reads."""
    if is_postgresql(uow):  # a table of this size it would rather scan than look into an index for each row
        for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"):
            uow.session.execute(sa.text(f"SET LOCAL enable_{way} = off"))
        # A frequent statement gets a generic plan, without regard to its values.
        uow.session.execute(sa.text("SET LOCAL plan_cache_mode = force_generic_plan"))
    before = rows_read(uow)
    assert question(uow) != []
    return rows_read(uow) - before


def test_no_question_of_a_host_reads_all_servers(full: Database) -> None:
    """MariaDB counts what was filled in behind its own back, and plans by that a little later."""

    def too_many() -> dict[str, int]:
        analyse(full)
        questions = QUESTIONS | (LISTS if is_mariadb(full) else {})
        found = {name: full.write(asked, question) for name, question in questions.items()}
        limits = {"two hosts' filters": MOST_OF_TWO, "pressure of hosts, and servers of two": MOST_OF_BALANCE}
        return {name: count for name, count in found.items() if count > limits.get(name, MOST)}

    wait_for_none("questions that read too many rows", too_many, timeout=30)
    assert full.read(asked, lambda uow: uow.session.scalars(sa.select(models.Instance.id)).all()) > MOST
