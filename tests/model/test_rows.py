"""The model is about the operations as they are: its steps, their order and what undoes them are those of the rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nova_lite import operations
from tests.model import rows
from tests.model.protections import ACTIVE, BOOT_WITHOUT_CRASHES, EVACUATE, LIVE_MIGRATE, RESIZE
from tests.model.protocol import Protocol

POWER = Protocol(users=("stop", "start", "delete"), max_actions=4, start=ACTIVE, crashes=0)

REBUILD = Protocol(users=("rebuild", "stop", "delete"), max_actions=3, start=ACTIVE, crashes=0)

#: Steps of `moves` that a row has by another name.
NAMES = {"claim": "schedule"}


@pytest.mark.parametrize("kind", rows.MODEL)
def test_the_model_has_the_steps_of_the_row(kind: str) -> None:
    assert rows.MODEL[kind] == rows.of_row(operations.OPERATIONS[kind])


@pytest.mark.parametrize("kind", [kind for kind, row in operations.OPERATIONS.items() if row.steps])
def test_every_row_is_modelled_or_like_one_that_is(kind: str) -> None:
    row = operations.OPERATIONS[kind]
    every = [row, *(variant for _, _, variant in row.variants)]
    assert kind in {*rows.MODEL, *rows.NOT_MODELLED} or all(rows.is_like_one_that_is(each) for each in every)


@pytest.mark.parametrize("model", [BOOT_WITHOUT_CRASHES, POWER, REBUILD], ids=["boot", "power", "rebuild"])
def test_the_model_goes_from_step_to_step_as_the_table_says(model: Protocol) -> None:
    gone: dict[str, set[rows.Way]] = {}
    for (_, kind), found in rows.seen(model, lambda s: ((s.action.id, s.action.kind), s.action.step)).items():
        gone.setdefault(kind, set()).update(found)
    assert gone.keys() >= set(model.users)
    assert gone == {kind: rows.ways(rows.MODEL[kind]) for kind in gone}


def test_an_evacuation_in_the_model_goes_as_the_table_says() -> None:
    """Only what comes before a failure: from there on it is driven as a create."""
    gone = rows.seen(EVACUATE, lambda s: ("evacuate", NAMES.get(s.step, s.step)))["evacuate"]
    assert gone == {("schedule", "build"), ("build", "")}
    assert rows.ways(rows.MODEL["evacuate"]) == rows.ways(rows.MODEL["create"]) >= gone


def test_a_resize_in_the_model_goes_as_the_table_says() -> None:
    """A delete, and what is asked for once it is resized, are operations of their own. The way back is the same in a
    revert."""

    def step(state: Any) -> tuple[str, str]:
        return "resize", state.step

    others = {"resized", "delete", "confirm", "revert"}
    gone = rows.seen(RESIZE, step)["resize"]
    mine = {(before, after) for before, after in gone if before not in others and after != "delete"}
    assert mine == rows.ways(rows.MODEL["resize"], end="resized")
    assert {("confirm", ""), ("revert", "return")} <= gone
    assert rows.ways(rows.MODEL["revertResize"]) >= {("drop", "return"), ("return", "")}


def test_a_live_migration_in_the_model_goes_as_the_table_says() -> None:
    """The undo "find" is for a source that is lost; else the one before it leads past it."""
    gone = rows.seen(LIVE_MIGRATE, lambda s: ("live-migration", s.step))["live-migration"]
    mine = {(before, after) for before, after in gone if "delete" not in (before, after)}
    table = rows.ways(rows.MODEL["live-migration"])
    assert mine - table == {("roll_back", "drop")}
    assert mine >= table


def changed(row: operations.Operation, **first: Any) -> operations.Operation:
    return dataclasses.replace(row, steps=(dataclasses.replace(row.steps[0], **first), *row.steps[1:]))


CHANGED = {
    "order": dataclasses.replace(operations.CREATE, steps=operations.CREATE.steps[::-1]),
    "a step less": dataclasses.replace(operations.CREATE, steps=operations.CREATE.steps[1:]),
    "its undo": dataclasses.replace(
        operations.CREATE, steps=(operations.CREATE.steps[0], dataclasses.replace(operations.CREATE.steps[1], undo=()))
    ),
    "its end": changed(operations.STOP, at=operations.HostRole.ALL),
    "its method": changed(operations.STOP, method="start_instance"),
    "its cleanup": changed(operations.DELETE, offline_step=None),
    "no end": changed(operations.DELETE, retry_forever=False),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_row_that_is_changed_is_no_more_the_model_s(what: str) -> None:
    row = CHANGED[what]
    assert rows.of_row(row) != rows.MODEL[row.kind]


def test_a_table_without_the_undo_is_not_the_model_s() -> None:
    schedule, build = rows.MODEL["create"]
    table = (schedule, dataclasses.replace(build, undo=()))
    gone = rows.seen(BOOT_WITHOUT_CRASHES, lambda s: (s.action.kind, s.action.step))["create"]
    assert gone - rows.ways(table) == {("build", "compensate"), ("compensate", "")}
