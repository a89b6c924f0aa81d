from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.functional.conftest import broker

__all__ = ["broker"]

#: Seconds for a test and the servers that it begins with.
PATIENCE = 900
LONGEST = "test_a_sample_of_the_matrix"
#: Tests that each have a cloud of their own.
APART = (
    f"test_matrix.py::{LONGEST}",
    "test_contention.py::",
    "test_controls.py::",
    "test_history.py::",
    "test_kill.py::",
)


class _Apart(LoadFileScheduling):
    """A file's tests stay with one worker, as they may share a cloud; those of `APART` do not."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if any(f"/{name}" in nodeid for name in APART) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Apart | None:
    return _Apart(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests: the longest begin first, so that no worker ends alone with one. Raise the timeouts for slow
    machines.
    """
    here = [index for index, item in enumerate(items) if item.path.is_relative_to(Path(__file__).parent)]
    ordered = sorted((items[index] for index in here), key=lambda item: not item.name.startswith(LONGEST))
    for index, item in zip(here, ordered, strict=True):
        items[index] = item
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))
