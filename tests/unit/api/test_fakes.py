"""The fakes have the signatures of the real classes."""

from __future__ import annotations

import inspect

import pytest

from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from tests.support.fake_clients import assert_same_signature
from tests.unit.api.fakes import FakeCompute, FakeConductor

PAIRS = [
    (fake, real, name)
    for fake, real in ((FakeConductor, ConductorRPC), (FakeCompute, ComputeRPC))
    for name, method in inspect.getmembers(fake, inspect.isfunction)
    if "context" in inspect.signature(method).parameters and not name.startswith("_")
]


@pytest.mark.parametrize(("fake", "real", "name"), PAIRS, ids=[name for *_, name in PAIRS])
def test_fake_methods_have_the_real_signature(fake: type, real: type, name: str) -> None:
    assert_same_signature(getattr(fake, name), getattr(real, name))


def test_fakes_cover_many_methods() -> None:
    assert len(PAIRS) > 30
