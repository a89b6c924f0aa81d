"""Quotas against a model: whatever is taken and given back, the counters are the sums, and no limit is passed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nova_lite import exception
from nova_lite.conductor.db import quotas
from nova_lite.conductor.db.engine import Database
from tests.unit.conductor import make

PROJECTS = st.sampled_from(["p1", "p2"])
AMOUNTS = st.dictionaries(st.sampled_from(["instances", "cores", "ram"]), st.integers(0, 7), min_size=1)


def test_quotas_are_the_model(empty_database: Path) -> None:
    class Quotas(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.directory = tempfile.mkdtemp()
            shutil.copy(empty_database, f"{self.directory}/db.sqlite")
            self.conf = make.conf(f"sqlite:///{self.directory}/db.sqlite")
            self.db = Database(self.conf)
            self.used = {project: dict.fromkeys(("instances", "cores", "ram"), 0) for project in ("p1", "p2")}
            self.limits = {project: {"instances": 10, "cores": 20, "ram": 51200} for project in ("p1", "p2")}

        def teardown(self) -> None:
            self.db.close()
            shutil.rmtree(self.directory)

        @rule(project=PROJECTS, amounts=AMOUNTS)
        def take(self, project: str, amounts: dict[str, int]) -> None:
            used, limits = self.used[project], self.limits[project]
            over = sorted(
                name for name, n in amounts.items() if n and limits[name] >= 0 and used[name] + n > limits[name]
            )
            try:
                self.db.write(quotas.take, self.conf, project, amounts)
            except exception.QuotaExceeded as error:
                assert over and f"for {', '.join(over)}: " in error.message
            else:
                assert not over
                for name, amount in amounts.items():
                    used[name] += amount

        @rule(project=PROJECTS, share=st.floats(0, 1))
        def give_back(self, project: str, share: float) -> None:
            amounts = {name: int(n * share) for name, n in self.used[project].items()}
            self.db.write(quotas.give_back, project, amounts)
            for name, amount in amounts.items():
                self.used[project][name] -= amount

        @rule(project=PROJECTS, limit=st.integers(-1, 15))
        def limit_cores(self, project: str, limit: int) -> None:
            self.db.write(quotas.set_limit, project, "cores", limit)
            self.limits[project]["cores"] = limit

        @invariant()
        def counters_are_sums(self) -> None:
            for project, used in self.used.items():
                found = self.db.read(quotas.limits, self.conf, project).quotas
                assert {name: found[name].used for name in used} == used
                assert {name: found[name].limit for name in used} == self.limits[project]

    run_state_machine_as_test(Quotas, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))
