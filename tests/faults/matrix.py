"""The fault matrix: each operation, with one fault (or two) at each point it passes.

A case makes a fault happen once (`nova_lite.base.failpoints`) while its scenario runs on a cloud of real daemons
with fake hypervisors. It restarts killed daemons as systemd would. It passes if

- the fault did happen;
- each accepted request ends as requested without help: ACTIVE, SHUTOFF, or gone; past its deadline, as
  failed, with its cause;
- at no time is an instance on two hosts. At no time is more used on a host than it has, or a task state without an
  open action (sampled every 100 ms). The rows agree (sampled every second);
- in the end, before anything is deleted, no action is open. The hypervisors hold exactly the guests of the rows.
  Power states agree with the API and the vm states. Claims and addresses are the servers'. The audit and
  ``audit --trace`` find nothing. Every image is active, and the store has exactly their files;
- after deletes no disk, interface, address, claim or quota is left, and the audit finds nothing;
- the trace of each server is a path of the protocol's model (`tests.model.daemons`), up to its first operation that
  the model does not have.

A case without a fault (``by itself``) also fails if its scenario does not pass a named point, or passes a
transaction that is in no table.

``python -m tests.faults.matrix --help`` runs it. A further operation is a definition of `nova_lite.operations`, or a
scenario (`tests/faults/scenarios.py`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

from tests.faults import images, points
from tests.faults.arena import Arena, Site, arena
from tests.faults.outages import DATABASE
from tests.faults.points import Fault
from tests.faults.report import Result, Table, passed_before
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.model.daemons import Judgement
from tests.support.waiting import wait_for


@dataclasses.dataclass(frozen=True)
class Case:
    scenario: Scenario
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return f"{self.scenario.name}: {' + '.join(map(str, self.faults)) or self.fault}"

    @property
    def fault(self) -> str:
        """Return the fault's name in the table; all pairs share one. A scenario can be a fault itself."""
        if not self.faults:
            return "by itself"
        return self.faults[0].effect if len(self.faults) == 1 else f"any {len(self.faults)} faults"

    @property
    def site(self) -> Site:
        """Return the requirements of the cloud. A case that kills the database needs a private one."""
        site = self.scenario.site
        needs = any(fault.effect == DATABASE for fault in self.faults)
        return dataclasses.replace(site, own_database=True) if needs else site

    def run(self, arena: Arena) -> float:
        """Run the case and return the seconds from the request to its end, faults included."""
        arena.violated = ""
        self.scenario.prepare(arena)
        fired = arena.arm(self.faults)
        try:
            seconds = self._run_scenario(arena, fired) if self.faults else self._run_by_itself(arena)
        finally:
            arena.end_faults(self.faults, fired)
        arena.check_settled()
        images.check(arena)
        for server in arena.servers():
            arena.insist("POST", f"/servers/{server['id']}/action", {"forceDelete": None}, (202, 404))
        arena.gone()
        arena.check_nothing_left()
        arena.judge_traces()
        return seconds

    def _run_scenario(self, arena: Arena, fired: list[Path]) -> float:
        started = time.monotonic()
        self.scenario.run(arena)
        seconds = time.monotonic() - started
        # The first of two faults may prevent the second.
        wait_for(f"a fault happens ({self.fault})", lambda: any(file.exists() for file in fired), 60)
        return seconds

    def _run_by_itself(self, arena: Arena) -> float:
        """Run the scenario without a fault and record the points that it passes."""
        started = time.monotonic()
        with arena.noting() as passed:
            self.scenario.run(arena)
            seconds = time.monotonic() - started
            with contextlib.suppress(AssertionError):  # reported below, with names
                wait_for("it passes its points", lambda: not points.not_passed(self.scenario.points, passed()), 30)
            missed, unknown = points.not_passed(self.scenario.points, passed()), points.not_named(passed())
        assert not missed, f"points that it names and does not pass: {missed}"
        assert not unknown, f"transactions that it passes and that are in no table: {unknown}"
        return seconds


def faults_of(scenario: Scenario) -> list[Fault]:
    found = list(points.faults_at(scenario.points))
    return [fault for fault in found if scenario.effects is None or fault.effect in scenario.effects]


def singles() -> list[Case]:
    """Return each scenario without and with each fault."""
    return [Case(scenario) for scenario in SCENARIOS] + [
        Case(scenario, (fault,)) for scenario in SCENARIOS for fault in faults_of(scenario)
    ]


def pairs(count: int, seed: int) -> list[Case]:
    """Return random pairs of faults for operations. Stories already contain a fault."""
    chance = random.Random(seed)
    found = []
    plain = [scenario for scenario in SCENARIOS if scenario.effects is None and scenario.points]
    for _ in range(count):
        scenario = chance.choice(plain)
        choices = faults_of(scenario)
        found.append(Case(scenario, (chance.choice(choices), chance.choice(choices))))
    return found


def chosen(cases: list[Case], texts: list[str]) -> list[Case]:
    """Return the cases with these names, or else with a description that contains one of the texts; all without
    texts.
    """
    named = [case for case in cases if str(case) in texts]
    return named or [case for case in cases if not texts or any(text in str(case) for text in texts)]


def run_case(case: Case, ready: Arena) -> Result:
    """Run a case. Findings of the observer come first in its result."""
    started = time.monotonic()
    recovery, wrong = 0.0, ""
    ready.judgement = Judgement()
    try:
        recovery = case.run(ready)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    wrong = "\n".join(filter(None, (ready.violated, wrong)))
    seconds, judged = time.monotonic() - started, ready.judgement
    numbers = {"paths": judged.paths, "unjudged": judged.unjudged}
    return Result(case.scenario.name, case.fault, str(case), recovery, seconds, wrong, **numbers)


def run_cases(cases: list[Case], parallel: int, logs: Path, report: Callable[[Result], None]) -> None:
    """Run all cases on ``parallel`` clouds. A cloud with a failed case is replaced, and its logs are kept below
    ``logs``.
    """
    waiting = collections.deque(sorted(cases, key=lambda case: repr(case.site)))
    lock = threading.Lock()

    def take() -> Case | None:
        with lock:
            return waiting.popleft() if waiting else None

    def serve(case: Case | None, ready: Arena) -> Case | None:
        """Run cases until one needs another cloud, and return that one."""
        while case is not None and case.site == ready.site:
            result = run_case(case, ready)
            if result.wrong:
                result.logs = str(keep_logs(ready.cloud.path, logs))
            with lock:
                report(result)
            case = take()
            if result.wrong:
                break
        return case

    def worker() -> None:
        case = take()
        while case is not None:
            with contextlib.ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-faults-"))
                try:
                    ready = stack.enter_context(arena(Path(directory), case.site))
                except Exception as error:
                    with lock:
                        kept = str(keep_logs(Path(directory), logs))
                        report(Result(case.scenario.name, case.fault, str(case), wrong=f"no cloud: {error}", logs=kept))
                    case = take()
                else:
                    case = serve(case, ready)

    with futures.ThreadPoolExecutor(parallel) as pool:
        try:
            for done in [pool.submit(worker) for _ in range(parallel)]:
                done.result()
        finally:
            waiting.clear()  # when it is interrupted, only what has begun is finished


def keep_logs(directory: Path, logs: Path) -> Path:
    """Copy a cloud's logs and faults into a new directory below ``logs``."""
    logs.mkdir(parents=True, exist_ok=True)
    kept = Path(tempfile.mkdtemp(prefix="case-", dir=logs))
    for pattern in ("*.log", "*.conf", "failpoints.json*", "nova-lite.sqlite*", "traces/*"):
        for file in directory.glob(pattern):
            shutil.copy(file, kept)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=int, default=8, help="clouds at the same time")
    parser.add_argument("--every", type=int, default=1, help="run only every Nth of the single faults")
    parser.add_argument("--pairs", type=int, default=0, help="instead: so many pairs of faults at random")
    parser.add_argument("--seed", type=int, help="of the pairs; chosen and printed if not given")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="only the case of this description, or those that contain it (again: or)",
    )
    parser.add_argument(
        "--results", type=Path, help="a file of results, a line of JSON each; what has passed there is not run again"
    )
    parser.add_argument("--logs", help="directory for the logs of cases that fail; made below /tmp if not given")
    options = parser.parse_args()
    command = "devstack/faults.sh"
    if options.pairs:
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
        command += f" --pairs {options.pairs} --seed {seed}"
        print(f"seed {seed}")
        cases = pairs(options.pairs, seed)
    else:
        cases = list(itertools.islice(singles(), 0, None, options.every))
    cases = chosen(cases, options.only)
    logs = Path(options.logs or tempfile.mkdtemp(prefix="nova-lite-faults-logs-")).absolute()
    passed = passed_before(options.results) if options.results else {}
    before = [passed[str(case)] for case in cases if str(case) in passed]
    table = Table(len(cases), command, before, options.results)
    run_cases([case for case in cases if str(case) not in passed], options.parallel, logs, table.add)
    table.print()
    if not options.logs and not table.failures:
        logs.rmdir()
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
