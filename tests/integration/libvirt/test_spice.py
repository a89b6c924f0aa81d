"""SPICE screens of real guests: through the proxy, in a browser, and before and after a live migration."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockify.websocket import WebSocket

from nova_lite.conf.consoles import SPICE_WEB
from nova_lite.console import tokens
from nova_lite.console.opening import Opener
from nova_lite.console.server import ProxyServer
from nova_lite.daemon.sockets import listen
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeDriver, MakeHost, boot, guest_lines, guest_spec
from tests.integration.libvirt.moves import arriving, migrate
from tests.support import consoles
from tests.support.browser import CANVAS, browser
from tests.support.waiting import wait_for

TYPE = "spice-html5"
TOKEN = "x"


class Cloud:
    """Fake conductor and compute service, which know the SPICE console of one guest."""

    def __init__(self, driver: LibvirtDriver, spec: SpawnSpec) -> None:
        self._driver, self._uuid = driver, spec.instance.uuid

    @property
    def console(self) -> Console:
        address = self._driver.consoles.spice(self._uuid)
        return Console(
            console_type=TYPE,
            host=address.host,
            port=address.port,
            access_url_base="http://proxy/",
            tls_port=address.tls_port,
        )

    def console_token_redeem(self, *args: Any) -> ConsoleTarget:
        return ConsoleTarget(instance_uuid=self._uuid, compute_host="host", console=self.console)

    def find_console_port(self, context: Any, host: str, instance_uuid: str, port: int, *args: Any) -> ConsolePort:
        return ConsolePort(is_current=True, tls=port == self.console.tls_port)


@contextlib.contextmanager
def proxy(driver: LibvirtDriver, spec: SpawnSpec, web: str | None = None) -> Iterator[int]:
    cloud: Any = Cloud(driver, spec)
    sock = listen("127.0.0.1", 0)
    server = ProxyServer(sock, Opener(cloud, cloud, (TYPE,), ()), web, None, 30, 50, 50)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield int(sock.getsockname()[1])
    server.stop()


def linked(port: int) -> WebSocket:
    """Open a connection of the main channel through the proxy, and check that a SPICE server accepts it."""
    client = consoles.connect(socket.create_connection(("127.0.0.1", port), 30), f"/?token={TOKEN}")
    client.send(consoles.SPICE_LINK)
    assert consoles.accepts_spice(consoles.read(client, consoles.SPICE_REPLY))
    return client


def test_spice_server_of_a_guest_answers_through_the_proxy_on_each_connection(
    make_driver: MakeDriver, images: Images
) -> None:
    driver = make_driver("one", spice__enabled=True)
    spec = guest_spec(images, [])
    boot(driver, spec)
    with proxy(driver, spec) as port:
        clients = [linked(port) for _ in range(3)]
        for client in clients:
            client.close()


def test_migrated_guest_keeps_its_spice_screen_at_the_destination(make_host: MakeHost, images: Images) -> None:
    """A client that is connected does not hold up the migration."""
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI, spice__enabled=True)
    there = make_host(
        "there",
        hosts.THERE,
        spice__enabled=True,
        spice__server_listen=hosts.THERE,
        spice__server_proxyclient_address=hosts.THERE,
    )
    spec = guest_spec(images, [])
    here.guests.spawn(spec)
    guest_lines(here, spec.instance.uuid)
    with proxy(here, spec) as port:
        client = linked(port)
        migrate(here, there, arriving(spec))
        client.close()
    assert there.consoles.spice(spec.instance.uuid).host == hosts.THERE
    with proxy(there, spec) as port:
        linked(port).close()


def test_browser_shows_the_screen_by_spice(make_driver: MakeDriver, images: Images, tmp_path: Path) -> None:
    for needed in ("chromium", SPICE_WEB):
        if shutil.which(needed) is None and not Path(needed).exists():
            pytest.skip(f"{needed} is not installed (devstack/test.sh installs it)")
    driver = make_driver("one", spice__enabled=True, vnc__enabled=False)
    spec = guest_spec(images, [])
    boot(driver, spec)
    guest_lines(driver, spec.instance.uuid)
    with proxy(driver, spec, SPICE_WEB) as port, browser(tmp_path / "profile") as page:
        base = Console(console_type=TYPE, host="", port=0, access_url_base=f"http://127.0.0.1:{port}/spice_auto.html")
        page.open(tokens.url(base, TOKEN), "!!document.querySelector('canvas')")

        def drawn() -> Any:
            found = page.evaluate(CANVAS)
            return found if found and found[3] > 2000 else None

        width, height, _, lit = wait_for("the screen is on the page", drawn, 120, 0.5)
    assert width >= 640 and height >= 400 and lit < width * height
