"""Serve an API of OpenStack on loopback: serve_wsgi.py keystone|glance|cinder|neutron DIRECTORY

DIRECTORY holds the service's configuration, and the file ``port``. Runs with the Python that the service is installed
for. It is ready when it says so, on standard output and to systemd.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import signal
import socket
import sys
import tempfile
from typing import Any, NoReturn

from cheroot import wsgi

THREADS = 10


def application(name: str, directory: pathlib.Path) -> Any:
    os.environ[f"OS_{name.upper()}_CONFIG_DIR"] = str(directory)
    # Keystone reads the arguments of the process as its own when it is imported.
    del sys.argv[1:]
    if name == "cinder":
        sys.argv[1:] = ["--config-dir", str(directory)]
    if name == "neutron":
        os.environ |= {"OS_NEUTRON_CONFIG_FILES": "neutron.conf", "ASGI_WORKERS": "1"}
    return importlib.import_module(f"{name}.wsgi.api").application


def say_ready(name: str) -> None:
    print(f"{name} is ready on host {socket.gethostname()}", flush=True)
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect("\0" + address[1:] if address[0] == "@" else address)
            notify.send(b"READY=1")


def stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def main(name: str, directory: pathlib.Path) -> None:
    signal.signal(signal.SIGTERM, stop)
    port = int((directory / "port").read_text())
    server = wsgi.Server(("127.0.0.1", port), application(name, directory), numthreads=THREADS)
    signal.signal(signal.SIGTERM, stop)  # Neutron has set its own, which does not end the process
    server.prepare()
    say_ready(name)
    try:
        server.serve()
    finally:
        server.stop()


if __name__ == "__main__":
    # Neutron keeps the time of its start in a file there, named after its parent process, which may remain the same.
    with tempfile.TemporaryDirectory(prefix="nova-lite-") as tempfile.tempdir:
        main(sys.argv[1], pathlib.Path(sys.argv[2]))
