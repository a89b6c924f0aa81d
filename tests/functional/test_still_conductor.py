"""Two conductors, of which one stands still, as a stopped process does: the other one answers reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.functional.cloud import Cloud

#: More than the threads of an API, so that some wait for a thread.
READS = 60


@pytest.fixture(params=["broker", "socket"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Cloud, str]]:
    """Run a cloud with two conductors. Return the name of the first, too, which will stand still.

    ``socket``: the API reaches it by a socket.
    """
    directory = tmp_path / "socket"
    directory.mkdir(mode=0o700)
    # A read would fail after this time without a reply.
    extra = "[DEFAULT]\nrpc_response_timeout = 20\nservice_down_time = 120\n[api]\nworkers = 1\n"
    extra += f"[rpc]\nconductor_socket = {directory}/conductor\n" if request.param == "socket" else ""
    made = Cloud(tmp_path, more=("conductor-2",), extra_config=extra)
    try:
        made.make()
        if request.param == "socket":
            config = tmp_path / "conductor-2.conf"
            config.write_text(config.read_text().replace(f"{directory}/conductor", f"{directory}/other"))
        made.start_all()
        yield made, "conductor"
    finally:
        made.destroy()


def test_reads_while_a_conductor_stands_still_are_answered_by_the_other_one(cloud: tuple[Cloud, str]) -> None:
    made, still = cloud
    os.kill(made.processes[still].pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(READS) as pool:
            paths = ["/servers/detail", "/flavors/detail", "/os-keypairs", "/limits"] * (READS // 4)
            found = list(pool.map(lambda path: made.request("GET", path, timeout=120), paths))
    finally:
        os.kill(made.processes[still].pid, signal.SIGCONT)
    assert [response.text for response in found if response.status_code != 200] == []
