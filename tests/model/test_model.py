"""The protocol holds in the model with all protections, and fails without any one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.checker import Model, explore
from tests.model.claims import Claims
from tests.model.fencing import FENCING
from tests.model.joins import JOINS
from tests.model.live import LIVE
from tests.model.moves import MOVING
from tests.model.protections import BOOT, BOOT_WITHOUT_CRASHES, HOLDS, PROTECTIONS, REDUNDANT, Protection
from tests.model.protocol import IMPLEMENTED
from tests.model.sites import SITES


@pytest.mark.parametrize("model", HOLDS.values(), ids=HOLDS)
def test_model_with_all_rules_holds(model: Model) -> None:
    result = explore(model, limit=500_000)
    print(result)
    assert result.holds, str(result)


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection.rule)
def test_model_without_a_protection_fails(protection: Protection) -> None:
    result = protection.counterexample()
    print(result)
    assert result.kind in ("violation", "stuck")


@pytest.mark.parametrize("protection", [item for item in PROTECTIONS if item.twice], ids=lambda item: item.rule)
def test_guest_runs_twice_without_protection(protection: Protection) -> None:
    result = protection.counterexample(only_twice=True)
    print(result)
    assert result.reason == "it runs twice"


def test_second_fence_check_is_redundant() -> None:
    result = explore(replace(BOOT_WITHOUT_CRASHES, rules=BOOT.rules - {REDUNDANT}))
    assert result.holds, str(result)


def test_protections_name_every_rule() -> None:
    spoken_of = {item.rule for item in PROTECTIONS if not isinstance(item.model, Claims)}
    assert spoken_of | {REDUNDANT} == IMPLEMENTED | MOVING | LIVE | FENCING | SITES | JOINS
