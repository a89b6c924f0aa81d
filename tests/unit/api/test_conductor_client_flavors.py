"""Flavors in an API process: cached for some seconds, for each project, until a change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nova_lite import rpc
from nova_lite.api import conductor_client
from nova_lite.api.conductor_client import ApiConductorClient
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ApiTiming
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.control_plane import FLAVOR, FakeConductor

LIST = (True, None, None, 10, None, "flavorid", "asc", None)


def context(project: str = "demo", admin: bool = False) -> RequestContext:
    return RequestContext(user_id="u", project_id=project, is_admin=admin, overwrite=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [1000.0]
    monkeypatch.setattr(conductor_client.time, "monotonic", lambda: seconds[0])
    return seconds


@pytest.fixture
def fake() -> FakeConductor:
    return FakeConductor()


@pytest.fixture
def client(fake: FakeConductor) -> ConductorRPC:
    return conductor_client.connect(fake)  # type: ignore[arg-type]


def calls(fake: FakeConductor) -> list[str]:
    names = [name for name, _ in fake.calls]
    fake.calls.clear()
    return names


def test_cached_flavor_is_read_again_after_its_seconds(
    clock: list[float], fake: FakeConductor, client: ConductorRPC
) -> None:
    for _ in range(3):
        assert [flavor.name for flavor in client.flavor_list(context(), *LIST)] == [FLAVOR.name]
        assert client.flavor_get(context(), FLAVOR.flavorid).name == FLAVOR.name
    assert calls(fake) == ["flavor_list", "flavor_get"]
    clock[0] += 1
    client.flavor_get(context(), FLAVOR.flavorid)
    assert calls(fake) == ["flavor_get"]


@pytest.mark.parametrize("other", [context("other"), context(admin=True)])
def test_cached_flavors_are_not_shared_by_projects_or_queries(
    clock: list[float], fake: FakeConductor, client: ConductorRPC, other: RequestContext
) -> None:
    client.flavor_list(context(), *LIST)
    client.flavor_list(other, *LIST)
    client.flavor_list(context(), False, *LIST[1:])
    assert calls(fake) == ["flavor_list"] * 3


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ("flavor_update", (FLAVOR.flavorid, "described")),
        ("flavor_extra_specs_update", (FLAVOR.flavorid, {"x": "y"})),
        ("flavor_delete", (FLAVOR.flavorid,)),
    ],
)
def test_flavor_change_is_seen_by_the_next_read(
    clock: list[float], fake: FakeConductor, client: ConductorRPC, change: str, arguments: Any
) -> None:
    older = copy.deepcopy(client.flavor_list(context(admin=True), *LIST))
    getattr(client, change)(context(admin=True), *arguments)
    assert client.flavor_list(context(admin=True), *LIST) != older


def test_every_flavor_method_is_cached_or_clears_the_cache() -> None:
    flavor_methods = {name for name in rpc.contract_of(ConductorRPC).methods if name.startswith("flavor_")}
    assert flavor_methods - vars(ApiConductorClient).keys() == {"flavor_access_list"}


def test_failed_read_of_a_flavor_is_not_cached(clock: list[float], fake: FakeConductor, client: ConductorRPC) -> None:
    for _ in range(2):
        with pytest.raises(exceptions.FlavorNotFound):
            client.flavor_get(context(), "none")
    assert calls(fake) == ["flavor_get"] * 2


def test_other_methods_are_sent_each_time(clock: list[float], fake: FakeConductor, client: ConductorRPC) -> None:
    for _ in range(2):
        client.network_list(context())
    assert calls(fake) == ["network_list"] * 2


def test_flavor_cache_of_zero_seconds_is_off(fake: FakeConductor) -> None:
    client = conductor_client.connect(fake, ApiTiming(flavor_cache=0.0))  # type: ignore[arg-type]
    for _ in range(2):
        client.flavor_get(context(), FLAVOR.flavorid)
    assert calls(fake) == ["flavor_get"] * 2
