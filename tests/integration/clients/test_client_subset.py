"""Tests of openstacksdk and Tempest against a cloud in one process, as devstack/lib/client_subset.yaml lists them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
GROUPS: list[dict[str, Any]] = yaml.safe_load((ROOT / "devstack/lib/client_subset.yaml").read_text())
#: Tests of the clients beside other tests on two cores, and the installation.
LIMIT = 850


@pytest.fixture(scope="module")
def output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the groups that are to be tested, all against one cloud, and return what the command prints."""
    module = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.path == Path(__file__)
    ]
    names = [item.callspec.params["group"] for item in module if "group" in item.fixturenames]
    cloud = f"env PYTHONPATH={ROOT} {sys.executable} -W ignore -m nova_lite.cmd.dev"
    command = [ROOT / "devstack/clients.sh", "--directory", tmp_path_factory.mktemp("clients"), "--nova-lite", cloud]
    finished = subprocess.run([*command, "--subset", *names], capture_output=True, text=True, timeout=LIMIT)
    assert "openstacksdk: " in finished.stdout or "tempest: " in finished.stdout, finished.stdout + finished.stderr
    yield finished.stdout


@pytest.mark.parametrize("group", [group["group"] for group in GROUPS])
def test_client_tests_of_a_group_pass(group: str, output: str) -> None:
    assert [line for line in output.splitlines() if line.startswith(f"{group}: ")] == []
