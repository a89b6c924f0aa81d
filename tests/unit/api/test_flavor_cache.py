"""Flavors are kept for as long as is said, for who may see them, and not beyond a change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nova_lite.api.compute import flavor_cache
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC
from tests.unit.api.fakes import FLAVOR, FakeConductor

LIST = (True, None, None, 10, None, "flavorid", "asc", None)


def context(project: str = "demo", admin: bool = False) -> RequestContext:
    return RequestContext(user_id="u", project_id=project, is_admin=admin, overwrite=False)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    monkeypatch.setattr(flavor_cache.time, "monotonic", lambda: moment[0])
    return moment


@pytest.fixture
def fake() -> FakeConductor:
    return FakeConductor()


@pytest.fixture
def client(fake: FakeConductor) -> ConductorRPC:
    return flavor_cache.cached(fake, 1.0)  # type: ignore[arg-type]


def asked(fake: FakeConductor) -> list[str]:
    names = [name for name, _ in fake.asked]
    fake.asked.clear()
    return names


def test_an_answer_holds_for_a_second(now: list[float], fake: FakeConductor, client: ConductorRPC) -> None:
    for _ in range(3):
        assert [each.name for each in client.flavor_list(context(), *LIST)] == [FLAVOR.name]
        assert client.flavor_get(context(), FLAVOR.flavorid).name == FLAVOR.name
    assert asked(fake) == ["flavor_list", "flavor_get"]
    now[0] += 1
    client.flavor_get(context(), FLAVOR.flavorid)
    assert asked(fake) == ["flavor_get"]


@pytest.mark.parametrize("other", [context("other"), context(admin=True)])
def test_who_asks_makes_a_difference(
    now: list[float], fake: FakeConductor, client: ConductorRPC, other: RequestContext
) -> None:
    client.flavor_list(context(), *LIST)
    client.flavor_list(other, *LIST)
    client.flavor_list(context(), *(False, *LIST[1:]))
    assert asked(fake) == ["flavor_list"] * 3


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ("flavor_update", (FLAVOR.flavorid, "described")),
        ("flavor_extra_specs_update", (FLAVOR.flavorid, {"x": "y"})),
        ("flavor_delete", (FLAVOR.flavorid,)),
    ],
)
def test_a_change_is_seen_at_once(
    now: list[float], fake: FakeConductor, client: ConductorRPC, change: str, arguments: Any
) -> None:
    before = copy.deepcopy(client.flavor_list(context(admin=True), *LIST))
    getattr(client, change)(context(admin=True), *arguments)
    assert client.flavor_list(context(admin=True), *LIST) != before


def test_an_error_is_not_kept(now: list[float], fake: FakeConductor, client: ConductorRPC) -> None:
    for _ in range(2):
        with pytest.raises(exceptions.FlavorNotFound):
            client.flavor_get(context(), "none")
    assert asked(fake) == ["flavor_get"] * 2


def test_other_questions_are_asked_each_time(now: list[float], fake: FakeConductor, client: ConductorRPC) -> None:
    for _ in range(2):
        client.network_list(context())
    assert asked(fake) == ["network_list"] * 2
    assert flavor_cache.cached(client, 0) is client
