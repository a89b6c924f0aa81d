"""Watchdog: a daemon reports to systemd while its main loop and its serving loops turn."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import concurrency
from nova_lite.daemon import service, watchdog
from nova_lite.daemon.watchdog import Watchdog
from tests.support import make

DEADLINE = 30.0


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the socket to which a daemon reports."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(DEADLINE)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield made


def said(systemd: socket.socket) -> list[bytes]:
    """Return the messages that have arrived."""
    found = []
    systemd.setblocking(False)
    try:
        while True:
            found.append(systemd.recv(100))
    except BlockingIOError:
        return found


class Serving(service.Daemon):
    """A daemon with one serving loop, which the test turns."""

    def prepare(self) -> None:
        self.turn = self.watchdog.watch("serving")


def test_main_loop_reports_to_systemd(systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Serving(make.conf("sqlite://", tmp_path), "nova-lite-test")
    monkeypatch.setattr(service.signal, "signal", lambda *_: None)
    thread = threading.Thread(target=daemon.run, daemon=True)
    thread.start()
    assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
    daemon.stopping.set()
    thread.join(DEADLINE)
    assert said(systemd)[-1] == b"STOPPING=1"


def test_serving_loop_that_stands_still_ends_the_reports(
    systemd: socket.socket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now)
    made = Watchdog(15.0)
    turns = [made.watch(name) for name in ("one", "two")]
    assert made.feed()
    now += 14
    turns[0]()
    assert made.feed()
    assert said(systemd) == [b"WATCHDOG=1"] * 2
    now += 1
    assert not made.feed()
    assert not made.feed()
    assert said(systemd) == []
    assert caplog.messages == ["two has stood still for 15 s: this daemon counts as dead"]
    turns[1]()
    assert made.feed()


def test_loop_that_has_ended_is_not_watched(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now)
    made = Watchdog(15.0)
    turn = made.watch("one")
    made.clear()
    turn()
    now += 20
    assert made.feed()


def test_daemon_with_a_serving_loop_that_stands_still_is_not_alive(
    systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Serving(make.conf("sqlite://", tmp_path), "nova-lite-test")
    daemon.watchdog = Watchdog(0.0)
    daemon.prepare()
    turned = daemon.health._last_turn
    daemon._turn()
    assert (daemon.health._last_turn, said(systemd)) == (turned, [])
    daemon.watchdog.clear()
    daemon._turn()
    assert daemon.health._last_turn > turned
    assert said(systemd) == [b"WATCHDOG=1"]


def test_worker_reports_to_its_parent(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_parent", None)
    reports, pipe = os.pipe()
    watchdog.report_to_parent(pipe)
    watchdog.report_alive()
    assert os.read(reports, 10) == b"."
    assert "NOTIFY_SOCKET" not in os.environ
    for _ in range(100_000):  # a parent that does not read
        watchdog.report_alive()
    os.close(reports)
    watchdog.report_alive()
    os.close(pipe)
    assert said(systemd) == []


@pytest.mark.parametrize("mode", [concurrency.THREADING, concurrency.EVENTLET])
@pytest.mark.parametrize("trouble", ["gone", "silent"])
def test_report_to_a_parent_that_reads_nothing_does_not_block(mode: str, trouble: str) -> None:
    """A parent that is gone has closed the pipe; the pipe of a parent that hangs is full."""
    script = """
import os, sys
from nova_lite.base import concurrency
concurrency.setup()
from nova_lite.daemon import watchdog
reader, writer = os.pipe()
watchdog.report_to_parent(writer)
if sys.argv[1] == "gone":
    os.close(reader)
for _ in range(70000):
    watchdog.report_alive()
"""
    environment = {**os.environ, concurrency.ENVIRONMENT: mode}
    command = [sys.executable, "-W", "ignore", "-c", script, trouble]
    assert subprocess.run(command, env=environment, check=False, timeout=120).returncode == 0
