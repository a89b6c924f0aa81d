"""Processes that are ended because they stand still, and processes that are not."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from nova_lite.backups.repository import Repositories
from nova_lite.backups.watched_process import Stall, WatchedProcess
from nova_lite.base import exceptions
from tests.support.waiting import wait_for

#: Seconds without progress that end a process, in tests that wait for it, and in tests in which it never comes.
SOON, NEVER = 0.3, 600.0
#: A process with a child in its group. Both wait for ever, and do not look at their input.
HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
child.wait()
"""


@pytest.fixture
def errors() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *arguments)


@pytest.mark.parametrize("act", ["write", "read", "wait"])
def test_process_that_stands_still_is_ended_with_its_children(tmp_path: Path, errors: IO[bytes], act: str) -> None:
    known = tmp_path / "pids"
    with WatchedProcess(python(HANGS, str(known)), os.environ, NEVER, errors, has_input=True) as process:
        wait_for("the process runs", known.exists, 30)
        process._limit = SOON
        with pytest.raises(exceptions.BackupRepositoryStalled):
            {"write": lambda: process.write(bytes(10**6)), "read": process.read_all, "wait": process.wait}[act]()
        assert process.has_ended(0)
    for pid in known.read_text().split():
        wait_for("the process is gone", functools.partial(is_gone, pid), 30)


def is_gone(pid: str) -> bool:
    """Return whether a process is gone. It may be a zombie that its new parent has not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_stall_is_too_long_only_after_its_limit_without_a_further_byte() -> None:
    looks = [(9.0, 1), (18.0, 2), (27.0, 2), (28.0, 3), (37.0, 3), (38.0, 3)]
    times = iter([0.0, *(time for time, _ in looks)])
    stall = Stall(10.0, 0, lambda: next(times))
    assert [stall.is_too_long(moved) for _, moved in looks] == [False, False, False, False, False, True]


def test_bytes_of_a_process_are_counted_although_its_caller_moves_none(tmp_path: Path, errors: IO[bytes]) -> None:
    """The process writes a file, as restic writes to its repository after its input has ended."""
    code = (
        "import sys\nsys.stdin.buffer.read(1)\nopen(sys.argv[1], 'wb').write(bytes(10**6))\nprint('done', flush=True)\n"
    )
    command = python(code + "sys.stdin.buffer.read(1)", str(tmp_path / "file"))
    with WatchedProcess(command, os.environ, NEVER, errors, has_input=True) as process:
        before = process.moved()
        process.write(b"x")
        assert process.read(5) == b"done\n"
        assert process.moved() - before >= 10**6
        process.write(b"x")
        assert process.wait() == 0


def test_data_go_through_a_process(errors: IO[bytes]) -> None:
    data = os.urandom(3 * 10**6)
    with tempfile.TemporaryFile() as output:
        with WatchedProcess(("cat",), os.environ, NEVER, errors, output, has_input=True) as process:
            process.write(data)
            process.close_input()
            assert process.wait() == 0
        output.seek(0)
        assert output.read() == data


def test_output_is_read_to_its_end(errors: IO[bytes]) -> None:
    with WatchedProcess(("head", "-c", "3000000", "/dev/zero"), os.environ, NEVER, errors) as process:
        assert [len(process.read(2_000_000)), len(process.read(2_000_000)), len(process.read(1))] == [
            2_000_000,
            10**6,
            0,
        ]
        assert process.wait() == 0


def test_process_that_has_ended_takes_no_input(errors: IO[bytes]) -> None:
    with WatchedProcess(("false",), os.environ, NEVER, errors, has_input=True) as process:
        with pytest.raises(BrokenPipeError):
            process.write(bytes(10**6))
        assert process.wait() == 1


def test_repository_whose_program_stands_still_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "restic"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    repository = Repositories(str(tmp_path), str(program), str(tmp_path), SOON).of_project("p1", may_be_missing=True)
    with pytest.raises(exceptions.BackupRepositoryStalled, match="moved no data"):
        repository.store("one", lambda target: None)


#: Looks at an ended process that no process has waited for, as a user who is not root.
LOOKS = """
import os, sys, tempfile, time
from nova_lite.backups.watched_process import WatchedProcess
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
with WatchedProcess(("true",), os.environ, 600.0, sys.stderr.buffer) as process:
    os.waitid(os.P_PID, process._process.pid, os.WEXITED | os.WNOWAIT)
    print(process.moved(), process.wait(), process.moved())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_ended_process_of_an_ordinary_user_moves_nothing_more() -> None:
    """Its counters are for root only."""
    done = subprocess.run(python(LOOKS), capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("0 0 0\n", "")
