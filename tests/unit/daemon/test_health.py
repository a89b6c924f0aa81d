"""Health endpoint: /healthz, /readyz and /metrics of a daemon."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from nova_lite.base import exceptions
from nova_lite.base.timing import HealthTiming
from nova_lite.daemon.health import Health


@pytest.fixture
def serve() -> Iterator[Callable[..., Health]]:
    """Serve health endpoints with these times."""
    servers: list[Health] = []

    def serve(**times: float) -> Health:
        server = Health(HealthTiming(**times))
        server.serve("127.0.0.1", 0)
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.close()


@pytest.fixture
def served(serve: Callable[..., Health]) -> Health:
    return serve()


def get(served: Health, path: str) -> requests.Response:
    return requests.get(f"http://127.0.0.1:{served.port}{path}", timeout=20)


def test_healthz_of_a_daemon_whose_main_loop_turns_is_ok(served: Health) -> None:
    served.mark_alive()
    reply = get(served, "/healthz")
    assert (reply.status_code, reply.json()) == (200, {"alive": "ok"})


def test_healthz_fails_when_the_main_loop_has_stopped(serve: Callable[..., Health]) -> None:
    served = serve(max_loop_pause=10.0)
    served._last_turn -= 10.0
    reply = get(served, "/healthz")
    assert reply.status_code == 503
    assert reply.json()["alive"].startswith("the daemon has stood still for 10 s")


def test_readyz_names_the_part_that_is_not_available(serve: Callable[..., Health]) -> None:
    served = serve(result_lifetime=0.0)
    assert get(served, "/readyz").json() == {"started": "it has not started yet"}
    is_away = [True]

    def database() -> None:
        if is_away[0]:
            raise exceptions.DatabaseUnavailable()

    served.add("database", database)
    served.add("broker", lambda: None)
    reply = get(served, "/readyz")
    assert reply.status_code == 503
    assert reply.json()["broker"] == "ok"
    assert reply.json()["database"] == exceptions.DatabaseUnavailable.msg_fmt
    text = get(served, "/metrics").text
    assert 'nova_lite_ready{part="database"} 0.0' in text
    assert 'nova_lite_ready{part="broker"} 1.0' in text
    is_away[0] = False
    assert get(served, "/readyz").status_code == 200


def test_readyz_check_that_hangs_runs_once_and_delays_no_other(serve: Callable[..., Health]) -> None:
    served = serve(check_timeout=0.3)
    released, runs = threading.Event(), []

    def hangs() -> None:
        runs.append(1)
        released.wait(30)

    served.add("hypervisor", hangs)
    served.add("broker", lambda: None)
    started = time.monotonic()
    for _ in range(2):
        reply = get(served, "/readyz").json()
        assert (reply["hypervisor"], reply["broker"]) == ("no answer within 0 s", "ok")
    assert time.monotonic() - started < 5
    assert len(runs) == 1
    released.set()


def test_health_on_a_taken_port_is_logged_and_not_served(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Health()
        server.serve("127.0.0.1", taken.getsockname()[1])
        server.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Metrics are not served" in caplog.text


def test_health_other_paths_and_methods_are_refused(served: Health) -> None:
    assert get(served, "/").status_code == 404
    assert requests.post(f"http://127.0.0.1:{served.port}/metrics", timeout=5).status_code == 501


def test_health_page_of_a_daemon_is_json_and_an_error_of_it_is_503(served: Health) -> None:
    served.add_page("/targets", lambda: [{"targets": ["192.0.2.1:9772"]}])
    reply = get(served, "/targets")
    assert (reply.status_code, reply.json()) == (200, [{"targets": ["192.0.2.1:9772"]}])

    def fail() -> object:
        raise exceptions.DatabaseUnavailable()

    served.add_page("/targets", fail)
    reply = get(served, "/targets")
    assert reply.status_code == 503
    assert "database" in reply.json()["error"]
