"""Quotas against a model: the counters are the sums of what exists, and no limit is exceeded."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nova_lite.base import exceptions
from nova_lite.db.core import models, quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from tests.support import make

PROJECTS = st.sampled_from(["p1", "p2"])
USERS = st.sampled_from(["u1", "u2"])
LIMITED = st.sampled_from(["instances", "cores"])
DEFAULTS = {"instances": 10, "cores": 20, "ram": 51200}

Use = dict[str, int]


def short(wanted: Use, used: Use, limits: Use) -> list[str]:
    """Return the exceeded resources, in the order of the error text."""
    return sorted(name for name, n in wanted.items() if n and 0 <= limits.get(name, -1) < used[name] + n)


def test_quotas_follow_the_model(empty_database: Path) -> None:
    class Quotas(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.directory = tempfile.mkdtemp()
            shutil.copy(empty_database, f"{self.directory}/db.sqlite")
            self.conf = make.conf(f"sqlite:///{self.directory}/db.sqlite")
            self.db = Database(self.conf)
            self.servers: dict[str, tuple[str, str, Use]] = {}
            self.limits = {project: dict(DEFAULTS) for project in ("p1", "p2")}
            self.own: dict[tuple[str, str], Use] = {}

        def teardown(self) -> None:
            self.db.close()
            shutil.rmtree(self.directory)

        def used(self, project: str, user: str | None = None) -> Use:
            mine = [use for owner, by, use in self.servers.values() if owner == project and user in (None, by)]
            return {name: sum(use[name] for use in mine) for name in DEFAULTS}

        @rule(project=PROJECTS, user=USERS, count=st.integers(1, 4), cores=st.integers(0, 5))
        def create(self, project: str, user: str, count: int, cores: int) -> None:
            request = {"instances": 1, "cores": cores, "ram": 64}
            wanted = {name: amount * count for name, amount in request.items()}
            over = short(wanted, self.used(project), self.limits[project])
            over = over or short(wanted, self.used(project, user), self.own.get((project, user), {}))

            def write(uow: UnitOfWork) -> list[str]:
                quotas.take(uow, self.conf, project, wanted, user)
                return [make.instance(uow, project_id=project, user_id=user, vcpus=cores) for _ in range(count)]

            room = self.db.read(quotas.room, self.conf, project, user, request, count)
            try:
                made = self.db.write(write)
            except exceptions.QuotaExceeded as error:
                assert over and f"for {', '.join(over)}: " in error.message
                assert room < count
            else:
                assert not over and room == count
                self.servers |= dict.fromkeys(made, (project, user, request))

        @rule(count=st.integers(1, 4))
        def delete(self, count: int) -> None:
            def write(uow: UnitOfWork, uuid: str, project: str, use: Use) -> None:
                uow.change(sa.update(models.Instance).where(models.Instance.uuid == uuid).values(deleted=True))
                quotas.give_back(uow, project, use)

            for uuid in list(self.servers)[:count]:
                project, _, use = self.servers.pop(uuid)
                self.db.write(write, uuid, project, use)

        @rule(project=PROJECTS, resource=LIMITED, limit=st.integers(-1, 15))
        def limit(self, project: str, resource: str, limit: int) -> None:
            self.db.write(quotas.set_limit, project, resource, limit)
            self.limits[project][resource] = limit

        @rule(project=PROJECTS, user=USERS, resource=LIMITED, limit=st.integers(-1, 8))
        def limit_user(self, project: str, user: str, resource: str, limit: int) -> None:
            used, most = self.used(project, user)[resource], self.limits[project][resource]
            settable = used <= limit <= most if most >= 0 else limit < 0 or used <= limit
            try:
                self.db.write(quotas.set_limits, self.conf, project, {resource: limit}, False, user)
            except (exceptions.QuotaBelowUse, exceptions.QuotaAboveProject):
                assert not settable
            else:
                assert settable
                self.own.setdefault((project, user), {})[resource] = limit

        @rule(project=PROJECTS)
        def reset(self, project: str) -> None:
            self.db.write(quotas.reset, project)
            self.limits[project] = dict(DEFAULTS)
            self.own = {key: limits for key, limits in self.own.items() if key[0] != project}

        @invariant()
        def counters_are_sums(self) -> None:
            for project, limits in self.limits.items():
                for user in (None, "u1", "u2"):
                    found = self.db.read(quotas.get, self.conf, project, user).quotas
                    own = {} if user is None else self.own.get((project, user), {})
                    assert {name: found[name].used for name in DEFAULTS} == self.used(project, user)
                    assert {name: found[name].limit for name in DEFAULTS} == limits | own

    run_state_machine_as_test(Quotas, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))
