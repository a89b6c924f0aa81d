"""`ResponseFuture`: callbacks, mapping, errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from nova_lite.base.futures import ResponseFuture, wait_for

DEADLINE = 30.0


def returns(value: int) -> Callable[[], int]:
    return lambda: value


def fails() -> int:
    raise LookupError("there is none")


@pytest.mark.parametrize("delivered_first", [True, False])
def test_future_callback_is_called_once(delivered_first: bool) -> None:
    future: ResponseFuture[int] = ResponseFuture()
    results: list[int] = []
    if delivered_first:
        future.set_result(returns(3))
    future.add_callback(lambda get: results.append(get()))
    if not delivered_first:
        assert not results
        future.set_result(returns(3))
    assert results == [3]


@pytest.mark.parametrize("delivered_first", [True, False])
def test_future_map_changes_result_or_error(delivered_first: bool) -> None:
    def describe(get: Callable[[], int]) -> str:
        try:
            return f"{get()}"
        except LookupError as error:
            return str(error)

    for get, expected in ((returns(4), "4"), (fails, "there is none")):
        future: ResponseFuture[int] = ResponseFuture()
        if delivered_first:
            future.set_result(get)
        mapped = future.map(describe)
        if not delivered_first:
            future.set_result(get)
        assert mapped.result() == expected


def test_future_map_passes_an_error_on() -> None:
    future: ResponseFuture[int] = ResponseFuture()
    future.set_result(fails)
    with pytest.raises(LookupError):
        future.map(lambda get: get()).result()


def test_wait_for_blocks_until_the_future_is_delivered() -> None:
    future: ResponseFuture[int] = ResponseFuture()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for, future)
        future.set_result(returns(5))
        assert waiting.result(DEADLINE) == 5


def test_wait_for_returns_a_response_immediately() -> None:
    assert wait_for(6) == 6
