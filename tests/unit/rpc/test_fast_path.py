"""Patches that act on a connection without preparations; a failure takes oslo.messaging's own path."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import pytest
from oslo_messaging._drivers import impl_rabbit

from nova_lite.rpc import patches

Ensure = Callable[..., Any]


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the options of each call of the original ``ensure``, which tries twice."""
    told: list[dict[str, Any]] = []

    def original(connection: Any, method: Callable[[], Any], **options: Any) -> Any:
        told.append(options)
        try:
            return method()
        except ConnectionError:
            told.append({"again": True})
            return method()

    monkeypatch.setattr(impl_rabbit.Connection, "ensure", original)
    patches._try_without_preparation()
    return told


def connection(channel: object = "a channel", pid: int | None = None) -> Any:
    return types.SimpleNamespace(channel=channel, _initial_pid=pid or os.getpid())


def test_ensure_success_needs_no_preparation(long_way: list[dict[str, Any]]) -> None:
    done: list[int] = []
    impl_rabbit.Connection.ensure(connection(), lambda: done.append(1), retry=0)
    assert (done, long_way) == ([1], [])


def test_ensure_failure_counts_as_the_first_attempt(long_way: list[dict[str, Any]]) -> None:
    """The original function gets the error, without a further attempt."""
    tried: list[int] = []

    def method() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionResetError("reset by the broker")

    impl_rabbit.Connection.ensure(connection(), method, retry=3)
    assert (len(tried), long_way) == (2, [{"retry": 3}, {"again": True}])


def test_ensure_other_error_is_raised_after_one_attempt(long_way: list[dict[str, Any]]) -> None:
    tried: list[int] = []

    def method() -> None:
        tried.append(1)
        raise LookupError("no server serves this")

    with pytest.raises(LookupError, match="no server serves this"):
        impl_rabbit.Connection.ensure(connection(), method, retry=0)
    assert len(tried) == 1


@pytest.mark.parametrize("broken", [connection(channel=None), connection(pid=-1)])
def test_ensure_unusable_connection_is_prepared_first(long_way: list[dict[str, Any]], broken: Any) -> None:
    impl_rabbit.Connection.ensure(broken, lambda: None, retry=0)
    assert long_way == [{"retry": 0}]
