"""The model follows the definitions of the operations: their steps, order, and undos."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nova_lite import operations
from tests.model import definitions
from tests.model.protections import ACTIVE, BOOT_WITHOUT_CRASHES, EVACUATE, LIVE_MIGRATE, RESIZE
from tests.model.protocol import Protocol

POWER = Protocol(users=("stop", "start", "delete"), max_actions=4, start=ACTIVE, crashes=0)

REBUILD = Protocol(users=("rebuild", "stop", "delete"), max_actions=3, start=ACTIVE, crashes=0)

#: Steps of `moves` that have another name in the definition.
NAMES = {"claim": "schedule"}


@pytest.mark.parametrize("kind", definitions.MODEL)
def test_model_has_the_steps_of_each_definition(kind: str) -> None:
    assert definitions.MODEL[kind] == definitions.of_definition(operations.OPERATIONS[kind])


@pytest.mark.parametrize("kind", [kind for kind, definition in operations.OPERATIONS.items() if definition.steps])
def test_each_operation_is_modelled_or_like_a_modelled_one(kind: str) -> None:
    definition = operations.OPERATIONS[kind]
    every = [definition, *(variant for _, _, variant in definition.variants)]
    assert kind in {*definitions.MODEL, *definitions.NOT_MODELLED} or all(
        definitions.is_like_a_modelled_one(item) for item in every
    )


@pytest.mark.parametrize("model", [BOOT_WITHOUT_CRASHES, POWER, REBUILD], ids=["boot", "power", "rebuild"])
def test_protocol_model_makes_the_transitions_of_the_table(model: Protocol) -> None:
    gone: dict[str, set[definitions.Way]] = {}
    for (_, kind), found in definitions.seen(model, lambda s: ((s.action.id, s.action.kind), s.action.step)).items():
        gone.setdefault(kind, set()).update(found)
    assert gone.keys() >= set(model.users)
    assert gone == {kind: definitions.ways(definitions.MODEL[kind]) for kind in gone}


def test_evacuation_model_makes_the_transitions_of_the_table() -> None:
    """Transitions after a failure are not compared, because they are the same as in a create."""
    gone = definitions.seen(EVACUATE, lambda s: ("evacuate", NAMES.get(s.step, s.step)))["evacuate"]
    assert gone == {("schedule", "build"), ("build", "")}
    assert definitions.ways(definitions.MODEL["evacuate"]) == definitions.ways(definitions.MODEL["create"]) >= gone


def test_resize_model_makes_the_transitions_of_the_table() -> None:
    """A delete, a confirm and a revert are operations of their own. A revert goes the same way back."""

    def step(state: Any) -> tuple[str, str]:
        return "resize", state.step

    others = {"resized", "delete", "confirm", "revert"}
    gone = definitions.seen(RESIZE, step)["resize"]
    mine = {(before, after) for before, after in gone if before not in others and after != "delete"}
    assert mine == definitions.ways(definitions.MODEL["resize"], end="resized")
    assert {("confirm", ""), ("revert", "return")} <= gone
    assert definitions.ways(definitions.MODEL["revertResize"]) >= {("drop", "return"), ("return", "")}


def test_live_migration_model_makes_the_transitions_of_the_table() -> None:
    """The undo "find" is only for a lost source. Otherwise the undo before it leads past it."""
    gone = definitions.seen(LIVE_MIGRATE, lambda s: ("live-migration", s.step))["live-migration"]
    mine = {(before, after) for before, after in gone if "delete" not in (before, after)}
    table = definitions.ways(definitions.MODEL["live-migration"])
    assert mine - table == {("roll_back", "drop")}
    assert mine >= table


def changed(definition: operations.Operation, **first: Any) -> operations.Operation:
    return dataclasses.replace(
        definition, steps=(dataclasses.replace(definition.steps[0], **first), *definition.steps[1:])
    )


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
def test_changed_definition_differs_from_the_model(what: str) -> None:
    definition = CHANGED[what]
    assert definitions.of_definition(definition) != definitions.MODEL[definition.kind]


def test_table_without_an_undo_differs_from_the_model() -> None:
    schedule, build = definitions.MODEL["create"]
    table = (schedule, dataclasses.replace(build, undo=()))
    gone = definitions.seen(BOOT_WITHOUT_CRASHES, lambda s: (s.action.kind, s.action.step))["create"]
    assert gone - definitions.ways(table) == {("build", "compensate"), ("compensate", "")}
