"""Runs of many seeds. Each is a child of one process, which has imported the product and made the cloud's files."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TextIO

from tests.simulation.cloud import Cloud, Template
from tests.simulation.plan import Ask, Fault, Plan
from tests.simulation.scheduler import Stuck

_MEMORY = "/dev/shm"
#: Status of a child that has written its result.
_ENDED = 0


class Result(NamedTuple):
    """The end of a run. ``trace``: hash of all that it did. ``seconds``: virtual ones. ``cpu``: real ones.

    ``unjudged``: servers whose traces were too long for a search.
    """

    seed: int
    trace: str
    problems: list[str]
    unjudged: int
    seconds: float
    switches: int
    cpu: float


@contextlib.contextmanager
def template(hosts: int) -> Iterator[Template]:
    """Provide what all runs begin with, in a directory in memory."""
    gc.disable()  # a child is short, and collections at other moments would be other runs
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="nova-lite-simulation-") as directory:
        made = Template(Path(directory), hosts)
        gc.freeze()
        yield made


def run(
    made: Template,
    plan: Plan,
    log: Path | None = None,
    change: AbstractContextManager[object] | None = None,
    stop_at: int = 0,
) -> Result:
    """Run a plan in a child of this process. ``change``: of the product, for this run.

    ``log``: gets the trace. ``stop_at``: number of a line of the trace, at which the debugger takes over.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with contextlib.ExitStack() as stack:
            stack.callback(os._exit, 1)
            file = stack.enter_context(log.open("w")) if log is not None else None
            result = _run_here(made, plan, file, change or contextlib.nullcontext(), stop_at)
            if file is not None:
                file.flush()
            os.write(writer, json.dumps(result).encode())
            os._exit(_ENDED)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == _ENDED, f"the run of seed {plan.seed} has broken off"
    return Result(*json.loads(content))


def _run_here(
    made: Template, plan: Plan, log: TextIO | None, change: AbstractContextManager[object], stop_at: int
) -> Result:
    cloud = Cloud(made, plan, log)
    cloud.sim.stop_at = stop_at
    problems = cloud.witness.problems
    try:
        with change:
            cloud.run()
    except Stuck as error:
        problems.append(str(error))
    except Exception:
        problems.append("the run has failed:\n" + traceback.format_exc(limit=-12))
    sim, witness = cloud.sim, cloud.witness
    return Result(plan.seed, sim.trace, problems, witness.unjudged, sim.now, sim.switches, os.times().user)


def shrink(made: Template, plan: Plan, change: Callable[[], AbstractContextManager[object]] | None = None) -> Plan:
    """Return a part of a failing plan that fails, and of which no item can be left out. ``change``: as `run` has it."""
    before = None
    while plan != before:
        before = plan
        creates = [ask for ask in plan.asks if ask.kind == "create"]
        items: list[Ask | Fault] = [*creates, *plan.faults, *(ask for ask in plan.asks if ask not in creates)]
        for item in items:
            smaller = plan.without(item)
            if smaller.asks and smaller != plan and run(made, smaller, change=change and change()).problems:
                plan = smaller
    return plan
