"""Wings: parts that a cloud loads only if an operator wants them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.wings import ConductorWing, Wings
from nova_lite.db.core.engine import Database, UnitOfWork

#: Program that imports all daemons, and prints the modules of load balancers that it has loaded.
_IMPORT = """
import sys
from nova_lite.cmd import api, compute, conductor, scheduler
print([name for name in sys.modules if "load_balancer" in name and name.startswith("nova_lite")])
"""
#: Rules and options, which documents need.
_DECLARED = {"nova_lite.conf.load_balancer", "nova_lite.policies.load_balancer"}


def add(uow: UnitOfWork, conf: cfg.ConfigOpts, numbers: list[int], name: str = "sum") -> dict[str, int]:
    return {name: sum(numbers)}


class Adding(ConductorWing):
    reads = {"add": add}
    changes = {"add": add}

    def report(self, host: str, report: Any) -> Any:
        return [host, report]


@pytest.fixture
def wings(db: Database, conf: cfg.ConfigOpts) -> Wings:
    made = Wings(db, conf, None)  # type: ignore[arg-type]
    made.loaded["adding"] = Adding(db, conf, None)  # type: ignore[arg-type]
    return made


def test_method_of_a_wing_gets_typed_arguments(wings: Wings) -> None:
    context = get_admin_context()
    assert wings.wing_read(context, "adding", "add", {"numbers": [1, 2], "newer": True}) == {"sum": 3}
    assert wings.wing_change(context, "adding", "add", {"numbers": [4], "name": "all"}) == {"all": 4}
    assert wings.wing_report(context, "h1", "adding", 5) == ["h1", 5]


def test_cloud_without_a_wing_does_not_serve_it(wings: Wings) -> None:
    assert wings.loaded.keys() == {"adding"}
    for call in (
        lambda: wings.wing_read(get_admin_context(), "load_balancer", "list", {}),
        lambda: wings.wing_change(get_admin_context(), "load_balancer", "create", {}),
        lambda: wings.wing_report(get_admin_context(), "h1", "load_balancer", {}),
    ):
        with pytest.raises(exceptions.NotServed):
            call()
    with pytest.raises(exceptions.InvalidInput):
        wings.wing_read(get_admin_context(), "adding", "report", {})


def test_daemons_without_a_wing_load_none_of_its_code() -> None:
    result = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    assert set(eval(result.stdout)) <= _DECLARED
