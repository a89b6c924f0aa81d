"""SPICE screens of real guests: through the proxy, in a browser, by TLS, and before and after a live migration."""

from __future__ import annotations

import contextlib
import pwd
import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base.host_certificates import CONSOLES, Authority
from nova_lite.conf.consoles import SPICE_WEB
from nova_lite.console import tokens
from nova_lite.console.opening import ConsoleRefusal, Opener
from nova_lite.console.server import ProxyServer
from nova_lite.daemon.sockets import listen
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeDriver, MakeHost, boot, guest_lines, guest_spec
from tests.integration.libvirt.moves import arriving, migrate
from tests.integration.libvirt.test_consoles_tls import host_tls
from tests.support import consoles
from tests.support.browser import CANVAS, browser
from tests.support.waiting import wait_for

TYPE = "spice-html5"
TOKEN = "x"
MAIN_CHANNEL, INPUTS_CHANNEL = 1, 3
#: Header of SPICE's link messages: magic, version 2.2, size of the rest.
HEADER = struct.Struct("<4sIII")


class Cloud:
    """Fake conductor and compute service, which know the SPICE console of one guest on host ``third``."""

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
        return ConsoleTarget(instance_uuid=self._uuid, compute_host="third", console=self.console)

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


def link(channel: int) -> bytes:
    """Return the first message of a channel's connection, without capabilities."""
    return HEADER.pack(b"REDQ", 2, 2, 18) + struct.pack("<IBBIII", 0, channel, 0, 0, 0, 18)


def error_of_reply(reply: bytes) -> int:
    """Check that the reply is a SPICE server's with its key, and return its error."""
    magic, major, _, size = HEADER.unpack(reply[: HEADER.size])
    assert (magic, major) == (b"REDQ", 2) and size >= 178
    return int(struct.unpack_from("<I", reply, HEADER.size)[0])


REPLY_SIZE = HEADER.size + 4


def test_spice_server_of_a_guest_answers_through_the_proxy_on_each_connection(
    make_driver: MakeDriver, images: Images
) -> None:
    driver = make_driver("one", spice__enabled=True)
    spec = guest_spec(images, [])
    boot(driver, spec)
    with proxy(driver, spec) as port:
        clients = []
        for _ in range(2):
            client = consoles.connect(socket.create_connection(("127.0.0.1", port), 30), f"/?token={TOKEN}")
            client.send(link(MAIN_CHANNEL))
            assert error_of_reply(consoles.read(client, REPLY_SIZE)) == 0
            clients.append(client)
        for client in clients:
            client.close()
        client = consoles.connect(socket.create_connection(("127.0.0.1", port), 30), f"/?token={TOKEN}")
        client.send(link(250))
        assert error_of_reply(consoles.read(client, REPLY_SIZE)) != 0, "there is no such channel"
        client.close()


def test_browser_shows_the_screen_by_spice(make_driver: MakeDriver, images: Images, tmp_path: Path) -> None:
    for needed in ("/usr/bin/chromium", SPICE_WEB):
        if not Path(needed).exists():
            pytest.skip(f"{needed} is not installed (devstack/test.sh installs it)")
    driver = make_driver("one", spice__enabled=True, vnc__enabled=False)
    spec = guest_spec(images, [])
    boot(driver, spec)
    guest_lines(driver, spec.instance.uuid)
    with proxy(driver, spec, SPICE_WEB) as port, browser(tmp_path / "profile") as page:
        base = Console(
            console_type=TYPE, host="", port=0, access_url_base=f"http://127.0.0.1:{port}/spice_auto.html"
        )
        page.open(tokens.url(base, TOKEN), "!!document.querySelector('canvas')")

        def drawn() -> Any:
            found = page.evaluate(CANVAS)
            return found if found and found[3] > 2000 else None

        width, height, _, lit = wait_for("the screen is on the page", drawn, 120, 0.5)
        page.screenshot(tmp_path / "spice.png")
        shutil.copy(tmp_path / "spice.png", "/tmp/spice.png")
    assert width >= 640 and height >= 400 and lit < width * height
