"""Consoles of a whole control plane: the API's answers, and the proxies, before fake guests whose consoles are of this
process."""

from __future__ import annotations

import http.client
import re
import socket
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cloud import Cloud
from tests.support import consoles
from tests.support.consoles import GREETING, EchoConsole, read
from tests.support.ports import free_port
from tests.support.waiting import wait_for


class ConsoleCloud(Cloud):
    novnc_port = 0
    serial_port = 0
    spice_port = 0

    def console(self, server_id: str, protocol: str = "vnc", console_type: str = "novnc", **options: Any) -> Any:
        body = {"remote_console": {"protocol": protocol, "type": console_type}}
        return self.request("POST", f"/servers/{server_id}/remote-consoles", body, **{"version": "2.6", **options})

    def url(self, server_id: str, protocol: str = "vnc", console_type: str = "novnc") -> str:
        answer = self.console(server_id, protocol, console_type)
        assert answer.status_code == 200, answer.text
        url: str = answer.json()["remote_console"]["url"]
        return url


def path_of(url: str) -> str:
    """Return the path of the WebSocket that noVNC's page would request."""
    found = re.search(r"token(?:%3D|=)([\w-]+)$", url)
    assert found is not None, url
    return f"/?token={found[1]}"


@pytest.fixture(scope="module")
def console() -> EchoConsole:
    return EchoConsole()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, console: EchoConsole) -> Iterator[ConsoleCloud]:
    path: Path = tmp_path_factory.mktemp("consoles")
    web = path / "novnc"
    web.mkdir()
    for page in ("vnc.html", "spice_auto.html"):
        (web / page).write_text("a page")
    novnc_port, serial_port, spice_port = free_port(), free_port(), free_port()
    made = ConsoleCloud(
        path,
        more=("novncproxy", "serialproxy", "spicehtml5proxy"),
        extra_config=f"[DEFAULT]\nweb = {web}\n"
        f"[vnc]\nnovncproxy_port = {novnc_port}\n"
        f"novncproxy_base_url = http://127.0.0.1:{novnc_port}/vnc.html\n[serial_console]\nenabled = true\n"
        f"serialproxy_port = {serial_port}\nbase_url = ws://127.0.0.1:{serial_port}/\n"
        f"[spice]\nenabled = true\nhtml5proxy_port = {spice_port}\n"
        f"html5proxy_base_url = http://127.0.0.1:{spice_port}/spice_auto.html\n",
    )
    made.novnc_port, made.serial_port, made.spice_port = novnc_port, serial_port, spice_port
    made.make()
    try:
        made.start_all()
        made.control_host("compute-1", console_ports=dict.fromkeys(("novnc", "serial", "spice"), console.port))
        for port in (novnc_port, serial_port, spice_port):
            wait_for("a proxy listens", lambda port=port: answers(port))
        yield made
    finally:
        made.destroy()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture(scope="module")
def server_id(cloud: ConsoleCloud) -> str:
    (made,) = cloud.create("shown")
    cloud.wait_active([made])
    return made


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def test_a_url_leads_to_the_screen_once(cloud: ConsoleCloud, server_id: str) -> None:
    url = cloud.url(server_id)
    page = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(page.hostname or "", page.port, timeout=30)
    connection.request("GET", f"{page.path}?{page.query}")
    assert connection.getresponse().read() == b"a page"
    origin = {"Origin": f"http://127.0.0.1:{cloud.novnc_port}", "Host": f"127.0.0.1:{cloud.novnc_port}"}
    wrong = {**origin, "Origin": "http://evil.example"}
    assert consoles.status(cloud.novnc_port, path_of(url), wrong) == 403
    assert consoles.status(cloud.serial_port, path_of(url)) == 401
    client = consoles.connect(dial(cloud.novnc_port), path_of(url), origin)
    assert read(client, len(GREETING)) == GREETING
    client.send(b"typed")
    assert read(client, 5) == b"typed"
    assert consoles.status(cloud.novnc_port, path_of(url), origin) == 401
    client.send(b"goes on")
    assert read(client, 7) == b"goes on"
    client.close()
    token = path_of(url).partition("=")[2]
    for name in cloud.names:
        assert token not in cloud.log(name, 100_000), name
    wait_for("the end is told", lambda: f"leaves the console of {server_id}" in cloud.log("novncproxy", 500))


def test_the_serial_console(cloud: ConsoleCloud, server_id: str) -> None:
    url = cloud.url(server_id, "serial", "serial")
    client = consoles.connect(dial(cloud.serial_port), path_of(url))
    assert read(client, len(GREETING)) == GREETING
    client.close()
    assert consoles.status(cloud.serial_port, path_of(url)) == 401
    connection = http.client.HTTPConnection("127.0.0.1", cloud.serial_port, timeout=30)
    connection.request("GET", "/vnc.html")
    assert connection.getresponse().status == 405


def test_spice_url_opens_several_connections(cloud: ConsoleCloud, server_id: str) -> None:
    url = cloud.url(server_id, "spice", "spice-html5")
    clients = [consoles.connect(dial(cloud.spice_port), path_of(url)) for _ in range(3)]
    for client in clients:
        assert read(client, len(GREETING)) == GREETING
        client.close()
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401


def test_direct_spice_token_leads_another_proxy_to_both_ports(
    cloud: ConsoleCloud, server_id: str, console: EchoConsole
) -> None:
    made = cloud.console(server_id, "spice", "spice-direct", version="2.99").json()["remote_console"]
    assert made["url"].startswith("http://127.0.0.1:13002/nova?token=")
    assert consoles.status(cloud.spice_port, path_of(made["url"])) == 401
    token = path_of(made["url"]).partition("=")[2]
    for _ in range(2):
        shown = cloud.request("GET", f"/os-console-auth-tokens/{token}", version="2.99").json()["console"]
        assert (shown["port"], shown["tls_port"]) == (console.port, console.port + 1)


def test_old_and_new_requests_beside_each_other(cloud: ConsoleCloud, server_id: str) -> None:
    old = cloud.request("POST", f"/servers/{server_id}/action", {"os-getVNCConsole": {"type": "novnc"}}, version="2.5")
    assert old.status_code == 200, old.text
    for url in (old.json()["console"]["url"], cloud.url(server_id)):
        assert consoles.status(cloud.novnc_port, path_of(url)) == 101
    assert cloud.console(server_id, version="2.5").status_code == 404
    assert cloud.console(server_id, "mks", "webmks", version="2.7").status_code == 400
    refused = cloud.console(server_id, "rdp", "rdp-html5")
    assert refused.status_code == 400 and "Unavailable console type rdp-html5." in refused.text


def test_a_token_shows_admins_where_it_leads(cloud: ConsoleCloud, server_id: str, console: EchoConsole) -> None:
    path = f"/os-console-auth-tokens/{path_of(cloud.url(server_id)).partition('=')[2]}"
    shown = cloud.request("GET", path, version="2.31").json()["console"]
    assert shown["instance_uuid"] == server_id and (shown["host"], shown["port"]) == ("127.0.0.1", console.port)
    assert cloud.request("GET", path, version="2.31", token="alice:demo").status_code == 403
    assert cloud.request("GET", path, version="2.30").status_code == 401


def test_console_is_refused_to_callers_without_the_right(cloud: ConsoleCloud, server_id: str) -> None:
    assert cloud.console(server_id, token="mallory:other").status_code == 404
    assert cloud.console("nosuch").status_code == 404
    (gone,) = cloud.create("gone")
    cloud.wait_active([gone])
    url = cloud.url(gone)
    cloud.request("DELETE", f"/servers/{gone}")
    wait_for("it is gone", lambda: cloud.show(gone) is None)
    assert cloud.console(gone).status_code == 404
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401


def test_a_token_ends_with_its_time(cloud: ConsoleCloud, server_id: str) -> None:
    """Ten minutes are not waited for: the row is made as old as that."""
    url = cloud.url(server_id)
    with sqlite3.connect(cloud.path / "nova-lite.sqlite", timeout=30) as database:
        database.execute("UPDATE console_auth_tokens SET expires_at = datetime(expires_at, '-600 seconds')")
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401
    assert consoles.status(cloud.novnc_port, path_of(cloud.url(server_id))) == 101
    assert "its time is over" in cloud.log("novncproxy", 500)


def test_a_guest_that_is_off_has_none_and_one_that_moved_its_port_is_not_mistaken(
    cloud: ConsoleCloud, server_id: str, console: EchoConsole
) -> None:
    url = cloud.url(server_id)
    cloud.control_host("compute-1", console_ports={"novnc": console.port + 1, "serial": console.port})
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401
    cloud.control_host("compute-1", console_ports={"novnc": console.port, "serial": console.port})
    url = cloud.url(server_id)
    assert cloud.action(server_id, {"os-stop": None}).status_code == 202
    cloud.wait_settled([server_id])
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401
    refused = cloud.console(server_id)
    assert refused.status_code == 409 and "power state shutdown" in refused.text
    assert cloud.action(server_id, {"os-start": None}).status_code == 202
    cloud.wait_active([server_id])
    assert consoles.status(cloud.novnc_port, path_of(cloud.url(server_id))) == 101


def test_a_rebuilt_server_is_another_one(cloud: ConsoleCloud, server_id: str) -> None:
    url = cloud.url(server_id)
    assert cloud.action(server_id, {"rebuild": {"imageRef": cloud.image_id}}).status_code == 202
    assert consoles.status(cloud.novnc_port, path_of(url)) == 401
    cloud.wait_active([server_id])
    assert consoles.status(cloud.novnc_port, path_of(cloud.url(server_id))) == 101


def test_without_a_conductor_it_says_so_and_the_token_stays(cloud: ConsoleCloud, server_id: str) -> None:
    cloud.kill("conductor")
    assert consoles.status(cloud.novnc_port, "/?token=x") == 503
    cloud.start("conductor")
    wait_for("an answer", lambda: consoles.status(cloud.novnc_port, "/?token=x") == 401)


def test_mistakes_of_operators_end_the_proxy_with_one_line(cloud: ConsoleCloud) -> None:
    for name, change, sentence in (
        ("novncproxy-2", "", f"cannot listen on 127.0.0.1 port {cloud.novnc_port}: the port is in use."),
        ("novncproxy-3", "[DEFAULT]\nweb = /nonexistent\n", "the client's files are not there"),
        ("novncproxy-4", "[DEFAULT]\ncert = /nonexistent\n", "[DEFAULT] cert = /nonexistent: cannot be read."),
    ):
        cloud._write_config(name)
        with (cloud.path / f"{name}.conf").open("a") as file:
            file.write(change)
        cloud.start(name)
        process = cloud.processes.pop(name)
        assert process.wait(60) == 1
        said = cloud.log(name).splitlines()
        assert sum(sentence in line for line in said) in (1, 2), said
        assert not any("Traceback" in line for line in said)


def test_a_proxy_that_is_told_to_stop_does(cloud: ConsoleCloud, server_id: str) -> None:
    client = consoles.connect(dial(cloud.novnc_port), path_of(cloud.url(server_id)))
    read(client, len(GREETING))
    assert cloud.stop("novncproxy") == 0
