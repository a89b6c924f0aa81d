"""Kill of one daemon during ten creates. After its restart all ten servers end ACTIVE, on one host each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud
from tests.functional.conftest import database_url
from tests.support.waiting import wait_for

COUNT = 10


@pytest.fixture
def slow_cloud(tmp_path: Path) -> Iterator[cloud.Cloud]:
    """Two hosts that need a second to spawn, so that a kill finds builds in every step. The fault matrix does the like
    on SQLite."""
    with database_url("mariadb") as url, cloud.running(tmp_path, database=url, computes=2) as running:
        for host in running.computes:
            running.control_host(host, spawn_delay=1.0)
        yield running


@pytest.mark.parametrize("victim", ["conductor", "scheduler", "compute-1", "api"])
def test_ten_creates_survive_the_kill_of(slow_cloud: cloud.Cloud, victim: str) -> None:
    ids = slow_cloud.create(count=COUNT)
    wait_for("builds are under way", lambda: any(item["status"] == "BUILD" for item in slow_cloud.servers()))
    slow_cloud.kill(victim)
    slow_cloud.start(victim)
    slow_cloud.wait_until_ready()
    servers = slow_cloud.wait_active(ids, timeout=90)
    domains = slow_cloud.domains()
    assert domains == {key: item["OS-EXT-SRV-ATTR:host"] for key, item in servers.items()}
    slow_cloud.delete_all()
    wait_for("nothing is left", lambda: slow_cloud.domains() == {})
    slow_cloud.audit()
