"""The real conductor and two real compute hosts in one process, with what happens between them in any order.

Messages are delivered late, twice or never; hosts fail or stand still at a step, are killed there or around a report,
are forced down and come back; leases and deadlines pass. At every step no instance is on two hosts, none is on a host
that it holds nothing of, and the database's invariants hold; in the end everything settles, and the hypervisors hold
just what the rows say. The past of each server is then read as it was dumped after each transaction.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.control_plane_machine import ControlPlane

#: Runs with seeds of their own, and examples of each. A long one has about 50 servers.
RUNS, EXAMPLES = (20, 15) if os.environ.get("NOVA_LITE_LONG") == "1" else (1, 7)


@pytest.mark.parametrize("run", range(RUNS))
def test_any_order_settles(run: int) -> None:
    run_state_machine_as_test(
        seed(run)(type("Seeded", (ControlPlane,), {})),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
