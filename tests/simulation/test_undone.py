"""A past fault changes the code of one run, and of nothing else."""

from __future__ import annotations

import pytest

from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.manager import ComputeManager
from nova_lite.conductor.engine.keyed_executor import KeyedExecutor
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.conductor.hosts import domains
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.db.core import actions
from nova_lite.db.hosts import hosts, services
from nova_lite.operations.types import Operation
from nova_lite.scheduler import hosts as scheduler_hosts
from nova_lite.scheduler.hosts import HostView
from tests.simulation import bus, undone

#: Places that past faults change.
PLACES = (
    (FencingTokenStore, "_write"),
    (ComputeManager, "prune_fencing_records"),
    (Reconciler, "_expire_services"),
    (services, "silent_before"),
    (services, "report_alive"),
    (actions, "last_order"),
    (HostView, "known_generations"),
    (domains, "_follow"),
    (Operation, "step"),
    (Operation, "last_sequence"),
    (hosts, "check_epoch"),
    (scheduler_hosts, "_is_newer"),
    (FencingTokenStore, "mark_removed"),
    (bus.SimulatedTransport, "call"),
    (actions, "retry_lease"),
    (KeyedExecutor, "is_running"),
    (Transitions, "pass_forced_down_host"),
)


def places() -> list[object]:
    return [getattr(owner, name) for owner, name in PLACES]


@pytest.mark.parametrize("name", sorted(undone.PAST_FAULTS))
def test_past_fault_changes_the_code_of_its_run_alone(name: str) -> None:
    before = places()
    fault = undone.UNDONE[name]()
    assert places() == before
    with fault:
        pass
    assert places() == before
