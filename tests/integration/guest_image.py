"""Files of the test guest, built as devstack/stack.sh builds them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

DEVSTACK = Path(__file__).parents[2] / "devstack"
BUILD = DEVSTACK / "guest" / "build.sh"
#: Fetches the kernel as stack.sh does, into a directory of the tests.
_SOURCE = """
for component in common packages guest; do source {devstack}/lib/$component.sh; done
GUEST={directory}
"""
FETCH_KERNEL = _SOURCE + "fetch_kernel"
FETCH_ARM = _SOURCE + "fetch_parts_of arm64"
STACK_KERNEL = Path("/opt/nova-lite/guest/kernel")


def build(directory: Path) -> Path:
    """Return the files of the guest, built from this machine's kernel, from stack.sh's, or from a downloaded one."""
    environment = dict(os.environ)
    if (STACK_KERNEL / "boot").is_dir():
        environment.setdefault("KERNEL_ROOT", str(STACK_KERNEL))
    elif "KERNEL_ROOT" not in environment and not list(Path("/boot").glob("vmlinuz-*-cloud-amd64")):
        script = FETCH_KERNEL.format(devstack=DEVSTACK, directory=directory / "fetched")
        _must_succeed(["bash", "-c", script], environment)
        environment["KERNEL_ROOT"] = str(directory / "fetched" / "kernel")
    _must_succeed([str(BUILD), str(directory / "guest")], environment)
    return directory / "guest"


def build_arm(directory: Path) -> Path:
    """Return the files of the guest of the architecture aarch64, whose parts are downloaded."""
    environment = dict(os.environ)
    _must_succeed(["bash", "-c", FETCH_ARM.format(devstack=DEVSTACK, directory=directory)], environment)
    environment |= {"ARCHITECTURE": "aarch64", "KERNEL_ROOT": str(directory / "arm64")}
    environment["BUSYBOX"] = str(directory / "arm64/bin/busybox")
    _must_succeed([str(BUILD), str(directory / "arm-guest")], environment)
    return directory / "arm-guest"


def _must_succeed(command: list[str], environment: dict[str, str]) -> None:
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        errors = (made.stderr.strip() or made.stdout.strip()).splitlines()[-5:]
        pytest.skip(
            f"the guest image cannot be built here ('devstack/test.sh integration' installs what it needs): {errors}"
        )
