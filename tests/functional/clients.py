"""Users at work on a cloud whose daemons restart one by one, and a cloud whose API keeps its sockets meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from nova_lite.api.http.server import listen_per_worker
from nova_lite.base import memory
from tests.functional.cloud import Cloud
from tests.support.waiting import DEADLINE, wait_for

WORKERS = 2

#: Passes two sockets as systemd does: from descriptor 3 on, to a process that knows its own id.
WITH_SOCKETS = 'exec 3<&{0} 4<&{1}; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=osapi_compute-0:osapi_compute-1 exec "$@"'


class CloudWithSockets(Cloud):
    """Daemons as programs. The test keeps the sockets of the API while it restarts, as systemd does."""

    def __init__(self, path: Path, database: str | None, more: tuple[str, ...], extra: str) -> None:
        extra += f"[api]\nenabled_apis = osapi_compute\nworkers = {WORKERS}\n"
        super().__init__(path, database, vcpus=200, memory_mb=200_000, more=more, extra_config=extra)
        self.socks = listen_per_worker("osapi_compute", "127.0.0.1", self.port, WORKERS)

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

    def start_and_wait(self, name: str) -> None:
        """Start a daemon, and wait until it is ready."""
        before = self.times_ready(name)
        self.start(name)
        wait_for(f"{name} is ready", lambda: self.times_ready(name) >= before + (WORKERS if name == "api" else 1))

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

    def __init__(self, cloud: Cloud, readers: int = 2) -> None:
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
        work = [*[self._read] * readers, self._churn, self._churn]
        self._pool = ThreadPoolExecutor(len(work))
        self._work = [self._pool.submit(one) for one in work]

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
                self._stop.wait(0.01)

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
                self._stop.wait(0.05)
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
        wait_for(
            f"{goal} requests are answered",
            lambda: self.total() >= goal,
            timeout=DEADLINE * (5 if os.environ.get("NOVA_LITE_LONG") == "1" else 1),
        )

    def stop(self) -> None:
        self._stop.set()
        self._pool.shutdown()
        for work in self._work:
            work.result()
