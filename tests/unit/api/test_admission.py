"""Overload of an API: the least important requests get a 503 immediately, and deletes are done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest
import requests

from nova_lite.api.http import admission, server
from nova_lite.api.http.limits import ClientLimits
from nova_lite.daemon.sockets import listen
from nova_lite.rpc.admission import Priority
from tests.support.clock import ShiftedTime
from tests.support.waiting import wait_for

UUID = "70f5a7a4-1e0e-4f43-9a52-4f3d3ad5d1c7"


@pytest.mark.parametrize(
    ("method", "path", "priority"),
    [
        ("DELETE", f"/v2.1/servers/{UUID}", Priority.DELETE),
        ("POST", "/v2.1/servers", Priority.CHANGE),
        ("PUT", "/v2.1/os-services/1", Priority.CHANGE),
        ("GET", f"/v2.1/servers/{UUID}", Priority.READ),
        ("GET", f"/v2.1/servers/{UUID}/", Priority.READ),
        ("GET", "/v2.1/servers/detail", Priority.LIST),
        ("GET", "/v2.1/servers", Priority.LIST),
        ("HEAD", "/", Priority.LIST),
    ],
)
def test_priority_of_request_follows_from_method_and_path(method: str, path: str, priority: Priority) -> None:
    assert admission.priority_of(method, path) == priority


class Slow:
    """Application that waits for permission before it responds."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.methods: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.begun.release()
        assert self.may_end.wait(30)
        self.methods.append(environ["REQUEST_METHOD"])
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]


class Site:
    def __init__(self, limits: ClientLimits) -> None:
        sock = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self.app = Slow()
        self.http: Any = server.make_server(sock, self.app, 2, None, limits)
        self.http.start()
        self.pool = futures.ThreadPoolExecutor(30)

    def send(self, method: str, path: str) -> futures.Future[requests.Response]:
        return self.pool.submit(requests.request, method, self.url + path, timeout=30)

    @property
    def waiting(self) -> int:
        count: int = self.http.executor.waiting
        return count

    def occupy(self) -> list[futures.Future[requests.Response]]:
        sent = [self.send("DELETE", "/busy/1") for _ in range(2)]
        for _ in sent:
            assert self.app.begun.acquire(timeout=10)
        return sent


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(request.param)
    yield made
    made.app.may_end.set()
    made.pool.shutdown()
    made.http.stop(10)


@pytest.mark.parametrize("site", [ClientLimits(waiting=3)], indirect=True)
def test_full_server_refuses_lists_then_reads_then_creates_then_deletes(site: Site) -> None:
    busy = site.occupy()
    lists = [site.send("GET", "/servers") for _ in range(3)]
    wait_for("they wait", lambda: site.waiting == 3)
    late = site.send("GET", "/servers").result(5)
    reads = [site.send("GET", "/servers/1") for _ in range(3)]
    assert [future.result(5).status_code for future in lists] == [503] * 3
    changes = [site.send("POST", "/servers") for _ in range(3)]
    assert [future.result(5).status_code for future in reads] == [503] * 3
    deletes = [site.send("DELETE", "/servers/1") for _ in range(3)]
    assert [future.result(5).status_code for future in changes] == [503] * 3
    site.app.may_end.set()
    assert [future.result(5).status_code for future in (*busy, *deletes)] == [200] * 5

    fault = json.loads(late.text)["serviceUnavailable"]
    assert fault == {"code": 503, "message": admission.TOO_MANY}
    assert 1 <= int(late.headers["Retry-After"]) <= 3
    assert late.headers["Content-Type"].startswith("application/json")
    assert site.send("GET", "/servers").result(5).status_code == 200, "all is as before"


@pytest.mark.parametrize("site", [ClientLimits(wait=10.0)], indirect=True)
def test_request_that_waits_too_long_gets_503_and_does_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ShiftedTime()
    monkeypatch.setattr(admission, "time", clock)
    busy = site.occupy()
    late = site.send("POST", "/servers")
    wait_for("it waits", lambda: site.waiting == 1)
    clock.ahead = 11.0
    site.app.may_end.set()
    assert late.result(5).status_code == 503
    assert [future.result(5).status_code for future in busy] == [200, 200]
    assert "POST" not in site.app.methods


@pytest.mark.parametrize("site", [ClientLimits()], indirect=True)
def test_server_stop_ends_all_threads(site: Site) -> None:
    site.app.may_end.set()
    assert site.send("GET", "/servers").result(5).status_code == 200
    site.http.stop(10)
    assert not any(thread.is_alive() for thread in site.http.executor._threads)
