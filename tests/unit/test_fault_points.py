"""The points of the fault matrix are made of the operations' rows, and exist in the code."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import nova_lite
from nova_lite import operations
from nova_lite.operations import states
from tests.faults import matrix, points, scenarios
from tests.faults.outages import DATABASE

ROOT = Path(nova_lite.__file__).parent


def defined() -> set[str]:
    """Names of all functions and methods of nova_lite."""
    texts = [path.read_text() for path in ROOT.rglob("*.py")]
    return {name.lstrip("_") for text in texts for name in re.findall(r"^\s*def (\w+)\(", text, re.MULTILINE)}


def test_every_named_point_is_in_the_code() -> None:
    every = points.join(*(scenario.points for scenario in matrix.SCENARIOS))
    named = {name.split("/")[1] for names in every.values() for name in names if name.count("/") == 2}
    commands = operations.command_methods()
    named = {commands[name].method if name in commands else name for name in named}
    by_driver = {step.method for step in commands.values() if step.driver is not None}
    named = named - {"spawn", "destroy"} - by_driver | {*points.TRANSACTIONS, *points.ELSEWHERE}
    assert named - defined() == set()


def given_to_the_database() -> Iterator[str]:
    """Yield the names of the functions that the conductor gives `Database.write` and its kin, or lists for them."""
    for node in (node for path in (ROOT / "conductor").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Call) and re.match(
            r"write|transact", getattr(node.func, "attr", "") or name_of(node.func)
        ):
            yield from (name_of(part) for given in node.args[:1] for part in ast.walk(given))
        elif isinstance(node, ast.Dict):
            yield from (name_of(value) for value in node.values)


def name_of(node: ast.AST) -> str:
    """Return the last word of a name, without a leading underscore, or nothing for other expressions."""
    return str(getattr(node, "attr", getattr(node, "id", ""))).lstrip("_")


def test_every_named_transaction_is_a_function_that_the_conductor_gives_the_database() -> None:
    assert set(points.TRANSACTIONS) - {*given_to_the_database()} == set()


def test_every_transaction_has_a_case() -> None:
    every = points.join(*(scenario.points for scenario in matrix.SCENARIOS))
    committed = {name.split("/")[1] for name in every[points.CONDUCTOR] if name.startswith("commit/")}
    assert committed == set(points.TRANSACTIONS)


def test_every_operation_that_does_something_is_in_the_matrix() -> None:
    covered = {kind for scenario in matrix.SCENARIOS for kind in scenario.rows}
    assert covered == {kind for kind, row in operations.OPERATIONS.items() if row.steps}


def test_a_new_row_of_one_step_joins_by_itself() -> None:
    step = operations.HostStep("perform", "freeze_instance", task="freezing", becomes=states.PAUSED)
    row = operations.Operation("freeze", allowed=(states.ACTIVE,), steps=(step,), action="freeze")
    back = dataclasses.replace(step, method="thaw_instance", becomes=states.ACTIVE)
    thaw = operations.Operation("thaw", allowed=(states.PAUSED,), steps=(back,), action="thaw")
    found = {scenario.name: scenario for scenario in scenarios.single_steps({"freeze": row, "thaw": thaw})}
    assert set(found) == {"freeze", "thaw"}
    assert "handle/freeze_instance/before" in found["freeze"].points[points.COMPUTE]
    assert "send/thaw_instance/before" in found["thaw"].points[points.API]


def test_an_unknown_transaction_is_told() -> None:
    assert points.not_named({("conductor", "commit/claim/before"), ("conductor", "commit/new/after")}) == ["new"]


def test_a_point_that_is_not_passed_is_told() -> None:
    named = {points.CONDUCTOR: ["commit/a/before", "commit/b/before"]}
    assert points.not_passed(named, {("conductor-2", "commit/a/before")}) == ["conductor* at commit/b/before"]


def test_database_server_is_started_only_for_scenarios_that_need_it() -> None:
    needing = [case for case in matrix.singles() if case.site.own_database and not case.site.more]
    assert {case.fault for case in needing} == {DATABASE}
