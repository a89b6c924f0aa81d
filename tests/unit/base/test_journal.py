"""Priorities of lines in systemd's journal."""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path

import pytest

from nova_lite.base import journal


def let_journal_read(stream: io.TextIOBase, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstat(stream.fileno())
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")


@pytest.mark.parametrize(
    ("level", "priority"),
    [(5, 7), (logging.DEBUG, 7), (logging.INFO, 6), (21, 5), (logging.WARNING, 4), (logging.ERROR, 3), (50, 2)],
)
def test_line_has_the_priority_of_its_level(level: int, priority: int) -> None:
    assert journal.with_priority("text", level) == f"<{priority}>text"


def test_each_line_of_a_traceback_has_the_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.Logger("test")
    with open(tmp_path / "stream", "w+") as stream:
        logger.addHandler(logging.StreamHandler(stream))
        let_journal_read(stream, monkeypatch)
        journal.add_priorities(logger)
        try:
            raise ValueError("one\ntwo")
        except ValueError:
            logger.exception("It failed")
        logger.info("%s", "fine")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines[0] == "<3>It failed"
    assert lines[-3:] == ["<3>ValueError: one", "<3>two", "<6>fine"]
    assert all(line.startswith("<3>") for line in lines[:-1])


def test_stream_that_the_journal_does_not_read_gets_no_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.Logger("test")
    for variable in (None, "", "1:2", "what"):
        if variable is None:
            monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        else:
            monkeypatch.setenv("JOURNAL_STREAM", variable)
        with open(tmp_path / "stream", "w+") as stream:
            handler = logging.StreamHandler(stream)
            logger.addHandler(handler)
            journal.add_priorities(logger)
            logger.error("text")
            logger.removeHandler(handler)
            stream.seek(0)
            assert stream.read() == "text\n"
    assert journal.leads_there(io.StringIO()) is False


def test_error_text_for_stderr_has_a_priority_in_the_journal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "stream", "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert journal.error("why\nnot") == "why\nnot"
        let_journal_read(stream, monkeypatch)
        assert journal.error("why\nnot") == "<3>why\n<3>not"
