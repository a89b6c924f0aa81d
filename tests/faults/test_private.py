"""Servers of a test's own end with it, whatever its threads still want of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults import private


class Idle(private.Server):
    def command(self) -> list[str]:
        return ["sleep", "600"]

    def serves(self) -> bool:
        return self._process is not None


def test_private_namespace_starts_nothing_after_its_end(tmp_path: Path) -> None:
    with Idle(tmp_path) as server:
        server.restart(0.0)
        pid = server.pid
    with pytest.raises(RuntimeError, match="is closed"):
        server.start()
    with pytest.raises(AssertionError, match="does not run"):
        server.pid  # noqa: B018
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Ended(Idle):
    """Server that ends at once."""

    def command(self) -> list[str]:
        return ["false"]

    def serves(self) -> bool:
        assert self._process is not None
        self._process.wait(30)
        raise AssertionError("it has ended, and this is why")


def test_server_that_ends_at_its_start_raises_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="and this is why"), Ended(tmp_path):
        pass


def test_databases_that_are_not_made_at_once_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [1, 0, 1, 1]

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, answers.pop(0), "said", "why")

    monkeypatch.setattr(private.shutil, "which", lambda name: name)
    monkeypatch.setattr(private.subprocess, "run", run)
    monkeypatch.setattr(private, "RETRY_SECONDS", 0.0)
    private.PrivateDatabase(tmp_path / "second")
    assert answers == [1, 1]
    with pytest.raises(RuntimeError, match="status 1\nsaidwhy"):
        private.PrivateDatabase(tmp_path / "never")
