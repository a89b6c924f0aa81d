"""The tools of a newcomer: they run as their pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def run(tool: str, *arguments: str) -> str:
    """Return what a tool prints; fail if it does not succeed."""
    command = [sys.executable, "-W", "ignore", str(TOP / "tools" / tool), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_trace_of_pause_shows_every_daemon_on_the_way() -> None:
    printed = run("trace", "pause")
    assert printed.index("[api]") < printed.index("[conductor]") < printed.index("[compute]")
    for file in ("nova_lite/api/http/router.py", "nova_lite/rpc/client.py", "nova_lite/virt/fake.py"):
        assert f"\n{file}:" in printed
    assert "FakeStandby.pause" in printed


def test_trace_files_of_create_include_the_scheduler() -> None:
    printed = run("trace", "--files", "create")
    assert "nova_lite/scheduler/core.py" in printed.splitlines()


def test_trace_summary_counts_each_daemon() -> None:
    rows = {line.split()[0]: line.split()[1:] for line in run("trace", "--summary", "pause").splitlines()}
    assert {"api", "conductor", "compute"} <= rows.keys()
    assert all(int(count) > 0 for count in rows["compute"])


@pytest.mark.parametrize(("request_name", "functions", "files"), [("create", 233, 61), ("pause", 145, 47)])
def test_request_until_its_response_meets_few_functions_and_files(
    request_name: str, functions: int, files: int
) -> None:
    """A commit that raises a limit says why. Receivers of casts do not count: the response does not wait for them.

    On a busy machine, decisions of policies become a second old and are made again. So the best of three traces counts.
    """
    for _ in range(3):
        (row,) = [line for line in run("trace", "--summary", request_name).splitlines() if line.startswith("until the")]
        met = [int(figure) for figure in row.removeprefix("until the response").split()]
        if met[1] <= functions and met[2] <= files:
            return
    raise AssertionError(f"{met[1]} functions in {met[2]} files")


def test_trace_of_an_unknown_request_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, str(TOP / "tools/trace"), "dance"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "choose from" in done.stderr


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('def f():\n    """What is there."""\n', "opening"),
        ('def f():\n    """The rows."""\n', "verb"),
        ("def test_what_is_refused():\n    pass\n", "test"),
        ('def f():\n    """Return rows. ' + "word " * 40 + '."""\n', "sentence"),
        ('def f():\n    """Return rows, so that the caller is told of them."""\n', "word"),
        ('def f():\n    """Return rows that nobody needs."""\n', "word"),
        ('def f():\n    """Return rows, which somebody reads."""\n', "word"),
        ('def f():\n    """Return what this machine has of the cloud."""\n', "word"),
        ('def f():\n    """Return those of the host."""\n', "word"),
        ('def f():\n    """Return rows. Those of a host stay."""\n', "word"),
        ('def f():\n    """Return whether the step goes on."""\n', "word"),
        ('def f():\n    """Connect anew."""\n', "word"),
        ('def f():\n    """Return users, told by hosts."""\n', "word"),
    ],
)
def test_prose_finding_of_a_rule_is_printed(text: str, rule: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "tools").mkdir(parents=True)
    for name in ("prose.py", "verbs.txt"):
        (checkout / "tools" / name).write_text((TOP / "tools" / name).read_text())
    (checkout / "bad.py").write_text(text)
    subprocess.run(["git", "init", "-q", str(checkout)], check=True, timeout=60)
    command = [sys.executable, str(checkout / "tools/prose.py"), str(checkout / "bad.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == [rule]


@pytest.mark.parametrize(
    "text",
    ["Return a version older than that of the host.", "Return what the host has done.", "Return the unit `nobody`."],
)
def test_prose_has_no_finding_for_comparisons_verbs_and_code(text: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("prose.py", "verbs.txt"):
        (tmp_path / "tools" / name).write_text((TOP / "tools" / name).read_text())
    (tmp_path / "good.py").write_text(f'def f():\n    """{text}"""\n')
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=60)
    command = [sys.executable, str(tmp_path / "tools/prose.py"), str(tmp_path / "good.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("code", "seam"),
    [
        ("import time\ntime.monotonic()\n", "clock"),
        ("from time import sleep as wait\nwait(1)\n", "clock"),
        ("import datetime as d\nd.datetime.now(d.UTC).timestamp()\n", "clock"),
        ("import uuid\nstr(uuid.uuid4())\n", "ids"),
        ("from random import Random\ndef f(source: Random): ...\n", "randomness"),
        ("import threading\nthreading.Thread(target=print).start()\n", "threads"),
        ("from concurrent import futures\nfutures.ThreadPoolExecutor()\n", "threads"),
        ("import time\nimport uuid\ntime.strftime('%H')\nuuid.UUID('1')\n", ""),
        ("from nova_lite.base import clock\nclock.monotonic()\n", ""),
    ],
)
def test_seams_use_of_a_name_is_found_once(code: str, seam: str, tmp_path: Path) -> None:
    assert [line.rpartition("/")[2] for line in seams(tmp_path, code, "")] == ([f"{seam}.py"] if seam else [])


def test_seams_list_shrinks_and_never_grows(tmp_path: Path) -> None:
    code = "import uuid\nuuid.uuid4()\n"
    assert seams(tmp_path, code, "nova_lite/code.py ids 1\n") == []
    (finding,) = seams(tmp_path, code, "nova_lite/code.py ids 2\n")
    assert "more than there are" in finding
    assert seams(tmp_path, code, "nova_lite/code.py ids 2\n", "--write") == []
    assert (tmp_path / "tools/seams.txt").read_text() == "nova_lite/code.py ids 1\n"
    assert len(seams(tmp_path, f"{code}uuid.uuid4()\n", "nova_lite/code.py ids 1\n", "--write")) == 2
    assert (tmp_path / "tools/seams.txt").read_text() == "nova_lite/code.py ids 1\n"


def seams(top: Path, code: str, listed: str, *arguments: str) -> list[str]:
    """Return the findings in a checkout with one file of code and this list."""
    for folder in ("tools", "nova_lite"):
        (top / folder).mkdir(exist_ok=True)
    tool = top / "tools/seams.py"
    tool.write_text((TOP / "tools/seams.py").read_text())
    tool.with_suffix(".txt").write_text(listed)
    (top / "nova_lite/code.py").write_text(code)
    done = subprocess.run([sys.executable, str(tool), *arguments], capture_output=True, text=True, timeout=60)
    *findings, _ = done.stderr.splitlines()
    assert done.returncode == bool(findings)
    return findings


def test_package_has_no_import_cycles() -> None:
    """A package and its modules count, too; the linter compares siblings only."""
    program = "import tools.measure as measure; print(measure._cycles())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=TOP, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
