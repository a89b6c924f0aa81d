"""Benchmarks that make a cloud of their own run to their end, in their smallest form: none is broken when it is needed.
What they measure is not looked at. `benchmarks/soak.py` and `atrest.py` are made of what `test_soak.py` tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.functional.cloud import ROOT

#: Each with what it prints at its end.
SMALLEST = {
    "api.py --seconds 0.05 --in-flight 2 --count 2 --computes 1": "memory, MB",
    "boots.py --count 2 --runs 1 --computes 1": '"boots_per_second"',
    "overload.py --seconds 1 --servers 60": "good answers",
    "scheduler.py --hosts 10 --instances 1 --runs 2": '"median_ms"',
    "conductor_socket.py --rounds 1 --requests 1": "list of 50",
    "rpc.py --rounds 1 --calls 20": "with all patches",
    "signing.py --runs 10": "a boot:",
}


@pytest.mark.parametrize("command", SMALLEST)
def test_benchmark_smallest_form_succeeds(command: str) -> None:
    file, *options = command.split()
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", f"{ROOT}/benchmarks/{file}", *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert SMALLEST[command] in ended.stdout
