"""Failpoints in the test's own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import failpoints
from tests.support.clock import ShiftedTime

DAEMON = "compute-1"


class Rules:
    """The control file: rules for `DAEMON`, and the points that it has passed. ``time``: the clock of their effects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time = ShiftedTime()
        self._passed = Path(f"{path}.passed")
        self._passed.touch()

    def arm(self, point: str, effect: str, **more: Any) -> None:
        """Replace the rules by this one. It fires once."""
        self._file("fired").unlink(missing_ok=True)
        rule = {"id": "1", "daemon": "compute-*", "point": point, "effect": effect, "seconds": 10.0, **more}
        self.path.write_text(json.dumps([rule]))

    def has_fired(self) -> bool:
        return self._file("fired").exists()

    def release(self) -> None:
        self._file("release").touch()

    def passed(self) -> list[str]:
        """Return the points that were passed, in order."""
        return [line.removeprefix(f"{DAEMON} ") for line in self._passed.read_text().splitlines()]

    def _file(self, suffix: str) -> Path:
        return Path(f"{self.path}.1.{suffix}")


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Switch failpoints on. Seams are installed in what is made from now on."""
    path = tmp_path / "failpoints.json"
    monkeypatch.setattr(failpoints, "_control", str(path))
    monkeypatch.setattr(failpoints, "_full_until", 0.0)
    monkeypatch.setenv(failpoints.DAEMON, DAEMON)
    made = Rules(path)
    monkeypatch.setattr(failpoints, "time", made.time)
    return made
