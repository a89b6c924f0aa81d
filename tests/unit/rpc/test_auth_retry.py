"""A daemon that the broker refuses tries again after a pause."""

from __future__ import annotations

import types
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_messaging._drivers import impl_rabbit

from nova_lite.rpc import patches


@pytest.fixture
def consume(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the patched ``consume``, and the list of results that the original one gives."""
    ends: list[Exception | None] = []

    def original(connection: Any, timeout: float | None = None) -> str:
        end = ends.pop(0)
        if end is not None:
            raise end
        return f"consumed within {timeout}"

    monkeypatch.setattr(impl_rabbit.Connection, "consume", original)
    patches._retry_refused_consumers()
    return ends, impl_rabbit.Connection.consume


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock, naps = [100.0], []

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        naps.append(seconds)

    monkeypatch.setattr(patches, "time", types.SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    return naps


def connection(stopped: bool = False) -> Any:
    return types.SimpleNamespace(_consume_loop_stopped=stopped)


def test_refused_consumer_waits(consume: Any, slept: list[float]) -> None:
    ends, patient = consume
    ends[:] = [messaging.MessageDeliveryFailure("403 ACCESS_REFUSED"), None]
    assert patient(connection(), timeout=1) is None
    assert sum(slept) == patches.AUTH_RETRY_SECONDS
    assert patient(connection(), timeout=1) == "consumed within 1"
    assert sum(slept) == patches.AUTH_RETRY_SECONDS


def test_refused_consumer_that_stops_does_not_wait(consume: Any, slept: list[float]) -> None:
    ends, patient = consume
    ends[:] = [messaging.MessageDeliveryFailure("403 ACCESS_REFUSED")]
    assert patient(connection(stopped=True)) is None
    assert slept == []


def test_other_errors_of_a_consumer_are_raised(consume: Any, slept: list[float]) -> None:
    ends, patient = consume
    ends[:] = [messaging.MessagingTimeout("nothing came")]
    with pytest.raises(messaging.MessagingTimeout):
        patient(connection())
    assert slept == []
