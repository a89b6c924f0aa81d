"""The tests of the HTTP server and of uploads, with green threads as the server's executor."""

from __future__ import annotations

from pathlib import Path

from tests.support import green_threads

HERE = Path(__file__).parent


def test_server_with_green_threads_passes_its_tests() -> None:
    green_threads.run(
        HERE / "test_server.py", HERE / "image" / "test_uploads.py", HERE / "metadata" / "test_networks.py"
    )
