"""Every daemon works in both concurrency modes, on every database."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import concurrency
from tests.functional import cloud
from tests.functional.conftest import database_url
from tests.support.waiting import wait_for


@pytest.mark.parametrize(
    ("mode", "database"),
    [(concurrency.EVENTLET, "mariadb"), (concurrency.EVENTLET, "sqlite"), (concurrency.THREADING, "postgresql")],
)
def test_servers_come_and_go(tmp_path: Path, mode: str, database: str) -> None:
    with database_url(database) as url:
        environment = {concurrency.ENVIRONMENT: mode}
        with cloud.running(tmp_path, database=url, computes=2, environment=environment) as running:
            ids = running.create(count=8)
            running.wait_active(ids)
            assert set(running.domains()) == set(ids)
            for server_id in ids[:2]:
                assert running.action(server_id, {"os-stop": None}).status_code == 202
            stopped = running.wait_settled(ids)
            assert [stopped[server_id]["status"] for server_id in ids[:2]] == ["SHUTOFF"] * 2
            running.delete_all()
            wait_for("nothing is left", lambda: running.domains() == {})
            running.audit()
            for name in running.names:
                assert running.stop(name) == 0, running.log(name)
                assert "Traceback" not in running.log(name, 2000), running.log(name, 100)
