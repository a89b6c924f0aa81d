"""The screen and the serial port of a real guest, as users open them."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import socket
import sqlite3
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cloud.conftest import PATIENCE, SETTINGS, STATE, StackedCloud
from tests.support import consoles
from tests.support.browser import CANVAS, Browser, browser
from tests.support.waiting import wait_for

#: Path of the screenshot, if it is requested.
SCREENSHOT = "NOVA_LITE_SCREENSHOT"

#: Script that shows more colours on the guest's screen than a text terminal has.
USER_DATA = r"""#!/bin/sh
{
    printf '\033[2J\033[H\n  This is the screen of \033[1;32m%s\033[0m\n\n' "$(hostname)"
    for colour in 1 2 3 4 5 6 7; do
        printf '  \033[4%sm                    \033[0m  colour %s\n' $colour $colour
    done
    printf '\n  Linux %s, up %s s\n' "$(uname -r)" "$(cut -d' ' -f1 /proc/uptime)"
} >/dev/tty1
echo "the screen is drawn"
"""

#: Expression for the connection state that vnc_lite.html shows.
STATUS = "(document.querySelector('#status') || {textContent: ''}).textContent"
LOADED = f"!['', 'Loading'].includes({STATUS})"


@pytest.fixture(scope="module")
def guest(stacked: StackedCloud) -> Iterator[Any]:
    """Boot one guest for all of these tests."""
    stacked.sweep()
    user_data = base64.b64encode(USER_DATA.encode()).decode()
    server = stacked.create("console", user_data=user_data, config_drive=True)
    server = stacked.wait_status(server.id, "ACTIVE")
    wait_for("the screen is drawn", lambda: "the screen is drawn" in printed(stacked, server), PATIENCE, 0.5)
    yield server
    stacked.sweep()


def printed(cloud: StackedCloud, server: Any) -> str:
    return str(cloud.compute.get_server_console_output(server.id)["output"])


def socket_path(url: str) -> tuple[int, str]:
    """Port and path of the WebSocket behind the URL."""
    found = re.search(r"token(?:%3D|=)([\w-]+)$", url)
    assert found is not None, url
    return urllib.parse.urlsplit(url).port or 0, f"/?token={found[1]}"


def is_closed(page: Browser) -> bool:
    return "closed" in (page.evaluate(STATUS) or "")


def opened_and_drawn(
    cloud: StackedCloud, guest: Any, page: Browser, drawn: Callable[[], Any]
) -> tuple[str, tuple[int, int, int, int]]:
    """Return the URL, and what ``drawn`` finds. The browser may give up its WebSocket, too (see `Browser.open`)."""
    for _ in range(5):
        url = cloud.cli("console", "url", "show", "--novnc", guest.name)["url"]
        page.open(url, LOADED)
        wait_for("the screen is on the page", lambda: drawn() or is_closed(page), PATIENCE, 0.5)
        if found := drawn():
            return url, found
    raise AssertionError("five URLs did not connect")


def test_a_browser_shows_the_screen_once(stacked: StackedCloud, guest: Any, tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed (devstack/test.sh installs it)")
    with browser(tmp_path / "profile") as page:

        def drawn() -> Any:
            found = page.evaluate(CANVAS)
            return found if found and found[2] >= 8 and found[3] > 5000 else None

        url, (width, height, _, lit) = opened_and_drawn(stacked, guest, page, drawn)
        assert width >= 640 and height >= 400 and lit < width * height
        picture = Path(os.environ.get(SCREENSHOT, str(tmp_path / "console.png")))
        page.screenshot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG") and 1000 < picture.stat().st_size < 100_000
    with browser(tmp_path / "another") as page:
        page.open(url, LOADED)
        wait_for("it does not connect", lambda: is_closed(page), PATIENCE, 0.5)
        assert page.evaluate(CANVAS) is None or page.evaluate(CANVAS)[3] == 0
    assert consoles.status(*socket_path(url)) == 401


def test_a_token_ends_with_its_time(stacked: StackedCloud, guest: Any) -> None:
    """Ten minutes are not waited for: the row is made as old as that."""
    if "DATABASE=sqlite" not in SETTINGS.read_text():
        pytest.skip("the rows are looked at in SQLite alone")
    url = stacked.cli("console", "url", "show", "--novnc", guest.name)["url"]
    with sqlite3.connect(STATE / "conductor" / "nova-lite.sqlite", timeout=30) as database:
        changed = database.execute(
            "UPDATE console_auth_tokens SET expires_at = datetime(expires_at, '-600 seconds') WHERE instance_uuid = ?",
            (guest.id,),
        )
        assert changed.rowcount >= 1
    assert consoles.status(*socket_path(url)) == 401


def test_the_serial_console_talks_with_a_shell_and_all_is_logged(stacked: StackedCloud, guest: Any) -> None:
    url = stacked.cli("console", "url", "show", "--serial", guest.name)["url"]
    port, path = socket_path(url)
    sock = socket.create_connection(("127.0.0.1", port), 60)
    client = consoles.connect(sock, path)
    sock.settimeout(3)

    def answered() -> bool:
        """Type a command for three seconds. The first line starts the shell."""
        said, ends = b"", time.monotonic() + 3
        client.send(b"echo six times seven is $((6 * 7))\n")
        with contextlib.suppress(TimeoutError):
            while b"six times seven is 42" not in said and time.monotonic() < ends:
                said += consoles.read(client, 1)
        return b"six times seven is 42" in said

    wait_for("the shell answers", answered, PATIENCE, 0.5)
    client.close()
    assert consoles.status(port, path) == 401
    wait_for("it is in the log", lambda: "six times seven is 42" in printed(stacked, guest), PATIENCE, 0.5)
    assert "nova-lite-guest: instance=" in printed(stacked, guest)
