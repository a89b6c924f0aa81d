"""Drain of an API that stops: load balancers with other servers send new connections there first."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http.drain import Drain, has_others
from nova_lite.api.http.proxy_protocol import SIGNATURE, Balancers, networks
from nova_lite.base.timing import TIMING
from nova_lite.cmd.setup import balancer
from nova_lite.objects import Controller
from tests.support.api_daemon import DEADLINE, MODES, Daemon, running
from tests.support.http_site import make_certificate, read_reply, serving
from tests.support.ports import free_port
from tests.support.waiting import wait_for

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
LOOPBACK = Balancers(networks(["127.0.0.1"]))
UP = "UP; address=192.0.2.11; port=8774; name=compute/ha1; node=ha1; weight=1/3; scur=0/0; qcur=0"
ALONE = UP.replace("1/3", "1/1")
#: Seconds after which each server has been checked again.
CHECKED = 5
#: Ends as soon as all balancers know.
QUICK = dataclasses.replace(TIMING.api, drain=DEADLINE, drain_end=0.0)


def check(state: str = "", path: str = "/") -> bytes:
    """Return a check of HAProxy."""
    header = f"x-haproxy-server-state: {state}\r\n" if state else ""
    return f"GET {path} HTTP/1.0\r\n{header}\r\n".encode()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (UP, True),
        (ALONE, False),
        (UP.replace("UP;", "UP 1/2;"), True),
        (ALONE.replace("UP;", "NOLB;"), True),
        (UP.replace("UP;", "NOLB;").replace("1/3", "1/0"), False),
        (ALONE.replace("UP;", "DOWN 1/2;"), True),
        ("UP", False),
        ("", False),
    ],
)
def test_state_of_a_check_says_whether_there_are_others(state: str, expected: bool) -> None:
    assert has_others(state) is expected


def test_drain_ends_when_each_balancer_has_been_refused() -> None:
    drain = Drain(QUICK)
    assert not drain.refuses("192.0.2.11", UP) and not drain.refuses("192.0.2.12", UP)
    assert not drain.refuses("192.0.2.13", ALONE)
    thread = threading.Thread(target=drain.run, daemon=True)
    thread.start()
    wait_for("the first balancer is refused", lambda: drain.refuses("192.0.2.11", UP), DEADLINE)
    assert drain.refuses("192.0.2.11", UP.replace("UP;", "NOLB;").replace("1/3", "1/2"))
    assert not drain.refuses("192.0.2.13", ALONE)
    assert thread.is_alive()
    assert drain.refuses("192.0.2.12", UP)
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_drain_without_checks_of_balancers_with_others_does_not_wait() -> None:
    timing = dataclasses.replace(QUICK, drain=float("inf"), drain_end=float("inf"))
    Drain(timing).run()
    drain = Drain(timing)
    drain.refuses("192.0.2.11", UP)
    drain.refuses("192.0.2.11", ALONE)
    drain.run()
    drain = Drain(dataclasses.replace(timing, check_age=0.0))
    drain.refuses("192.0.2.11", UP)
    drain.run()


def test_drain_does_not_wait_for_ever_for_a_balancer_that_checks_no_more() -> None:
    drain = Drain(dataclasses.replace(QUICK, drain=0.1))
    drain.refuses("192.0.2.11", UP)
    drain.run()


class App:
    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"served"]


def test_draining_server_refuses_checks_of_balancers_alone() -> None:
    local = SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
    client = SIGNATURE + struct.pack("!BBH4s4sHH", 0x21, 0x11, 12, b"\xc0\0\2\1", b"\xc0\0\2\2", 1, 2)
    with serving(App(), balancers=LOOPBACK) as site:

        def status(data: bytes) -> int:
            with site.connect() as sock:
                sock.sendall(data)
                return read_reply(sock)[0].status

        assert status(local + check(UP)) == 200
        site.server.drain._is_draining = True
        assert status(local + check(UP)) == status(check(UP)) == 404
        for data in (client + check(UP), check(UP, "/v2.1"), check(ALONE), check()):
            assert status(data) == 200, data
    with serving(App()) as site:
        site.server.drain._is_draining = True
        assert status(check(UP)) == 200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [1, 2])
def test_stopping_daemon_serves_until_its_balancer_has_been_refused(tmp_path: Path, mode: str, workers: int) -> None:
    with running(tmp_path, mode, workers=workers, proxy_protocol_from="127.0.0.1") as daemon:

        def status(data: bytes) -> int:
            with socket.create_connection(("127.0.0.1", daemon.port), DEADLINE) as sock:
                sock.sendall(data)
                return read_reply(sock)[0].status

        for _ in range(40):  # The kernel distributes the checks over the workers.
            assert status(check(UP)) == 200
        daemon.process.terminate()
        wait_for("a check is refused", lambda: status(check(UP)) == 404, DEADLINE)
        assert daemon.process.wait(DEADLINE) == 0
    assert "send new connections elsewhere: 127.0.0.1" in daemon.log.read_text()


# --- HAProxy itself


class Balancer:
    """HAProxy with the file of a set-up, for APIs at 127.0.0.11 and 127.0.0.12."""

    def __init__(self, path: Path, port: int) -> None:
        members = [Controller(host=f"ha{number}", address=f"127.0.0.1{number}") for number in (1, 2)]
        text = balancer.haproxy("127.0.0.1", "127.0.0.1", members, has_database=False, proxy_protocol=True)
        sections = text.partition("defaults\n")[2].partition("listen image\n")[0]
        self.address, self._stats = ("127.0.0.1", port), path / "stats"
        lines = ["global", f"stats socket {self._stats}", "defaults", sections]
        file = path / "haproxy.cfg"
        file.write_text("\n".join(lines).replace(":8774", f":{port}").replace(":5000", f":{free_port()}"))
        with (path / "haproxy.log").open("wb") as log:
            self.process = subprocess.Popen([str(HAPROXY), "-db", "-f", str(file)], stdout=log, stderr=log)

    def states(self, host: str, seconds: int = 0) -> set[str]:
        """Return the states of a controller in all sections, or none if one is younger than ``seconds``."""
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(self._stats))
            except OSError:
                return set()
            sock.sendall(b"show stat\n")
            with sock.makefile() as file:
                rows = [row for row in csv.DictReader(io.StringIO(file.read())) if row["svname"] == host]
        return {row["status"].split()[0] for row in rows if all(int(row["lastchg"]) >= seconds for row in rows)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Balancer, list[Daemon]]]:
    port, daemons = free_port(), []
    certificate, key = make_certificate(tmp_path)
    tls = {"enabled_ssl_apis": "osapi_compute", "ssl_cert_file": certificate, "ssl_key_file": key}
    for number in (1, 2):
        path = tmp_path / f"ha{number}"
        path.mkdir()
        listen = f"127.0.0.1{number}"
        daemons.append(Daemon(path, port=port, listen=listen, proxy_protocol_from="127.0.0.1", **tls))
    made = Balancer(tmp_path, port)
    yield made, daemons
    for process in (made.process, *(daemon.process for daemon in daemons)):
        process.kill()
        process.wait(DEADLINE)


def get(address: tuple[str, int]) -> bool:
    """Return whether a request on a new connection gets a response."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(socket.create_connection(address, DEADLINE)) as sock:
            sock.sendall(b"GET /v2.1 HTTP/1.0\r\n\r\n")
            return read_reply(sock)[0].status == 200
    except OSError:
        return False


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_haproxy_leaves_a_stopping_api_out_before_it_ends_and_keeps_the_last_one(
    site: tuple[Balancer, list[Daemon]],
) -> None:
    haproxy, (first, last) = site
    wait_for("both serve", lambda: haproxy.states("ha1", CHECKED) == haproxy.states("ha2", CHECKED) == {"UP"}, DEADLINE)
    first.process.terminate()
    wait_for("ha1 is left out", lambda: haproxy.states("ha1") == {"NOLB"}, DEADLINE)
    assert haproxy.states("ha2") == {"UP"} and get(haproxy.address)
    assert first.process.wait(DEADLINE) == 0
    wait_for("ha1 is down", lambda: haproxy.states("ha1", CHECKED) == {"DOWN"}, DEADLINE)
    assert get(haproxy.address)
    last.process.terminate()
    assert last.process.wait(DEADLINE) == 0
    assert "elsewhere: 127.0.0.1" in first.log.read_text() and "elsewhere" not in last.log.read_text()
