"""What a daemon tells of itself over HTTP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from nova_lite.base import exceptions
from nova_lite.daemon import health
from nova_lite.daemon.health import Health


@pytest.fixture
def served() -> Iterator[Health]:
    made = Health()
    made.serve("127.0.0.1", 0)
    yield made
    made.close()


def get(served: Health, path: str) -> requests.Response:
    return requests.get(f"http://127.0.0.1:{served.port}{path}", timeout=20)


def test_it_lives_as_long_as_its_loop_turns(served: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(served, "/healthz").status_code == 200
    monkeypatch.setattr(health, "STANDS_STILL", 0.1)
    time.sleep(0.2)
    answer = get(served, "/healthz")
    assert answer.status_code == 503
    assert answer.json()["alive"].startswith("the daemon has stood still for")
    served.turned()
    monkeypatch.setattr(health, "STANDS_STILL", 30.0)
    assert get(served, "/healthz").json() == {"alive": "ok"}


def test_readiness_says_what_is_not_there(served: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(served, "/readyz").json() == {"started": "it has not started yet"}
    monkeypatch.setattr(health, "KEPT", 0.0)
    away = [True]

    def database() -> None:
        if away[0]:
            raise exceptions.DatabaseUnavailable()

    served.add("database", database)
    served.add("broker", lambda: None)
    answer = get(served, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["broker"] == "ok"
    assert answer.json()["database"] == exceptions.DatabaseUnavailable.msg_fmt
    text = get(served, "/metrics").text
    assert 'nova_lite_ready{part="database"} 0.0' in text
    assert 'nova_lite_ready{part="broker"} 1.0' in text
    away[0] = False
    assert get(served, "/readyz").status_code == 200


def test_a_part_that_hangs_holds_up_no_other_and_is_asked_once(served: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.3)
    may_end, asked = threading.Event(), []

    def hangs() -> None:
        asked.append(1)
        may_end.wait(30)

    served.add("hypervisor", hangs)
    served.add("broker", lambda: None)
    started = time.monotonic()
    for _ in range(2):
        answer = get(served, "/readyz").json()
        assert (answer["hypervisor"], answer["broker"]) == ("no answer within 0 s", "ok")
    assert time.monotonic() - started < 5
    assert len(asked) == 1
    may_end.set()


def test_a_port_that_is_taken_does_not_stop_the_daemon(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = Health()
        made.serve("127.0.0.1", taken.getsockname()[1])
        made.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Metrics are not served" in caplog.text


def test_nothing_else_is_there(served: Health) -> None:
    assert get(served, "/").status_code == 404
    assert requests.post(f"http://127.0.0.1:{served.port}/metrics", timeout=5).status_code == 501
