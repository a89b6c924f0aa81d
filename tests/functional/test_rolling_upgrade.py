"""Upgrade from the last landed version, and the way back, daemon by daemon, while clients work: no request fails.

Prints a line with figures. On SQLite; `NOVA_LITE_LONG=1` adds MariaDB and PostgreSQL, with two conductors and more
requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from nova_lite.api.http.server import listen_per_worker
from nova_lite.base import memory
from nova_lite.db import migration
from tests.functional import older_code
from tests.functional.cloud import DEADLINE, IMAGE_BYTES, NETWORK, ROOT, Cloud, daemon_of, wait_for
from tests.functional.conftest import database_url

#: The last landed version. It knows nothing of newer schemas.
BASE = "39a23e23"

LONG = os.environ.get("NOVA_LITE_LONG") == "1"

REQUESTS = 2000 if LONG else 1000
WORKERS = 2
#: Seconds in which conductors take all messages of an API that sends no further ones.
HOLD_SECONDS = 0.5
#: Servers that are there from the beginning to the end.
KEPT = 4

#: Runs several commands of ``nova-lite-manage`` in one process: each start would cost a second.
MANAGE = """
import json, sys
from oslo_config import cfg
from nova_lite.cmd import manage
for arguments in json.load(sys.stdin):
    cfg.CONF.reset()
    assert manage.main(arguments) == 0, arguments
"""

#: Passes two sockets as systemd does: from descriptor 3 on, to a process that knows its own id.
WITH_SOCKETS = 'exec 3<&{0} 4<&{1}; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=osapi_compute-0:osapi_compute-1 exec "$@"'


class RollingCloud(Cloud):
    """Daemons that begin with the code of ``tree``, over a database that this code made.

    The test keeps the sockets of the API while it restarts, as systemd does.
    """

    def __init__(self, path: Path, tree: Path, database: str | None) -> None:
        # The defaults: a daemon may be away for so long.
        extra = "[DEFAULT]\nrpc_response_timeout = 20\nservice_down_time = 60\n"
        extra += f"[api]\nenabled_apis = osapi_compute\nworkers = {WORKERS}\n"
        more = ("conductor-2",) if database else ()
        super().__init__(path, database, vcpus=200, memory_mb=200_000, more=more, extra_config=extra)
        self.tree = tree
        self.prefixes = {name: older_code.prefix(tree) for name in self.names}
        self.socks = listen_per_worker("osapi_compute", "127.0.0.1", self.port, WORKERS)

    def _fill_database(self) -> None:
        image = self.path / "image.raw"
        image.write_bytes(IMAGE_BYTES)
        options = [f"--{name}={NETWORK[name]}" for name in ("gateway", "bridge", "start", "end")]
        files = self.config_arguments("conductor")
        commands = [
            ["db", "sync"],
            ["flavor", "create", "m1.nano", "--id", "1", "--vcpus", "1", "--ram", "8", "--disk", "1"],
            ["network", "create", "private", NETWORK["cidr"], "--default", *options],
            ["quota", "set", "demo", "--instances", "-1", "--cores", "-1", "--ram", "-1"],
            ["image", "import", str(image), "--name=cirros", "--disk-format=raw", "--id", self.image_id],
        ]
        subprocess.run(
            [*older_code.prefix(self.tree), sys.executable, "-W", "ignore", "-c", MANAGE],
            input=json.dumps([[*files, *command] for command in commands]),
            text=True,
            check=True,
            timeout=120,
        )

    def start(self, name: str) -> None:
        if name != "api":
            super().start(name)
            return
        with_sockets = WITH_SOCKETS.format(*(sock.fileno() for sock in self.socks))
        command = [*self.prefixes.get(name, []), sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.api"]
        with (self.path / "api.log").open("ab") as said:
            self.processes[name] = subprocess.Popen(
                ["bash", "-c", with_sockets, "bash", *command, *self.config_arguments(name)],
                stdout=said,
                stderr=said,
                env={**os.environ, **memory.ENVIRONMENT},
                start_new_session=True,
                pass_fds=[sock.fileno() for sock in self.socks],
            )

    def expand(self) -> None:
        """Expand the schema with the tool of this checkout."""
        command = [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.manage", *self.config_arguments("conductor")]
        done = subprocess.run([*command, "db", "sync"], capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.stdout.splitlines() == [
            f"The schema is {migration.head()} now.",
            f"Conductors from schema {migration.BASE} on run on it.",
        ], done.stderr

    def replace(self, name: str, tree: Path | None) -> None:
        """Stop a daemon, start it with the code of ``tree`` or of this checkout, and wait until it is ready."""
        with self.held_api() if daemon_of(name) == "conductor" and tree is None else contextlib.nullcontext():
            assert self.stop(name) == 0
        self.prefixes.pop(name, None)
        if tree is not None:
            self.prefixes[name] = older_code.prefix(tree)
        before = self.times_ready(name)
        self.start(name)
        wait_for(f"{name} is ready", lambda: self.times_ready(name) >= before + (WORKERS if name == "api" else 1))

    @contextlib.contextmanager
    def held_api(self) -> Iterator[None]:
        """Hold the API as `nova-lite-setup upgrade` does it: conductors of `BASE` lose what arrives as they stop."""
        os.killpg(self.processes["api"].pid, signal.SIGSTOP)
        try:
            time.sleep(HOLD_SECONDS)
            yield
        finally:
            os.killpg(self.processes["api"].pid, signal.SIGCONT)

    def times_ready(self, name: str) -> int:
        assert name not in self.processes or self.processes[name].poll() is None, self.log(name)
        log = self.path / f"{name}.log"
        return log.read_text().count(" is ready on host ") if log.exists() else 0

    def destroy(self) -> None:
        if "api" in self.processes:
            os.killpg(self.processes["api"].pid, signal.SIGKILL)
        super().destroy()
        for sock in self.socks:
            sock.close()


class Clients:
    """Users who read, create and delete servers until `stop`. Every answer is counted, and every wrong one kept."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        #: Step of the upgrade, for messages about failures.
        self.phase = "before"
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        #: Ids of accepted servers, and of those of them whose deletion was accepted.
        self.created: list[str] = []
        self.deleted: list[str] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor()
        self._work = [self._pool.submit(work) for work in (self._read, self._read, self._churn, self._churn)]

    def request(self, method: str, path: str, expected: tuple[int, ...], body: Any = None) -> requests.Response | None:
        """Send a request on a connection of its own. Returns None if it failed."""
        response, problem = None, ""
        began, phase = time.monotonic(), self.phase
        try:
            response = self.cloud.request(method, path, body, version="2.37", timeout=120)
        except requests.RequestException as error:
            problem = f"{method} {path}: {error!r}"
        else:
            if response.status_code not in expected:
                problem = f"{method} {path}: {response.status_code} {response.text}"
        with self._lock:
            self.answers[method] += 1
            if problem:
                self.failures.append(f"{phase}: {problem} after {time.monotonic() - began:.1f} s")
        return None if problem else response

    def _read(self) -> None:
        while not self._stop.is_set():
            for path in ("/servers/detail?limit=20", "/flavors/1", "/os-keypairs", "/limits"):
                self.request("GET", path, (200,))
                time.sleep(0.01)

    def _churn(self) -> None:
        """Create servers, show each until it is active, and delete it."""
        while not self._stop.is_set():
            server = {"name": "vm", "imageRef": self.cloud.image_id, "flavorRef": "1", "networks": "auto"}
            response = self.request("POST", "/servers", (202,), {"server": server})
            if response is None:
                continue
            server_id = response.json()["server"]["id"]
            self.created.append(server_id)
            status = "BUILD"
            while status == "BUILD" and not self._stop.is_set():
                shown = self.request("GET", f"/servers/{server_id}", (200,))
                status = shown.json()["server"]["status"] if shown is not None else status
                time.sleep(0.05)
            if status == "ERROR":
                self.failures.append(f"{server_id} is in ERROR: {shown and shown.text}")
            if self.request("DELETE", f"/servers/{server_id}", (204,)) is not None:
                self.deleted.append(server_id)

    def total(self) -> int:
        with self._lock:
            return self.answers.total()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many further requests have been answered."""
        goal = self.total() + count
        wait_for(f"{goal} requests are answered", lambda: self.total() >= goal, timeout=DEADLINE * (5 if LONG else 1))

    def stop(self) -> None:
        self._stop.set()
        self._pool.shutdown()
        for work in self._work:
            work.result()


@pytest.fixture(params=["sqlite", *(["mariadb", "postgresql"] if LONG else [])])
def old_cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RollingCloud]:
    tree = tmp_path / "old"
    tree.mkdir()
    older_code.extract(BASE, tree)
    with database_url(request.param) as url:
        cloud = RollingCloud(tmp_path, tree, url)
        try:
            cloud.make()
            cloud.start_all()
            yield cloud
        finally:
            cloud.destroy()


def order_of(cloud: Cloud) -> list[str]:
    """Return the daemons in the order of docs/howto/upgrade.md."""
    ranks = ("conductor", "scheduler", "compute", "api")
    return sorted(cloud.names, key=lambda name: ranks.index(daemon_of(name)))


@pytest.mark.timeout(1200 if LONG else 300)
def test_rolling_upgrade_and_rollback_fail_no_request(old_cloud: RollingCloud) -> None:
    """The schema is expanded while all daemons have the old code, and stays so on the way back."""
    cloud = old_cloud
    kept = cloud.create("kept", KEPT)
    cloud.wait_active(kept)
    clients = Clients(cloud)
    figures = []
    try:
        for direction, tree in (("upgrade", None), ("rollback", cloud.tree)):
            before = clients.total()
            if tree is None:
                cloud.expand()
            names = order_of(cloud) if tree is None else order_of(cloud)[::-1]
            for name in names:
                clients.wait_for_more(10)
                clients.phase = f"{direction} of {name}"
                cloud.replace(name, tree)
                at = os.readlink(f"/proc/{cloud.processes[name].pid}/cwd")
                assert (at == str(cloud.tree)) == (tree is not None), f"{name} has the wrong code"
            clients.wait_for_more(max(20, REQUESTS - (clients.total() - before)))
            figures.append(f"{direction}: {clients.total() - before} requests")
    finally:
        clients.stop()
    print(f"\n{', '.join(figures)}; {len(clients.failures)} failed; {dict(clients.answers)}")
    assert clients.failures == []
    assert clients.total() >= 2 * REQUESTS
    left = set(clients.created) - set(clients.deleted)
    assert set(cloud.wait_active([*kept, *left])) == {*kept, *left}
    wait_for("the deleted servers are gone", lambda: {item["id"] for item in cloud.servers()} == {*kept, *left})
    assert cloud.domains().keys() == {*kept, *left}
    cloud.audit()
    for name in cloud.names:
        text = (cloud.path / f"{name}.log").read_text()
        assert f'File "{ROOT}/nova_lite' not in text, f"a traceback of this version:\n{cloud.log(name)}"
