"""Plans of seeds have all that the simulation can do to a cloud."""

from __future__ import annotations

from tests.simulation import plan as plans
from tests.simulation.cloud import Cloud

PLANS = [plans.make(seed) for seed in range(1, 101)]
MANY = [plans.make(seed) for seed in range(1, 401)]


def test_plan_of_a_seed_is_always_the_same() -> None:
    assert [plans.make(seed) for seed in range(1, 101)] == PLANS


def test_each_kind_of_fault_and_of_request_is_in_four_hundred_plans() -> None:
    themes = (*plans._THEMES, *plans._RARE_THEMES, plans._OWN_POWER, *plans._MOVES)
    kinds = {fault.kind for plan in MANY for fault in plan.faults}
    assert kinds == {*plans._KINDS, *(kind for theme in themes for _, kind, _, _ in theme.faults)}
    assert all(hasattr(Cloud, f"_{kind}") for kind in kinds)
    asks = {ask.kind for plan in MANY for ask in plan.asks}
    asked = {kind for theme in themes for kind, _, _ in theme.asks}
    assert asks == {"create", "delete", "stop", "start", "rebuild", *asked}


def test_each_theme_is_in_a_hundred_plans() -> None:
    for theme in (*plans._THEMES, *plans._RARE_THEMES):
        wanted = {(kind, where, amount) for _, kind, where, amount in theme.faults}
        assert any(wanted <= {(one.kind, one.where, one.amount) for one in plan.faults} for plan in PLANS)


def test_plan_with_faults_of_conductors_rebuilds_nothing() -> None:
    for plan in PLANS:
        if any(fault.where in plans.CONDUCTORS for fault in plan.faults):
            assert "rebuild" not in {ask.kind for ask in plan.asks}
