"""Runs tests in a process with green threads, as daemons in eventlet mode have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nova_lite.base import concurrency

ROOT = Path(__file__).parents[2]
#: eventlet replaces calls of the standard library before anything else is imported, so this is another process.
SCRIPT = """
import sys
from nova_lite.base import concurrency
concurrency.setup()
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def run(*files: Path) -> None:
    """Run the tests of these files. Raises AssertionError, with their output, if one fails."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *map(str, files)],
        cwd=ROOT,
        env={**os.environ, concurrency.ENVIRONMENT: concurrency.EVENTLET},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
