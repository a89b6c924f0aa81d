"""Stages of test.sh run in two lanes, and the driver's tests in two rows: what is free takes what has not begun."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).parents[3]
STAGES = ["lint", "unit", "functional", "faults", "security", "integration"]
#: Instead of devstack/lib. The first stage ends when the other lane has begun the last one.
STUBS = """
TOP=$(pwd) MAX_AGAIN=0 TEST_VENV=$(pwd) TEST_DATABASE=none ALL_STAGES=(%s)
need_root() { :; }
say() { echo "$*"; }
step() { :; }
clock() { echo 0; }
drop_test_databases() { :; }
remove_tree() { :; }
die() { echo "$*"; exit 1; }
noted() { echo "$1" >>ran; }
stage_lint() { noted lint; }
stage_unit() { noted unit; until grep -q security ran; do sleep 0.05; done; }
stage_functional() { noted functional; }
stage_faults() { noted faults; return "${FAULTS:-0}"; }
stage_security() { noted security; }
stage_integration() { noted integration; }
"""


def run(directory: Path, *arguments: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run test.sh with stages that do nothing; return its status, its output and the stages in their order."""
    library = directory / "devstack/lib"
    library.mkdir(parents=True)
    shutil.copy(TOP / "devstack/test.sh", library.parent)
    for path in (TOP / "devstack/lib").glob("*.sh"):
        (library / path.name).touch()
    (library / "common.sh").write_text(STUBS % " ".join(STAGES))
    done = subprocess.run(
        ["bash", library.parent / "test.sh", *arguments],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, (directory / "ran").read_text().split()


def test_lane_that_is_free_takes_the_last_stage_and_each_stage_runs_once(tmp_path: Path) -> None:
    status, said, ran = run(tmp_path)
    assert (status, sorted(ran), ran[0]) == (0, sorted(STAGES), "lint")
    assert ran.index("security") < ran.index("functional")
    assert [line.split()[:2] for line in said.splitlines()[-len(STAGES) - 1 : -1]] == [
        [stage, "passed"] for stage in STAGES
    ]


def test_stage_that_fails_fails_the_run_and_keeps_no_other_from_running(tmp_path: Path) -> None:
    status, said, ran = run(tmp_path, FAULTS="3")
    assert (status, sorted(ran)) == (1, sorted(STAGES))
    assert "failed: faults (after 0)" in said


def test_stages_without_integration_run_in_one_lane(tmp_path: Path) -> None:
    status, said, ran = run(tmp_path, "functional", "faults", "security")
    assert (status, ran) == (0, ["functional", "faults", "security"])
    assert "beside" not in said


def test_each_test_of_the_driver_is_in_one_part_and_runs_once(tmp_path: Path) -> None:
    noted = f'run_tests() {{ printf "%s\\n" "$@" | grep -v -- --ignore >>{tmp_path}/ran; }}'
    files = "".join(f"source {TOP}/devstack/lib/{name}.sh; " for name in ("common", "testing"))
    script = (
        f"{files} {noted}; cd {TOP}; mkdir {tmp_path}/begun; for row in 1 2; do driver_tests {tmp_path}/begun; done"
    )
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    ran = [line for line in (tmp_path / "ran").read_text().split() if "kvm_device" not in line]
    tests = {str(path.relative_to(TOP)) for path in (TOP / "tests/integration/libvirt").glob("test_*.py")}
    assert sorted(ran) == sorted(tests - {"tests/integration/libvirt/test_kvm_device.py"})
