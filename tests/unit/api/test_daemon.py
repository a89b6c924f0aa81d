"""The daemon as a process: serving without a broker, workers, signals, and configuration errors.

No message broker is needed: it is configured at a port that refuses connections.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.api_client import ROOT
from tests.support.api_daemon import DEADLINE, MODES, Daemon, running
from tests.support.http_site import make_certificate
from tests.support.waiting import wait_for


@pytest.fixture(scope="module", params=MODES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Provide a daemon of each mode for tests that leave it as it is. It starts for a second."""
    with running(tmp_path_factory.mktemp("daemon"), request.param) as daemon:
        yield daemon
        assert daemon.end() == 0
    assert "Traceback" not in daemon.log.read_text()


def test_daemon_without_broker_responds_503_immediately(served: Daemon) -> None:
    for _ in range(2):
        started = time.monotonic()
        response = served.get("/v2.1/servers")
        assert time.monotonic() - started < 5
        assert response.status_code == 503
        assert response.json()["serviceUnavailable"]["code"] == 503


def test_daemon_serves_many_connections(served: Daemon) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: served.get("/v2.1/extensions").status_code, range(100)))
        assert answers == [200] * 100


def test_chunked_body_is_limited(served: Daemon) -> None:
    url = f"http://127.0.0.1:{served.port}/v2.1/servers"
    headers = {"X-Auth-Token": "u:p", "Content-Type": "application/json"}
    response = requests.post(url, data=iter([b"{", b"}"]), headers=headers, timeout=20)
    assert response.status_code == 400
    with contextlib.suppress(requests.ConnectionError):
        big = requests.post(url, data=(b" " * 1024 for _ in range(200)), headers=headers, timeout=20)
        assert big.status_code == 413
    assert served.get("/v2.1").status_code == 200


def test_refused_large_body_is_not_read(served: Daemon) -> None:
    """A client must not fill the daemon's memory. The announced body never arrives."""
    with socket.create_connection(("127.0.0.1", served.port), 20) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n" + b"x" * 1000)
        assert client.recv(4096).startswith(b"HTTP/1.1 ")
        assert served.get("/v2.1").status_code == 200


@pytest.mark.parametrize("mode", MODES)
def test_daemon_restarts_workers_that_die(tmp_path: Path, mode: str) -> None:
    with running(tmp_path, mode, workers=2) as daemon:
        first = wait_for("two workers", lambda: found if len(found := daemon.workers()) == 2 else None, DEADLINE)
        assert daemon.get("/v2.1/servers").status_code == 503
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        wait_for(
            "a new worker",
            lambda: len(daemon.workers()) == 2 and victim not in daemon.workers() and daemon.workers(),
            DEADLINE,
        )
        assert [daemon.get("/v2.1").status_code for _ in range(20)] == [200] * 20
        workers = daemon.workers()
        assert daemon.end() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert f"worker {victim} ended with signal 9" in daemon.log.read_text()


def connections_of(pid: int, port: int) -> int:
    """Return the number of this process's open connections to the port."""
    open_ = {
        fields[9]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[1].endswith(f":{port:04X}") and fields[3] == "01"
    }
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return sum(f"socket:[{inode}]" in links for inode in open_)


@pytest.mark.parametrize("mode", MODES)
def test_connections_are_distributed_over_workers(tmp_path: Path, mode: str) -> None:
    """The kernel chooses a worker by the client's port. Fewer than 17 of 64 connections for one worker is an error."""
    with running(tmp_path, mode, workers=2) as daemon, contextlib.ExitStack() as clients:
        workers = wait_for("two workers", lambda: found if len(found := daemon.workers()) == 2 else None, DEADLINE)
        address = ("127.0.0.1", daemon.port)
        opened = [clients.enter_context(socket.create_connection(address, 20)) for _ in range(64)]
        for client in opened:
            client.sendall(b"GET /v2.1 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        spread = [connections_of(pid, daemon.port) for pid in workers]
        print(mode, spread)
        assert sum(spread) == 64
        assert min(spread) > 16


@pytest.mark.parametrize("mode", MODES)
def test_connections_of_a_dead_worker_wait_for_its_successor(tmp_path: Path, mode: str) -> None:
    """A connection that arrives while a worker is missing is served by its successor at the latest."""
    with running(tmp_path, mode, workers=2) as daemon:
        workers = wait_for("two workers", lambda: found if len(found := daemon.workers()) == 2 else None, DEADLINE)
        os.kill(min(workers), signal.SIGKILL)
        assert [daemon.get("/v2.1").status_code for _ in range(40)] == [200] * 40


@pytest.mark.parametrize("mode", MODES)
def test_workers_end_with_their_parent(tmp_path: Path, mode: str) -> None:
    with running(tmp_path, mode, workers=2) as daemon:
        workers = wait_for("two workers", lambda: found if len(found := daemon.workers()) == 2 else None, DEADLINE)
        daemon.process.kill()
        daemon.process.wait(DEADLINE)
        wait_for("the workers are gone", lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), DEADLINE)
        with socket.create_server(("127.0.0.1", daemon.port)):
            pass


@pytest.mark.parametrize("mode", MODES)
def test_daemon_serves_over_tls(tmp_path: Path, mode: str) -> None:
    certificate, key = make_certificate(tmp_path)
    options = {"enabled_ssl_apis": "osapi_compute", "ssl_cert_file": certificate, "ssl_key_file": key}
    with running(tmp_path, mode, **options) as daemon:
        document = daemon.get("/v2.1", verify=certificate).json()
        assert document["version"]["links"][0]["href"] == f"https://127.0.0.1:{daemon.port}/v2.1/"
        with socket.create_connection(("127.0.0.1", daemon.port)):  # who never shakes hands holds up no client
            assert daemon.get("/v2.1", verify=certificate).status_code == 200
        context = ssl.create_default_context(cafile=certificate)
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)), socket.create_connection(("127.0.0.1", daemon.port)) as plain:
            context.wrap_socket(plain, server_hostname="127.0.0.1")
        wait_for("the end is logged", lambda: f"Certificate {certificate} ends at " in daemon.log.read_text(), DEADLINE)
        assert daemon.end() == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": "0.0.0.0"}, "must be a loopback address"),
        (
            {"auth_strategy": "nonsense"},
            "auth_strategy = nonsense: the paste file defines only http_basic, keystone, noauth2, standalone.",
        ),
        (
            {"enabled_apis": "identity"},
            "auth_strategy = noauth2: the paste file defines only http_basic, standalone.",
        ),
        ({"enabled_apis": "nonsense"}, "[api] enabled_apis: none of them can be served."),
        ({"paste_config": "/nosuch.ini"}, "[api] paste_config = /nosuch.ini: the file does not exist."),
        ({"enabled_ssl_apis": "osapi_compute"}, "[api] ssl_cert_file = None: cannot be read."),
    ],
)
def test_configuration_error_is_reported_in_one_line(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    daemon = Daemon(tmp_path, **options)
    assert daemon.process.wait(DEADLINE) == 1
    text = daemon.log.read_text()
    assert "Traceback" not in text
    assert sentence in text.splitlines()[-1]
    assert text.splitlines()[-1].startswith("nova-lite-api: ")


@pytest.mark.parametrize("workers", [1, 2])
def test_port_in_use_is_reported(tmp_path: Path, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = Daemon(tmp_path, port=port, workers=workers)
        assert daemon.process.wait(DEADLINE) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert last == f"nova-lite-api: cannot listen on 127.0.0.1 port {port}: the port is in use."


def test_unknown_api_is_skipped(tmp_path: Path) -> None:
    paste = tmp_path / "paste.ini"
    paste.write_text((ROOT / "etc/nova-lite/api-paste.ini").read_text().replace("[pipeline:metadata]", "[pipeline:x]"))
    with running(tmp_path, enabled_apis="metadata,nonsense,osapi_compute", paste_config=paste) as daemon:
        text = daemon.log.read_text()
    assert "metadata is not in the paste file and is not served" in text
    assert "there is no API named nonsense" in text


def test_daemon_does_not_import_sqlalchemy() -> None:
    code = (
        "import sys, nova_lite.cmd.api; from nova_lite.api.http import router; router.extension_classes(); "
        "sys.exit(any(name.split('.')[0] in ('sqlalchemy', 'alembic') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0
