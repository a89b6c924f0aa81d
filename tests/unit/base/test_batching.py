"""Answers that come later, to whoever does not wait for them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.base.batching import BatchWindow, ResponseFuture, now

DEADLINE = 30.0


def number(of: int) -> Callable[[], int]:
    return lambda: of


def fails() -> int:
    raise LookupError("there is none")


@pytest.mark.parametrize("told_first", [True, False])
def test_a_listener_hears_of_it_once(told_first: bool) -> None:
    later: ResponseFuture[int] = ResponseFuture()
    heard: list[int] = []
    if told_first:
        later.tell(number(3))
    later.then(lambda get: heard.append(get()))
    if not told_first:
        assert not heard
        later.tell(number(3))
    assert heard == [3]


@pytest.mark.parametrize("told_first", [True, False])
def test_it_is_changed_on_its_way_and_so_is_an_error(told_first: bool) -> None:
    def caught(get: Callable[[], int]) -> str:
        try:
            return f"{get()}"
        except LookupError as error:
            return str(error)

    for get, expected in ((number(4), "4"), (fails, "there is none")):
        later: ResponseFuture[int] = ResponseFuture()
        if told_first:
            later.tell(get)
        changed = later.mapped(caught)
        if not told_first:
            later.tell(get)
        assert changed.wait() == expected
    later = ResponseFuture()
    later.tell(fails)
    with pytest.raises(LookupError):
        later.mapped(lambda get: get()).wait()


def test_who_waits_for_it() -> None:
    later: ResponseFuture[int] = ResponseFuture()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(now, later)
        later.tell(number(5))
        assert waits.result(DEADLINE) == 5
    assert now(6) == 6


class Message:
    """What an answer is for."""


@pytest.mark.parametrize("told_first", [True, False])
def test_nothing_is_kept_once_it_is_told(told_first: bool) -> None:
    moment: BatchWindow[int, int] = BatchWindow(lambda asked: asked, DEADLINE, 2)
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(moment.ask, 1)
            later = None
            while not isinstance(later, ResponseFuture):  # until the other one is the first
                if moment._waiting:
                    later = moment.ask_later(2)
            message = Message()
            kept = weakref.ref(message)

            def changed(get: Callable[[], int], message: Any = message) -> tuple[int, Any]:
                return get(), message

            if told_first:
                assert first.result(DEADLINE) == 1
            heard: list[int] = []
            later.mapped(changed).then(lambda get: heard.append(get()[0]))
            first.result(DEADLINE)
        assert heard == [2]
        del message, changed, later
        assert kept() is None
    finally:
        gc.enable()


def test_one_that_cannot_be_told_keeps_it_from_none() -> None:
    moment: BatchWindow[int, int] = BatchWindow(lambda asked: asked, DEADLINE, 4)
    told: list[int] = []

    def refuses(get: Callable[[], int]) -> None:
        raise RuntimeError("nobody is there")

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(moment.ask, 1)
        while not moment._waiting:
            pass
        bad, good = moment.ask_later(2), moment.ask_later(3)
        assert isinstance(bad, ResponseFuture) and isinstance(good, ResponseFuture)
        bad.then(refuses)
        good.then(lambda get: told.append(get()))
        last = moment.ask_later(4)
        assert isinstance(last, ResponseFuture)
        last.then(lambda get: told.append(get()))
        assert first.result(DEADLINE) == 1
    assert sorted(told) == [3, 4]


def test_what_goes_wrong_is_told_to_each() -> None:
    def ask(asked: list[int]) -> list[int]:
        raise LookupError("there is none")

    moment: BatchWindow[int, int] = BatchWindow(ask, DEADLINE, 2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(moment.ask, 1)
        while not moment._waiting:
            pass
        later = moment.ask_later(2)
        with pytest.raises(LookupError):
            first.result(DEADLINE)
    with pytest.raises(LookupError):
        now(later)


def test_only_the_first_one_takes_a_thread() -> None:
    moment: BatchWindow[int, int] = BatchWindow(lambda asked: asked, DEADLINE, 50)
    came = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(moment.ask, 0)
        while not moment._waiting:
            pass
        for asked in range(1, 50):
            later = moment.ask_later(asked)
            assert isinstance(later, ResponseFuture)
            later.then(lambda get: came.release())
        assert first.result(DEADLINE) == 0
    assert all(came.acquire(timeout=DEADLINE) for _ in range(49))
