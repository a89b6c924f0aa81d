"""Prometheus on a cloud of containers, with the files that the set-up wrote, while a host is cut off.

It does what docs/howto/metrics.md says, prints when alerts fire and are resolved, and makes pictures of the dashboards.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from tests.integration.systemd.bare_machine import BareMachine
from tests.integration.systemd.machine import TOP
from tests.support.waiting import wait_for, wait_for_none

PROMETHEUS = "prometheus"
URL = "http://127.0.0.1:9090"
#: Servers of a host that have metrics of their own.
SERVERS = 20
#: Alerts of a host that is cut off, by the label that has its name.
ALERTS = {"NovaLiteHostDown": "host", "NovaLiteDaemonUnreachable": "machine"}
#: Seconds that Prometheus may take to find all daemons, an alert to fire, and all alerts to be resolved.
FOUND, FIRES, RESOLVED = 300.0, 400.0, 300.0
#: Minutes that the pictures show, and the height of that of Prometheus' own page.
MINUTES, HEIGHT = 8, 700
_ARGUMENTS = 'ARGS="--config.file=/etc/prometheus/nova-lite/prometheus.yml"\n'
#: Prints a page of Prometheus, or no data while it starts.
_GET = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.URLError as error:
    if not isinstance(error.reason, ConnectionRefusedError) and getattr(error, "code", 0) != 503:
        raise
    print('{"data": null}')
"""


class Alert:
    """The daemons of ``controller`` and of ``hosts``, which have their addresses."""

    def __init__(self, controller: BareMachine, hosts: Mapping[BareMachine, str]) -> None:
        self._controller, self._hosts = controller, hosts

    def prepare(self) -> None:
        """Let hosts serve their pages to Prometheus, and start it. Returns when it reads all of them."""
        for host, address in self._hosts.items():
            settings = f"\n[metrics]\nlisten = {address}\nservers = {SERVERS}\n"
            host.run("sh", "-c", f"printf '{settings}' >>/etc/nova-lite/compute.conf")
            host.run("systemctl", "restart", "nova-lite-compute")
        self._controller.install(PROMETHEUS)
        self._controller.run("install", "--directory", "--owner=prometheus", "/var/lib/prometheus")
        self._controller.write("/etc/default/prometheus", _ARGUMENTS)
        self._controller.run("systemctl", "restart", PROMETHEUS)
        wait_for("Prometheus reads all daemons", self._reads_all, FOUND, 0.5)

    def run(self, host: BareMachine, pictures: pathlib.Path) -> str:
        """Cut a host off until its alerts fire, draw pictures, and connect it again. Returns a table of times."""
        link = f"to-{host.name}"
        events = {"the host is cut off": 0.0}
        assert self._firing(host) == set(), "An alert fires before."
        self._controller.run("ip", "link", "set", link, "down")
        began = time.monotonic()
        for name in ALERTS:
            wait_for(f"{name} fires", lambda name=name: name in self._firing(host), FIRES, 0.5)  # type: ignore[misc]
            events[f"`{name}` fires"] = time.monotonic() - began
            print(f"{name} fires after {events[f'`{name}` fires']:.0f} s", flush=True)
        self._draw(pictures)
        self._controller.run("ip", "link", "set", link, "up")
        mended = time.monotonic()
        wait_for_none("the alerts are resolved", lambda: self._firing(host), RESOLVED, 0.5)
        events["after its return, both are resolved"] = time.monotonic() - mended
        return "\n".join(
            ["| Event | After |", "|---|---|", *(f"| {title} | {took:.0f} s |" for title, took in events.items())]
        )

    def _reads_all(self) -> bool:
        found = self._get("query?query=up")
        if not found:
            return False
        seen = found["result"]
        machines = {item["metric"]["machine"] for item in seen if item["value"][1] == "1"}
        whole = {machine.name for machine in (self._controller, *self._hosts)}
        return all(item["value"][1] == "1" for item in seen) and machines == whole

    def _firing(self, host: BareMachine) -> set[str]:
        """Return the alerts of a host that fire."""
        found = {
            (alert["labels"]["alertname"], label, alert["labels"].get(label))
            for alert in self._get("alerts")["alerts"]
            if alert["state"] == "firing"
            for label in alert["labels"]
        }
        return {name for name, label in ALERTS.items() if (name, label, host.name) in found}

    def _get(self, path: str) -> Any:
        return json.loads(self._controller.beside(sys.executable, "-c", _GET, f"{URL}/api/v1/{path}"))["data"]

    def _draw(self, pictures: pathlib.Path) -> None:
        pictures.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="nova-lite-pictures.") as directory:
            program = str(TOP / "tools" / "draw_dashboards.py")
            self._controller.beside(sys.executable, program, URL, directory, "--minutes", str(MINUTES))
            for page in sorted(pathlib.Path(directory).glob("*.html")):
                text = page.read_text()
                width, height = (int(found) for found in re.findall(r"(?:width|height): (\d+)px", text)[:2])
                name = page.stem.replace("nova-lite", "dashboard")
                _picture(["env"], page.as_uri(), pictures / f"{name}.png", width, height + 50)
        inside = ["nsenter", "--target", str(self._controller.init), "-n", "--"]
        _picture(inside, f"{URL}/classic/alerts", pictures / "alert-host-down.png", 1400, HEIGHT)


def _picture(enter: list[str], url: str, target: pathlib.Path, width: int, height: int) -> None:
    """Let Chromium make a picture of a page."""
    browser = shutil.which("chromium")
    assert browser, "chromium is missing: install the package."
    with tempfile.TemporaryDirectory(prefix="nova-lite-chromium.") as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--virtual-time-budget=10000", f"--window-size={width},{height}", f"--screenshot={target}"]
        command = [*enter, browser, *options, url]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=180)
    assert target.exists(), f"{target} was not made."
    print(target, flush=True)
