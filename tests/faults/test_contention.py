"""Two conductors and two schedulers with more servers than the hosts hold. Exactly the servers that fit are ACTIVE,
the others end with No valid host, and used = allocations = capacity.

`NOVA_LITE_LONG=1` requests 500 servers on hosts that hold 400, otherwise it is 50 on 40.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent import futures
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional import cloud
from tests.functional.conftest import database_url
from tests.support.waiting import wait_for

LONG = os.environ.get("NOVA_LITE_LONG") == "1"
MORE = ("conductor-2", "scheduler-2")
HOSTS = 4
PER_HOST, REQUESTS, PER_REQUEST = (100, 50, 10) if LONG else (10, 10, 5)
SETTLE_SECONDS = 600.0 if LONG else 120.0


def ask(running: cloud.Cloud, number: int) -> list[str]:
    return running.create(f"vm-{number}", count=PER_REQUEST)


def figures(url: str) -> dict[str, list[int]]:
    """vcpus used, allocated and in total, per host."""
    statement = (
        "SELECT n.host, n.vcpus_used, n.vcpus, (SELECT SUM(a.vcpus) FROM allocations a WHERE a.compute_node_id = n.id) "
        "FROM compute_nodes n"
    )
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return {row[0]: [int(value or 0) for value in row[1:]] for row in connection.exec_driver_sql(statement)}
    finally:
        engine.dispose()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_exactly_what_fits_becomes_active(tmp_path: Path, kind: str) -> None:
    with database_url(kind) as url:
        assert url is not None
        with cloud.running(
            tmp_path,
            database=url,
            more=MORE,
            computes=HOSTS,
            vcpus=PER_HOST,
            memory_mb=1048576,
            disk_gb=10000,
            quota=-1,
            action_deadline=600,
            extra_config="[DEFAULT]\ncpu_allocation_ratio = 1.0\n",
        ) as running:
            for name in MORE:
                wait_for(f"{name} is ready", lambda name=name: "is ready" in running.log(name, 1000))
            with futures.ThreadPoolExecutor(8) as pool:
                ids = [item for asked in pool.map(lambda n: ask(running, n), range(REQUESTS)) for item in asked]
            found = running.wait_settled(ids, SETTLE_SECONDS)

            capacity = HOSTS * PER_HOST
            states = Counter(server["status"] for server in found.values())
            assert states == {"ACTIVE": capacity, "ERROR": REQUESTS * PER_REQUEST - capacity}
            failed = [server for server in found.values() if server["status"] == "ERROR"]
            assert all("No valid host" in server["fault"]["message"] for server in failed), failed
            assert figures(url) == {host: [PER_HOST] * 3 for host in running.computes}
            assert Counter(running.domains().values()) == dict.fromkeys(running.computes, PER_HOST)
            running.audit()
