"""Tasks in virtual time: what a seed decides, and what a death leaves behind."""

from __future__ import annotations

import pytest

from tests.simulation import plan as plans
from tests.simulation import primitives, runs
from tests.simulation.scheduler import Process, Scheduler, Stuck


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(1)
    monkeypatch.setattr(primitives.WORLD, "sim", made)
    return made


def order_of(seed: int) -> tuple[str, str]:
    """Return the order of three tasks, and the hash of their run."""
    sim, seen = Scheduler(seed), ""

    def work(name: str) -> None:
        nonlocal seen
        for _ in range(3):
            sim.sleep(1.0)
            seen += name
        if len(seen) == 9:
            sim.finish()

    process = Process("one")
    for name in "abc":
        sim.spawn(process, lambda name=name: work(name), name)  # type: ignore[misc]
    sim.run(10.0)
    return seen, sim.trace


def test_order_of_tasks_depends_on_the_seed_alone() -> None:
    assert order_of(1) == order_of(1)
    assert len({order_of(seed)[0] for seed in range(10)}) > 1


def test_clock_without_ready_tasks_jumps(sim: Scheduler) -> None:
    def work() -> None:
        sim.sleep(5000.0)
        sim.finish()

    sim.spawn(Process("one"), work, "main")
    sim.run(6000.0)
    assert sim.now == pytest.approx(5000.0, abs=0.01)
    assert sim.switches == 2


def test_run_that_never_ends_is_stuck(sim: Scheduler) -> None:
    sim.spawn(Process("one"), sim.wait, "main")
    with pytest.raises(Stuck):
        sim.run(10.0)


def test_process_that_dies_does_nothing_and_holds_no_lock_of_the_simulation(sim: Scheduler) -> None:
    lock, done = primitives.Lock(), []
    victim = Process("victim")

    def die() -> None:
        try:
            with lock:
                victim.fuse = 1
                sim.point()
                done.append("victim")
        finally:
            done.append("cleaned up")

    def survive() -> None:
        sim.sleep(1.0)
        with lock:
            done.append("survivor")
        sim.finish()

    sim.spawn(victim, die, "main")
    sim.spawn(Process("survivor"), survive, "main")
    sim.run(10.0)
    assert done == ["survivor"]


def test_lock_with_a_timeout_is_waited_for_in_virtual_time(sim: Scheduler) -> None:
    lock, seen = primitives.Lock(), []

    def hold() -> None:
        with lock:
            sim.sleep(5.0)

    def wait() -> None:
        sim.sleep(1.0)
        seen.extend([lock.acquire(timeout=2.0), lock.acquire(timeout=10.0)])
        sim.finish()

    process = Process("one")
    sim.spawn(process, hold, "hold")
    sim.spawn(process, wait, "wait")
    sim.run(20.0)
    assert seen == [False, True]
    assert sim.now == pytest.approx(5.0, abs=0.01)


def test_clock_of_sqlite_is_the_virtual_one(sim: Scheduler) -> None:
    assert primitives.strftime("%Y-%m-%d %H:%M:%f000", "now") == "2027-01-15 08:16:40.000000"
    assert primitives.strftime("%Y-%m-%d %H:%M:%f000", "now", "2.5 seconds") == "2027-01-15 08:16:42.500000"


def test_plan_is_shrunk_to_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = next(plan for plan in map(plans.make, range(200)) if len(plan.faults) > 3 and len(plan.asks) > 6)
    fault, ask = plan.faults[2], plan.asks[-1]

    def run(made: object, plan: plans.Plan, change: object = None) -> runs.Result:
        is_bad = fault in plan.faults and ask in plan.asks
        return runs.Result(plan.seed, "", ["bad"] if is_bad else [], 0, 0.0, 0, 0.0)

    monkeypatch.setattr(runs, "run", run)
    smallest = runs.shrink(None, plan)  # type: ignore[arg-type]
    assert smallest.faults == (fault,)
    assert {item.server for item in smallest.asks} == {ask.server}
    assert ask in smallest.asks and len(smallest.asks) <= 2
