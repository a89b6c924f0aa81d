"""The tests of the HTTP server and of uploads, with green threads as the server's executor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nova_lite.base import concurrency

HERE = Path(__file__).parent
#: eventlet replaces calls of the standard library before anything else is imported, so this is another process.
SCRIPT = """
import sys
from nova_lite.base import concurrency
concurrency.setup()
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_server_with_green_threads_passes_its_tests() -> None:
    files = [str(HERE / "test_server.py"), str(HERE / "image" / "test_uploads.py")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *files],
        cwd=HERE.parents[2],
        env={**os.environ, concurrency.ENVIRONMENT: concurrency.EVENTLET},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
