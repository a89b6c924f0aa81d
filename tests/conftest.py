"""The tests themselves run with native threads; daemons that they start choose for themselves."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_policy import policy as oslo_policy
from paste.deploy import loadwsgi
from sqlalchemy.util import LRUCache

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

from nova_lite.base import machine_networks  # noqa: E402
from nova_lite.db.core import engine as db_engine  # noqa: E402
from tests.support.mounts import Mounts  # noqa: E402
from tests.support.shared_statements import share  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def quick_databases() -> Iterator[None]:
    """Compile SQL once for all tests, not for each test's new engine: that would be half of their duration.

    SQLite in this process does not wait for the disk: that would be some 30 waits in a test with a database.
    """
    compiled: LRUCache[object, object] = LRUCache(10_000)
    create = db_engine.create_engine

    def sharing(*arguments: Any) -> sa.Engine:
        made = create(*arguments)
        share(made, compiled)
        if made.dialect.name == "sqlite":
            sa.event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db_engine, "create_engine", sharing)
        yield


@pytest.fixture(scope="session", autouse=True)
def unknown_machine() -> Iterator[None]:
    """Hide the networks of the machine that runs the tests, which tests of subnets may not depend on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_networks, "used", lambda conf, *servers: [])
        yield


@pytest.fixture(scope="session", autouse=True)
def loaded_once() -> Iterator[None]:
    """Cache entry points and policy rules: each API test has its own application, which would read them again.

    oslo.policy's search for rules that refer to themselves is left out, as it ends in a warning.
    """
    find = loadwsgi.EggLoader.find_egg_entry_point
    found = functools.cache(lambda spec, kind, name: find(loadwsgi.EggLoader(spec), kind, name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            loadwsgi.EggLoader, "find_egg_entry_point", lambda self, kind, name=None: found(self.spec, kind, name)
        )
        patch.setattr(oslo_policy, "copy", types.SimpleNamespace(deepcopy=copy.copy))
        patch.setattr(oslo_policy.Enforcer, "check_rules", lambda self: True)
        yield


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    made = Mounts()
    yield made
    made.end()
