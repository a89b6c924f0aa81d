"""The stage `long` of test.sh runs each script that tests a cloud with services of OpenStack's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]


def run_long(directory: Path, scripts: dict[str, str]) -> tuple[int, list[str]]:
    """Run the stage in a checkout with these scripts; return its status and what they printed."""
    (directory / "devstack").mkdir()
    for name, text in scripts.items():
        path = directory / "devstack" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    files = "".join(f"source {TOP}/devstack/lib/{name}.sh; " for name in ("common", "testing"))
    script = f"{files} TOP={directory} FAILURES={directory}/failures UNSTEADY={directory}/unsteady; stage_long"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    return said.returncode, [line for line in said.stdout.splitlines() if not line.startswith("[")]


def test_long_stage_runs_every_script_and_no_other(tmp_path: Path) -> None:
    scripts = {"test-a.sh": "echo a", "test-b.sh": "echo b", "test.sh": "echo never", "stack.sh": "echo never"}
    assert run_long(tmp_path, scripts) == (0, ["a", "b"])


@pytest.mark.parametrize("failing", ["test-a.sh", "test-b.sh"])
def test_long_stage_with_a_script_that_fails_runs_the_others_and_fails(tmp_path: Path, failing: str) -> None:
    scripts = {"test-a.sh": "echo a", "test-b.sh": "echo b"}
    scripts[failing] += "; exit 1"
    assert run_long(tmp_path, scripts) == (1, ["a", "b"])


def test_long_stage_tells_scripts_where_failures_are_collected(tmp_path: Path) -> None:
    told = 'echo "$FAILURES" "$UNSTEADY" "$MAX_AGAIN"'
    assert run_long(tmp_path, {"test-a.sh": told}) == (0, [f"{tmp_path}/failures {tmp_path}/unsteady 3"])


def test_page_of_tests_has_every_script_of_the_long_stage() -> None:
    page = (TOP / "docs/contributing/tests.md").read_text()
    scripts = sorted(path.name for path in (TOP / "devstack").glob("test-*.sh"))
    assert len(scripts) > 3
    assert [name for name in scripts if name not in page] == []


@pytest.mark.parametrize("script", sorted((TOP / "devstack").glob("test-*.sh")), ids=lambda path: path.name)
def test_script_of_the_long_stage_refuses_arguments(script: Path) -> None:
    """Read, not run: a script that ignores them would stack this machine."""
    assert script.read_text().splitlines().count('no_arguments "$@"') == 1
