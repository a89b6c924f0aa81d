"""The fakes have the signatures of what they stand for."""

from __future__ import annotations

import inspect

import pytest

from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor.rpcapi import ConductorAPI
from tests.unit.api.fakes import FakeCompute, FakeConductor

PAIRS = [
    (fake, real, name)
    for fake, real in ((FakeConductor, ConductorAPI), (FakeCompute, ComputeAPI))
    for name, method in inspect.getmembers(fake, inspect.isfunction)
    if "context" in inspect.signature(method).parameters and not name.startswith("_")
]


@pytest.mark.parametrize(("fake", "real", "name"), PAIRS, ids=[name for *_, name in PAIRS])
def test_same_signature(fake: type, real: type, name: str) -> None:
    assert inspect.signature(getattr(fake, name)) == inspect.signature(getattr(real, name))


def test_there_are_many() -> None:
    assert len(PAIRS) > 30
