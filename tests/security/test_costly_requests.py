"""Requests that compute without end: others are answered meanwhile, and the costly ones are ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.support.api_daemon import DEADLINE, MODES, Daemon, running
from tests.support.waiting import wait_for


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def request(daemon: Daemon, path: str) -> int | None:
    """Return the status of the response, or None if the connection ended without one."""
    try:
        return requests.get(f"http://127.0.0.1:{daemon.port}{path}", timeout=60).status_code
    except requests.ConnectionError:
        return None


def answered_before(daemon: Daemon, costly: Future[int | None]) -> bool:
    """Check that another request is answered while the costly one computes."""
    return request(daemon, "/") == 200 and not costly.done()


def test_request_that_computes_delays_no_other_and_is_ended(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with running(tmp_path, module="tests.security.costly") as daemon:
        costly = pool.submit(request, daemon, "/compute")
        assert answered_before(daemon, costly)
        assert costly.result() == 500
        assert request(daemon, "/") == 200
    log = daemon.log.read_text()
    assert "s of CPU time and is ended" in log
    assert "tests/security/costly.py" in log


def test_many_requests_that_compute_are_all_ended(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with running(tmp_path, module="tests.security.costly", threads=8) as daemon:
        costly = [pool.submit(request, daemon, "/compute") for _ in range(3)]
        assert request(daemon, "/") == 200
        assert [one.result() for one in costly] == [500] * 3
        assert [request(daemon, "/") for _ in range(8)] == [200] * 8


@pytest.mark.parametrize("mode", MODES)
def test_worker_whose_request_keeps_the_interpreter_is_replaced(
    tmp_path: Path, pool: ThreadPoolExecutor, mode: str
) -> None:
    path = "/search" if mode == "threading" else "/compute"
    with running(tmp_path, mode, module="tests.security.costly", workers=2) as daemon:
        before = wait_for("two workers", lambda: found if len(found := daemon.workers()) == 2 else None, DEADLINE)
        costly = pool.submit(request, daemon, path)
        # The kernel gives connections to both workers. Those at the busy one wait for its successor.
        others = [pool.submit(request, daemon, "/") for _ in range(10)]
        assert costly.result() is None
        assert {one.result() for one in others} <= {200, None}
        assert 200 in {one.result() for one in others}
        wait_for("a new worker", lambda: len(found := daemon.workers()) == 2 and found != before, DEADLINE)
        wait_for("both workers serve", lambda: {request(daemon, "/") for _ in range(10)} == {200}, DEADLINE)
    log = daemon.log.read_text()
    assert "has not turned for" in log
    assert "Fatal Python error: Aborted" in log
