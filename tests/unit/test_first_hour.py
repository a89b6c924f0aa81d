"""The example of contributing/first-hour.md: the operation `nap` is added exactly as the page says, and works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/contributing/first-hour.md"

#: Requests the new action on a cloud in one process, and prints the server's status.
USE = """
import sys, tempfile
from pathlib import Path
from nova_lite.base import concurrency
concurrency.setup()
from tests.support.in_process_cloud import InProcessCloud
from tests.support.waiting import wait_for
with tempfile.TemporaryDirectory() as directory:
    cloud = InProcessCloud(Path(directory))
    server_id = cloud.create()
    response = cloud.request("POST", f"/servers/{server_id}/action", {"nap": None})
    print(response.status_code)
    wait_for("the server is paused", lambda: cloud.settled(server_id) == "PAUSED")
    print(cloud.settled(server_id))
    cloud.close()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the checkout and change it as step 4 of the page says."""
    copy = tmp_path_factory.mktemp("first-hour") / "checkout"
    copy.mkdir()
    names = subprocess.run(
        ["git", "-C", str(TOP), "ls-files", "nova_lite", "tests/__init__.py", "tests/support", "etc", "setup.cfg",
         "pyproject.toml", "README.md", "LICENSE", "docs", "tools"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        if (TOP / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((TOP / name).read_bytes())
    lifecycle = copy / "nova_lite/operations/lifecycle.py"
    lifecycle.write_text(_inserted(lifecycle.read_text(), example()))
    table = copy / "nova_lite/operations/__init__.py"
    text = table.read_text()
    text = re.sub(r"\bPAUSE,", "PAUSE, NAP,", text)
    table.write_text(text)
    command = "import setuptools; setuptools.setup()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", command, "-q", "egg_info"], cwd=copy, check=True, timeout=120)
    return copy


def example() -> str:
    """Return the definition that the page shows."""
    found = re.search(r"^    ```text\n(    NAP = .*?)^    ```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, "the page shows no definition of NAP"
    return re.sub(r"^    ", "", found.group(1), flags=re.MULTILINE)


def _inserted(module: str, definition: str) -> str:
    """Insert the definition below ``UNPAUSE``."""
    end = re.search(r"^UNPAUSE = Operation\(\n.*?^\)\n", module, re.MULTILINE | re.DOTALL)
    assert end is not None
    return f"{module[: end.end()]}\n{definition}{module[end.end() :]}"


def run(checkout: Path, code: str) -> list[str]:
    """Return the lines that the code prints with the changed checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_example_operation_is_carried_out(checkout: Path) -> None:
    assert run(checkout, USE) == ["202", "PAUSED"]


def test_example_operation_has_the_next_version_of_the_compute_service(checkout: Path) -> None:
    code = "from nova_lite.rpcapi.compute import CALLS\nfrom nova_lite import operations\n"
    code += "print(operations.compute_version(CALLS))"
    major, minor = run(TOP, code)[0].split(".")
    assert run(checkout, code) == [f"{major}.{int(minor) + 1}"]


def test_example_operation_appears_in_the_reference(checkout: Path) -> None:
    code = "import sys\nfrom nova_lite.cmd import manage\nsys.exit(manage.main(['api', 'reference']))"
    assert any("`nap`" in line for line in run(checkout, code))
