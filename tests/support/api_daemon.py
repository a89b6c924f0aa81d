"""An API daemon as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from tests.support.api_client import ROOT
from tests.support.ports import free_port
from tests.support.waiting import wait_for

MODES = ["threading", "eventlet"]


DEADLINE = 30.0


class Daemon:
    def __init__(self, path: Path, mode: str = "threading", **options: Any) -> None:
        self.port = options.pop("port", None) or free_port()
        module = ["nova_lite.cmd.api"]
        if "module" in options:
            module.insert(0, options.pop("module"))
        environment, launcher, passed = (options.pop(name, {}) for name in ("environment", "launcher", "passed"))
        self.scheme = "https" if "enabled_ssl_apis" in options else "http"
        values = {"port": self.port, "paste_config": f"{ROOT}/etc/nova-lite/api-paste.ini", "auth_strategy": "noauth2"}
        values |= options
        config = path / "api.conf"
        config.write_text(
            f"[DEFAULT]\ntransport_url = rabbit://u:p@127.0.0.1:{free_port()}/\n[metrics]\nenabled = false\n[api]\n"
            + "".join(f"{name} = {value}\n" for name, value in values.items())
        )
        self.log = path / "api.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*launcher, sys.executable, "-W", "ignore", "-m", *module, "--config-file", str(config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "NOVA_LITE_CONCURRENCY": mode, **environment},
                pass_fds=tuple(passed),
            )

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(
            f"{self.scheme}://127.0.0.1:{self.port}{path}", headers={"X-Auth-Token": "u:p"}, timeout=20, **options
        )

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(requests.ConnectionError):
            return self.get("/v2.1", verify=False).status_code == 200
        return False

    def workers(self) -> set[int]:
        output = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        ).stdout
        return {int(pid) for pid in output.split()}

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def running(path: Path, mode: str = "threading", **options: Any) -> Iterator[Daemon]:
    daemon = Daemon(path, mode, **options)
    try:
        wait_for("the API answers", daemon.answers, DEADLINE)
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait(DEADLINE)
