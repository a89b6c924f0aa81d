"""Restarts of the daemon: systemd keeps its sockets, and no connection is refused."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.api_daemon import DEADLINE, Daemon, running
from tests.support.ports import free_port
from tests.support.waiting import wait_for


class Systemd:
    """The part of systemd that keeps descriptors, and passes them to the next process."""

    def __init__(self, path: Path) -> None:
        self.address = str(path / "notify")
        self.kept: dict[str, int] = {}
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(self.address)
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            data, ancillary, _, _ = self._sock.recvmsg(4096, socket.CMSG_LEN(4))
            message = dict(line.split("=", 1) for line in data.decode().splitlines())
            descriptors = array.array("i", ancillary[0][2] if ancillary else b"")
            if message.get("BARRIER") == "1":
                os.close(descriptors[0])
            if message.get("FDSTORE") == "1":
                self.kept[message["FDNAME"]] = fcntl.fcntl(descriptors[0], fcntl.F_DUPFD_CLOEXEC, 100)
                os.close(descriptors[0])
            if message.get("FDSTOREREMOVE") == "1":
                os.close(self.kept.pop(message["FDNAME"]))

    def options(self) -> dict[str, Any]:
        """Return the options of a daemon that this systemd starts."""
        names, descriptors = list(self.kept), list(self.kept.values())
        moved = " ".join(f"{3 + index}<&{descriptor} {descriptor}<&-" for index, descriptor in enumerate(descriptors))
        environment = {"NOTIFY_SOCKET": self.address}
        if names:
            environment |= {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}
        script = f'{"exec " + moved if moved else ":"}; export LISTEN_PID=$$; exec "$@"'
        return {"environment": environment, "launcher": ("bash", "-c", script, "bash"), "passed": descriptors}


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path)
    yield made
    for descriptor in list(made.kept.values()):
        os.close(descriptor)


@pytest.mark.parametrize("workers", [1, 2])
def test_restart_refuses_no_request(tmp_path: Path, systemd: Systemd, workers: int) -> None:
    port = free_port()
    stop, failed, served = threading.Event(), [], []

    def client() -> None:
        while not stop.is_set():
            try:
                response = requests.get(f"http://127.0.0.1:{port}/v2.1", headers={"Connection": "close"}, timeout=60)
                served.append(response.status_code)
            except requests.RequestException as error:
                failed.append(error)

    clients = [threading.Thread(target=client) for _ in range(4)]
    with contextlib.ExitStack() as ending:
        first = ending.enter_context(running(tmp_path, port=port, workers=workers, **systemd.options()))
        assert sorted(systemd.kept) == [f"osapi_compute-{number}" for number in range(workers)]
        for thread in clients:
            thread.start()
        try:
            wait_for("requests are served", lambda: len(served) > 20, DEADLINE)
            assert first.end() == 0
            between = len(served)
            ending.enter_context(running(tmp_path, port=port, workers=workers, **systemd.options()))
            wait_for("requests are served again", lambda: len(served) > between + 20, DEADLINE)
        finally:
            stop.set()
            for thread in clients:
                thread.join(DEADLINE)
        assert failed == []
        assert set(served) == {200}


def test_changed_address_or_number_of_workers_takes_new_sockets(tmp_path: Path, systemd: Systemd) -> None:
    with running(tmp_path, workers=2, **systemd.options()) as first:
        assert first.end() == 0
    with running(tmp_path, port=first.port, workers=1, **systemd.options()) as second:
        wait_for("the superfluous socket is forgotten", lambda: list(systemd.kept) == ["osapi_compute-0"], DEADLINE)
        assert [second.get("/v2.1").status_code for _ in range(10)] == [200] * 10
        assert second.end() == 0
    with running(tmp_path, workers=1, **systemd.options()) as third:
        assert third.port != first.port
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", first.port)):
            pass


def test_socket_of_an_api_that_is_not_served_any_more_is_closed(tmp_path: Path, systemd: Systemd) -> None:
    metadata = free_port()
    with running(
        tmp_path,
        enabled_apis="osapi_compute,metadata",
        metadata_listen_port=metadata,
        use_forwarded_for="true",
        **systemd.options(),
    ) as first:
        assert sorted(systemd.kept) == ["metadata-0", "osapi_compute-0"]
        assert first.end() == 0
    with running(tmp_path, port=first.port, **systemd.options()):
        wait_for("it is forgotten", lambda: list(systemd.kept) == ["osapi_compute-0"], DEADLINE)
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", metadata)):
            pass


def test_descriptors_for_another_process_are_not_taken(tmp_path: Path) -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "osapi_compute-0"}
    daemon = Daemon(tmp_path, environment=environment)
    try:
        wait_for("it answers", daemon.answers, DEADLINE)
    finally:
        daemon.process.kill()
        daemon.process.wait(DEADLINE)
