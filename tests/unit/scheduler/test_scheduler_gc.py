"""Full garbage collections in the scheduler daemon."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from nova_lite.cmd import scheduler

gc.set_threshold(700, 10, 10)  # Python's defaults: more often than in daemons
if {by_the_clock}:
    scheduler.disable_automatic_full_collections()
collections = lambda: gc.get_stats()[2]["collections"]
gc.collect()
before = collections()
kept = []
for _ in range(30):
    kept.append([[] for _ in range(20000)])
scheduler.collect_fully() if {by_the_clock} else None
print(collections() - before)
"""


def full_collections(by_the_clock: bool) -> int:
    """Return the number of full collections while 600,000 objects are made and kept."""
    command = [sys.executable, "-c", SCRIPT.format(by_the_clock=by_the_clock)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_full_collections_happen_by_the_clock_only() -> None:
    assert full_collections(by_the_clock=True) == 1
    assert full_collections(by_the_clock=False) > 1
