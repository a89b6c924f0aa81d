"""The broker or the database is away: daemons say so and continue trying, users get 503, nothing accepted is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional import cloud
from tests.functional.conftest import database_url
from tests.functional.proxy import Proxy
from tests.support.waiting import wait_for


@pytest.fixture
def broker_proxy() -> Iterator[Proxy]:
    with Proxy(5672) as proxy:
        yield proxy


def server_body(running: cloud.Cloud) -> dict[str, object]:
    return {"server": {"name": "vm", "imageRef": running.image_id, "flavorRef": "1"}}


def test_daemons_wait_for_a_broker_that_is_not_there_yet(tmp_path: Path, broker_proxy: Proxy) -> None:
    running = cloud.Cloud(tmp_path, broker_port=broker_proxy.port)
    try:
        running.make()
        broker_proxy.cut()
        for name in running.names:
            running.start(name)
        for name in ("conductor", "scheduler", *running.computes):
            wait_for(f"{name} says that it waits", lambda name=name: "Trying again" in running.log(name))
        wait_for("the API answers", lambda: api_status(running) == 503)
        broker_proxy.restore()
        running.wait_until_ready()
        # The API itself refuses a part of the requests for two seconds after an outage.
        wait_for("the API refuses nobody", lambda: all(api_status(running) == 200 for _ in range(10)))
        running.wait_active(running.create())
        for name in running.names:
            assert "Traceback" not in running.log(name, 1000), running.log(name, 100)
    finally:
        running.destroy()


def api_status(running: cloud.Cloud) -> int | None:
    try:
        return running.request("GET", "/servers").status_code
    except cloud.requests.RequestException:
        return None


def test_a_broker_that_goes_away_and_comes_back(tmp_path: Path, broker_proxy: Proxy) -> None:
    with cloud.running(tmp_path, broker_port=broker_proxy.port, computes=2) as running:
        for host in running.computes:
            running.control_host(host, spawn_delay=1.0)
        ids = running.create(count=6)
        broker_proxy.cut()
        answer = running.request("POST", "/servers", server_body(running))
        assert answer.status_code == 503, answer.text
        assert "serviceUnavailable" in answer.json()
        broker_proxy.restore()
        running.wait_active(ids, timeout=90)
        running.wait_active(running.create())
        running.delete_all()
        wait_for("nothing is left", lambda: running.domains() == {})
        running.audit()


def test_reads_are_answered_while_their_connections_to_the_broker_are_lost(tmp_path: Path, broker_proxy: Proxy) -> None:
    """The loss of one of several brokers behind a load balancer looks like this."""
    with cloud.running(tmp_path, broker_port=broker_proxy.port) as running, futures.ThreadPoolExecutor(4) as readers:
        statuses = []
        for _ in range(5):
            asked = [readers.submit(api_status, running) for _ in range(8)]
            broker_proxy.cut()
            broker_proxy.restore()
            statuses += [found.result() for found in asked]
        assert statuses == [200] * 40


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, kind: str) -> None:
    with database_url(kind) as url:
        assert url is not None
        direct = sa.make_url(url)
        with Proxy(direct.port or {"mariadb": 3306, "postgresql": 5432}[kind]) as proxy:
            through = direct.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
            with cloud.running(tmp_path, database=through, computes=2) as running:
                for host in running.computes:
                    running.control_host(host, spawn_delay=1.0)
                ids = running.create(count=6)
                proxy.cut()
                for method, path, body in (
                    ("GET", "/servers", None),
                    ("POST", "/servers", server_body(running)),
                    ("DELETE", f"/servers/{ids[0]}", None),
                ):
                    answer = running.request(method, path, body)
                    assert answer.status_code == 503, answer.text
                    assert "database is unavailable" in answer.json()["serviceUnavailable"]["message"]
                proxy.restore()
                running.wait_active(ids, timeout=90)
                assert len(running.servers()) == len(ids), "what was refused was not done"
                running.delete_all()
                wait_for("nothing is left", lambda: running.domains() == {})
                running.audit()
                for name in running.names:
                    assert "Traceback" not in running.log(name, 2000), running.log(name, 100)
